package compare

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/raftyard/raftyard/test/peers/internal/system"
	"github.com/raftyard/raftyard/test/peers/internal/trial"
)

func TestParseContestant(t *testing.T) {
	for text, want := range map[string]Contestant{
		"etcd": {System: "etcd"},
		"dragonboat:quiesce=1,shards=2": {
			System: "dragonboat", Options: system.Options{"shards": "2", "quiesce": "1"},
		},
	} {
		got, err := ParseContestant(text)
		if err != nil {
			t.Errorf("ParseContestant(%q): %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseContestant(%q) (-want +got):\n%s", text, diff)
		}
		if got.String() != text {
			t.Errorf("%q is written as %q", text, got)
		}
	}
	if _, err := ParseContestant("etcd:fast"); err == nil {
		t.Errorf("an option without a value is accepted")
	}
}

func TestParsePair(t *testing.T) {
	if g, c, err := ParsePair("48x512"); g != 48 || c != 512 || err != nil {
		t.Errorf("ParsePair(48x512) = %d, %d, %v", g, c, err)
	}
	for _, bad := range []string{"", "48", "x1", "0x1", "1x0", "1x1x1", "axb"} {
		if _, _, err := ParsePair(bad); err == nil {
			t.Errorf("ParsePair(%q) accepts it", bad)
		}
	}
}

func plan() *Plan {
	return &Plan{
		Contestants: []Contestant{{System: Ours}, {System: "a"}, {System: "one"}},
		Cells:       []Cell{{Op: trial.Write, Groups: 48, Clients: 8, Size: 128}},
		Rounds:      2,
		Base:        trial.Spec{Hosts: 3},
		MaxGroups:   map[string]int{"one": 1},
	}
}

// TestPlan: contestants take turns, those that cannot do it are left out, and one that
// fails does not keep the others from their turn.
func TestPlan(t *testing.T) {
	p := plan()
	var got []string
	runs, err := p.Do(t.Context(), p.Cells[0], func(
		_ context.Context, what string, spec *trial.Spec,
	) (*trial.Result, error) {
		got = append(got, what)
		if spec.Groups != 48 || spec.Clients != 8 || spec.Size != 128 || spec.Hosts != 3 {
			t.Errorf("the trial is %+v", spec)
		}
		if spec.System == "a" {
			return nil, errors.New("odd")
		}
		return &trial.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"write 128 B, groups x clients 48x8: raftyard, round 1 of 2",
		"write 128 B, groups x clients 48x8: a, round 1 of 2",
		"write 128 B, groups x clients 48x8: raftyard, round 2 of 2",
		"write 128 B, groups x clients 48x8: a, round 2 of 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trials (-want +got):\n%s", diff)
	}
	if p.Steps() != len(want) || len(runs) != len(want) || runs[3].Error != "odd" {
		t.Errorf("%d steps, runs %+v", p.Steps(), runs)
	}
}

func TestPlanInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := plan()
	runs, err := p.Do(ctx, p.Cells[0], func(
		_ context.Context, _ string, spec *trial.Spec,
	) (*trial.Result, error) {
		if spec.System == "a" {
			cancel()
		}
		return &trial.Result{}, nil
	})
	if !errors.Is(err, context.Canceled) || len(runs) != 1 {
		t.Errorf("%d runs and error %v, want the one that had ended", len(runs), err)
	}
}

// result returns one with a throughput, and latencies in microseconds.
func result(perSecond, p50, p99 float64) *trial.Result {
	return &trial.Result{
		PerSecond: perSecond, Latency: trial.Latency{P50: p50, P99: p99}, RSS: 100,
		Refusals: 1, CPUPerOp: 12.3, SyncP50: 150,
	}
}

