package grouptest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/group"
)

func TestGoodMachine(t *testing.T) {
	TestStateMachine(t, opener(""))
	Suite{
		Open:    opener(""),
		Restart: func(_ testing.TB, f group.Factory) group.Factory { return f },
		Command: func(i int) []byte { return fmt.Appendf(nil, "command %d", i) },
		Queries: [][]byte{[]byte("len")},
	}.Run(t)
}

// volatile hides the optional interfaces of a machine.
type volatile struct{ group.StateMachine }

func TestMachineWithoutOptionalInterfaces(t *testing.T) {
	TestStateMachine(t, func(tb testing.TB) group.Factory {
		tb.Helper()
		open := opener("")(tb)
		return func(env group.Env) (group.StateMachine, error) {
			m, err := open(env)
			return volatile{StateMachine: m}, err
		}
	})
}

// TestBrokenMachines breaks one promise at a time; the check named must notice.
func TestBrokenMachines(t *testing.T) {
	for fault, check := range map[string]string{
		"forgets a result":         "Results",
		"fills in the index":       "Results",
		"differs":                  "Results",
		"depends on batches":       "Batches",
		"keeps data":               "Data",
		"modifies data":            "Data",
		"snapshot moves":           "SnapshotIsolation",
		"counts wrong":             "Restore",
		"merges":                   "RestoreReplaces",
		"ignores a failed reader":  "RestoreFails",
		"empties before restoring": "RestoreFails",
		"loses data":               "Durable",
		"loses the index":          "Durable",
		"runs ahead":               "Durable",
		"restores in memory":       "DurableRestore",
		"has one hash":             "Hash",
		"destroys nothing":         "Destroy",
		"fails to close":           "Results",
	} {
		t.Run(fault, func(t *testing.T) {
			failures := record(t, Suite{Open: opener(fault)}, check)
			if failures == "" {
				t.Errorf("%s did not notice a machine that %s", check, fault)
			}
		})
	}
}

// stuckSnapshot holds the machine's lock until it is closed.
type stuckSnapshot struct {
	group.Snapshot
	m *machineList
}

func (s *stuckSnapshot) Close() error {
	s.m.mu.Unlock()
	return s.Snapshot.Close()
}

// stuck is a machine whose Apply waits for its snapshots.
type stuck struct{ *machineList }

func (s stuck) Snapshot() (group.Snapshot, error) {
	snap, err := s.machineList.Snapshot()
	s.mu.Lock()
	return &stuckSnapshot{Snapshot: snap, m: s.machineList}, err
}

// TestStuckMachineIsReported, not waited for.
func TestStuckMachineIsReported(t *testing.T) {
	s := Suite{patience: 10 * time.Millisecond, Open: func(tb testing.TB) group.Factory {
		tb.Helper()
		open := opener("")(tb)
		return func(env group.Env) (group.StateMachine, error) {
			m, err := open(env)
			list, ok := m.(*machineList)
			if !ok {
				return nil, err
			}
			return stuck{list}, err
		}
	}}
	failures := record(t, s, "SnapshotIsolation")
	if !strings.Contains(failures, errStuck.Error()) {
		t.Errorf("failures: %q, want %v", failures, errStuck)
	}
}

// record runs one check and returns what it complains of.
func record(t *testing.T, s Suite, name string) string {
	t.Helper()
	s = s.withDefaults()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanup()
		for _, c := range checks() {
			if c.name == name {
				c.run(run{tb: r, suite: s})
				return
			}
		}
		r.Errorf("no check %q", name)
	}()
	<-done
	return r.log.String()
}

// A recorder is a test that notes its failures.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	log      strings.Builder
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.log, format+"\n", args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) cleanup() {
	for _, f := range r.cleanups {
		f()
	}
}
