package counter

import (
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/group/grouptest"
)

func TestMachine(t *testing.T) {
	grouptest.TestStateMachine(t, func(testing.TB) group.Factory { return New })
}

// TestCount: commands count one each, and each is told the count after it.
func TestCount(t *testing.T) {
	m := &Machine{}
	results, err := m.Apply(make([]group.Command, 3))
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		if got, err := Value(result); err != nil || got != uint64(i+1) {
			t.Errorf("command %d is told %d, %v, want %d", i, got, err, i+1)
		}
	}
	if m.Count() != 3 {
		t.Errorf("Count() = %d, want 3", m.Count())
	}
	if _, err := Value(group.Result{Data: []byte{1}}); err == nil {
		t.Error("a result of one byte has a count")
	}
}