// TestSummarize: ratios are of the same round, against the peer with the best median.
func TestSummarize(t *testing.T) {
	cell := Cell{Op: trial.Write, Groups: 48, Clients: 512, Size: 128}
	runs := []Run{
		{Contestant: Ours, Round: 0, Result: result(100, 1, 10)},
		{Contestant: "a", Round: 0, Result: result(50, 2, 10)},
		{Contestant: "b", Round: 0, Result: result(400, 2, 10)},
		{Contestant: Ours, Round: 1, Result: result(20, 1, 10)},
		{Contestant: "a", Round: 1, Result: result(20, 2, 40)},
		{Contestant: "b", Round: 1, Result: result(1, 2, 10)},
		{Contestant: Ours, Round: 2, Result: result(90, 1, 10)},
		{Contestant: "a", Round: 2, Result: result(60, 4, 10)},
		{Contestant: "b", Round: 2, Result: result(2, 2, 10)},
		{Contestant: "c", Round: 2, Error: "odd"},
	}
	s := Summarize(cell, runs)
	if s.Best != "a" {
		t.Errorf("the best is %q, want that with the best median, not the best round", s.Best)
	}
	if want := (Ratio{Median: 1.5, Low: 1, High: 2}); s.Throughput != want {
		t.Errorf("the throughput is %+v times that of the best, want %+v", s.Throughput, want)
	}
	if want := (Ratio{Median: 1, Low: 0.25, High: 1}); s.P99 != want {
		t.Errorf("p99 is %+v times that of the best, want %+v", s.P99, want)
	}
	row := s.Rows[0]
	if row.Median.PerSecond != 90 || row.Rounds != 3 || row.Median.Refusals != 3 {
		t.Errorf("our row is %+v", row)
	}
	last := s.Rows[3]
	if last.Contestant != "c" || last.Rounds != 0 || len(last.Errors) != 1 {
		t.Errorf("the row of what failed is %+v", last)
	}
}

// TestBest: what counts is throughput, with one client latency, and memory when idle.
func TestBest(t *testing.T) {
	fast, quick, small := result(9, 5, 1), result(1, 1, 1), result(2, 4, 1)
	small.RSS = 1
	for want, cell := range map[string]Cell{
		"fast": {Op: trial.Write, Clients: 2}, "quick": {Op: trial.Read, Clients: 1},
		"small": {Op: trial.Idle},
	} {
		s := Summarize(cell, []Run{
			{Contestant: "fast", Result: fast},
			{Contestant: "quick", Result: quick},
			{Contestant: "small", Result: small},
		})
		if s.Best != want || s.Throughput != (Ratio{}) {
			t.Errorf("%v: the best is %q, want %q, and no ratio without ours", cell, s.Best, want)
		}
	}
	if s := Summarize(Cell{}, []Run{{Contestant: Ours, Result: fast}}); s.Best != "" {
		t.Errorf("we are our own best peer: %+v", s)
	}
}

func report() *Report {
	write := Cell{Op: trial.Write, Groups: 1, Clients: 64, Size: 128}
	idle := Cell{Op: trial.Idle, Groups: 1000}
	return &Report{
		Command: "peers -rounds 1", Date: "2026-01-02 03:04 UTC", Rounds: 1,
		Base:    trial.Spec{Hosts: 3, Duration: 5 * time.Second, Warmup: time.Second},
		Machine: Machine{CPU: "some", Cores: 2, Memory: 23.6, Kernel: "6.1", Go: "go1.26"},
		Cells: []Summary{
			Summarize(write, []Run{
				{Contestant: Ours, Result: result(30_000, 1500, 4000)},
				{Contestant: "a:n=1", Result: result(20_000, 2500, 8000)},
				{Contestant: "b", Error: "odd\nindeed"},
			}),
			Summarize(idle, []Run{
				{Contestant: Ours, Result: &trial.Result{CPUPercent: 2.5, RSS: 300}},
				{Contestant: "b", Result: &trial.Result{CPUPercent: 50, RSS: 2000}},
			}),
		},
	}
}

func TestText(t *testing.T) {
	want, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), report().Text()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestMarkdown(t *testing.T) {
	got := report().Markdown()
	for _, want := range []string{
		"### idle, groups 1000\n\n| system | CPU % |",
		"\n|---|---|---|---|---|---|---|---|\n| raftyard | 2.5 | 300 |",
		"\n| b | - |  |  |",
		"\n\nb failed: odd\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}
