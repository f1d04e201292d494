// Package grouptest checks implementations of group.StateMachine against their
// contract. An embedding program runs it on its own:
//
//	func TestLedger(t *testing.T) {
//		grouptest.TestStateMachine(t, func(testing.TB) group.Factory { return newLedger })
//	}
//
// A machine whose commands have a form of their own says so with a [Suite].
package grouptest

import (
	"cmp"
	"testing"
	"time"

	"github.com/raftyard/raftyard/group"
)

// TestStateMachine runs the whole suite on a machine that takes any single byte as
// a command, and changes its state with every one of them. open returns the factory
// of a node; machines that it opens in the same directory are the same replica.
func TestStateMachine(t *testing.T, open func(testing.TB) group.Factory) {
	t.Helper()
	Suite{Open: open}.Run(t)
}

// A Suite says how to test one kind of state machine.
type Suite struct {
	// Open returns the factory of a new node. Machines of different factories
	// share nothing.
	Open func(testing.TB) group.Factory

	// Restart returns the factory that the node of f has after its process was
	// killed and started again. Nil: f itself.
	Restart func(tb testing.TB, f group.Factory) group.Factory

	// Command returns the i-th of a sequence of valid commands, the same one every
	// time. Applied in this order, each of them must change the state. Nil:
	// single bytes.
	Command func(i int) []byte

	// Queries are asked of a machine that is a group.Querier, to compare states.
	// A machine that is neither that, with Queries given, nor a group.Hasher must
	// write equal snapshots of equal states.
	Queries [][]byte

	patience time.Duration
}

// Run runs every check of the suite as a subtest. Checks of optional interfaces are
// skipped for a machine that does not implement them.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	s = s.withDefaults()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { c.run(run{tb: t, suite: s}) })
	}
}

func (s Suite) withDefaults() Suite {
	if s.Restart == nil {
		s.Restart = func(_ testing.TB, f group.Factory) group.Factory { return f }
	}
	if s.Command == nil {
		s.Command = func(i int) []byte { return []byte{byte(i%250 + 1)} }
	}
	s.patience = cmp.Or(s.patience, patience)
	return s
}

// A check is one promise of the contract.
type check struct {
	name string
	run  func(run)
}

// A run is one run of a check.
type run struct {
	tb    testing.TB
	suite Suite
}

func checks() []check {
	return []check{
		{name: "Results", run: checkResults},
		{name: "Batches", run: checkBatches},
		{name: "Data", run: checkData},
		{name: "SnapshotIsolation", run: checkIsolation},
		{name: "Restore", run: checkRestore},
		{name: "RestoreReplaces", run: checkRestoreReplaces},
		{name: "RestoreFails", run: checkRestoreFails},
		{name: "Durable", run: checkDurable},
		{name: "DurableRestore", run: checkDurableRestore},
		{name: "Hash", run: checkHash},
		{name: "Query", run: checkQuery},
		{name: "Destroy", run: checkDestroy},
	}
}
