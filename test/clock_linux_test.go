package test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/raftyard/raftyard/test/cluster"
)

// TestClockJumps sets the wall clock of one node an hour ahead, an hour back and ten years
// ahead, while it follows and while it leads, and starts it with the clock of the day
// before. No term changes, no write fails, no read is stale, and nothing waits.
//
// The daemon is compiled for it with a wall clock that can be set from outside; what is
// measured, which the kernel does not set either, stays as it is. All of its packages are
// compiled anew for that, so the test runs at full size only.
func TestClockJumps(t *testing.T) {
	if !cluster.FullScale() {
		t.Skip("compiles everything anew: RAFTYARD_TEST_SCALE=full")
	}
	clock := newClock(t)
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := groupIDs(8)
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	jumps, others := c.Node(2), []*cluster.Node{c.Node(1), c.Node(3)}
	l := newLoad(loadSpec{nodes: c.Nodes(), groups: groups, clients: 8, keys: 4000, size: 100})
	l.start(t)
	l.grant(1, 1)
	for _, leader := range []*cluster.Node{c.Node(1), jumps} {
		leadAll(t, leader, groups)
		l.awaitApplied(t, 100)
		before := terms(t, c, groups)
		failed := l.tally.failed()
		reader := newStaleReader(t, jumps, others)
		for _, to := range []time.Duration{
			time.Hour, 0, -time.Hour, 0, 10 * 365 * 24 * time.Hour, 0,
		} {
			clock.set(t, jumps, to)
			l.awaitApplied(t, 200)
			// Longer than any election, so that a clock that is looked at would show.
			cluster.Pause(t.Context().Done(), 3*time.Second)
			l.awaitApplied(t, 200)
		}
		t.Logf("led by node %d: %d reads through the node meanwhile", leader.ID(), reader.end(t))
		if after := terms(t, c, groups); after != before {
			t.Errorf("terms and leaders are %s, and were %s", after, before)
		}
		if now := l.tally.failed(); now != failed {
			t.Errorf("%d requests have failed: %v", now-failed, l.tally)
		}
	}
	l.end()
	jumps.Kill()
	clock.write(t, -24*time.Hour)
	jumps.Start()
	jumps.AwaitReady(startLimit)
	for _, g := range groups {
		if err := put(t, jumps, g, staleKey, []byte("the day before")); err != nil {
			t.Error(err)
		}
	}
	clock.set(t, jumps, 0)
	l.verifyLists(t, c.Nodes(), staleKey)
	verifyHashes(t, c.Nodes(), groups)
}

// A clock is the wall clock of the nodes of a test: a file that says how many seconds it is
// ahead, which a node reads when it starts and when it is told to.
type clock struct{ path string }

const (
	envClock = "RAFTYARD_TEST_CLOCK"
	command  = "github.com/raftyard/raftyard/cmd/raftyard"

	// readsClock is where package time reads the clock, and aheadSource, which is added to
	// it, what makes it go ahead. What is measured, mono, stays.
	readsClock  = "sec, nsec, mono := runtimeNow()\n"
	aheadSource = `package time

import "sync/atomic"

var ahead atomic.Int64

func Ahead(sec int64) { ahead.Store(sec) }
`
	// clockSource is added to the daemon.
	clockSource = `package main

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func init() {
	set := func() {
		b, err := os.ReadFile(os.Getenv("` + envClock + `"))
		if err != nil {
			panic(err)
		}
		sec, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			panic(err)
		}
		time.Ahead(sec)
	}
	set()
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1)
	go func() {
		for range told {
			set()
		}
	}()
}
`
)

// newClock compiles a daemon with such a clock, and has the test use it.
func newClock(t *testing.T) *clock {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	c := &clock{path: file("clock")}
	c.write(t, 0)
	std := filepath.Join(run(t, "go", "env", "GOROOT"), "src", "time")
	b, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(readsClock)) {
		t.Fatalf("%s/time.go reads the clock in another way than this test knows", std)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(std, "time.go"):  file("time.go"),
		filepath.Join(std, "ahead.go"): file("ahead.go"),
		filepath.Join(run(t, "go", "list", "-f", "{{.Dir}}", command), "clock.go"): file("main.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"time.go": bytes.ReplaceAll(b, []byte(readsClock),
			[]byte(readsClock+"\tsec += ahead.Load()\n")),
		"ahead.go": []byte(aheadSource), "main.go": []byte(clockSource), "overlay": overlay,
	} {
		if err := os.WriteFile(file(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "go", "build", "-overlay", file("overlay"), "-o", file("raftyard"), command)
	t.Setenv("RAFTYARD_TEST_BINARY", file("raftyard"))
	t.Setenv(envClock, c.path)
	return c
}

// run returns what a program prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, said.Bytes())
	}
	return strings.TrimSpace(string(out))
}

func (c *clock) write(t *testing.T, ahead time.Duration) {
	t.Helper()
	text := strconv.FormatInt(int64(ahead/time.Second), 10)
	if err := os.WriteFile(c.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// set sets the clock of a node, and waits until its answers show it.
func (c *clock) set(t *testing.T, n *cluster.Node, ahead time.Duration) {
	t.Helper()
	c.write(t, ahead)
	if err := syscall.Kill(n.PID(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, startLimit, "the node has another clock", func() error {
		a := n.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: "/livez"})
		at, err := http.ParseTime(a.Header.Get("Date"))
		if err != nil {
			return err
		}
		off := at.Sub(time.Now().Add(ahead))
		return want(off.Abs() < time.Minute, "its clock is %v away", off)
	})
}
