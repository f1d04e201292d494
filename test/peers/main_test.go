package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard/test/peers/internal/compare"
	"github.com/raftyard/raftyard/test/peers/internal/trial"
)

// TestMain has the test's own program do the trials.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == childArg {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestEverySystem: each does everything, in a process of its own, and leaves no data.
func TestEverySystem(t *testing.T) {
	for _, text := range append(bestKnown(), "dragonboat:shards=1,quiesce=1") {
		t.Run(text, func(t *testing.T) {
			c, err := compare.ParseContestant(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range trial.Ops() {
				dir := t.TempDir()
				r, err := runChild(t.Context(), dir, &trial.Spec{
					System: c.System, Options: c.Options, Op: op,
					Groups: min(4, max(maxGroups()[c.System], 1)), Clients: 4, Size: 128, Hosts: 3,
					Warmup: 100 * time.Millisecond, Duration: 200 * time.Millisecond,
					Tick: 20 * time.Millisecond, ElectionTicks: 20, SnapshotEvery: 100,
				})
				if err != nil {
					t.Fatalf("%s: %v", op, err)
				}
				if op != trial.Idle && r.Ops == 0 || op == trial.Write && r.WrittenPerOp < 3*128 {
					t.Errorf("%s: %+v", op, r)
				}
				left, err := os.ReadDir(dir)
				if err != nil || len(left) > 0 {
					t.Errorf("%s: left behind: %v, %v", op, left, err)
				}
			}
		})
	}
}

// TestChildFails: why a trial failed is told.
func TestChildFails(t *testing.T) {
	_, err := runChild(t.Context(), t.TempDir(), &trial.Spec{System: "none"})
	if err == nil || !strings.Contains(err.Error(), `there is no system "none"`) {
		t.Errorf("a trial of what there is not ends with %v", err)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{
		"-cells", "1x1,48x512", "-sizes", "16,128", "-reads", "1x8", "-idle", "1,10",
		"-rounds", "2", "raftyard", "dragonboat:shards=1",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.plan.Cells) != 7 || len(o.plan.Contestants) != 2 || o.plan.Steps() != 28 {
		t.Errorf("the plan is %+v", o.plan)
	}
	for _, args := range [][]string{
		{"none"},
		{"etcd:x"},
		{"-cells", "48"},
		{"-reads", "48"},
		{"-idle", "0"},
		{"-sizes", "x"},
		{"-ops", "dance"},
		{"-rounds", "0"},
		{"-duration", "0s"},
		{"-tick", "0s"},
		{"-hosts", "0"},
		{"-bogus"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("parse(%q) accepts it", args)
		}
	}
}
