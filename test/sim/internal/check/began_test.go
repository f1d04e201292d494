package check

import (
	"testing"

	"github.com/raftyard/raftyard/group"
)

// TestBegan has a node die while its state machine applies something: whether that
// is on its disk or not, both are fine, and others must still do the same.
func TestBegan(t *testing.T) {
	one := Identity{Group: 1, Replica: 1, Node: 1}
	two := Identity{Group: 1, Replica: 2, Node: 2}
	batch := []group.Command{
		{Index: 3, Data: []byte("a")},
		{Index: 3, Offset: 1, Data: []byte("b")},
		{Index: 4, Data: []byte("c")},
	}
	results := []group.Result{{Data: []byte("A")}, {Data: []byte("B")}, {Data: []byte("C")}}
	died := func(left uint64) *Checker {
		c := New(Config{})
		c.MachineOpened(one, 0)
		c.Began(one, batch)
		c.Crashed(1, LostNothing)
		c.MachineOpened(one, left)
		c.MachineOpened(two, 0)
		return c
	}
	c := died(4)
	c.Acked(Write{Group: 1, Index: 3, Data: []byte("b"), Result: []byte("B")})
	c.Applied(two, batch, results)
	c.Began(two, batch) // which others have applied
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	c = died(3)
	c.Applied(one, batch[2:], results[2:])
	c.Applied(two, batch, results)
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}

	c = died(4)
	c.Applied(two, []group.Command{{Index: 3, Data: []byte("x")}, batch[1]}, results[:2])
	if !c.Broken() || c.Violations()[0].Rule != AppliedOnce {
		t.Errorf("another command there: %v", c.Err())
	}
	c = died(3)
	c.Applied(two, batch, results)
	c.Applied(one, batch[2:], results[:1])
	if !c.Broken() || c.Violations()[0].Rule != SameState {
		t.Errorf("another result there: %v", c.Err())
	}
	c = died(5)
	if !c.Broken() || c.Violations()[0].Rule != AppliedOnce {
		t.Errorf("further than anybody has come: %v", c.Err())
	}
}
