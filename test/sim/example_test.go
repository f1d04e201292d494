package sim_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim"
)

// counter is a state machine as an embedding program has one: it adds up.
type counter struct {
	mu  sync.Mutex
	sum uint64
}

func (c *counter) Apply(batch []group.Command) ([]group.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]group.Result, len(batch))
	for i := range batch {
		c.sum++
		out[i].Data = binary.BigEndian.AppendUint64(nil, c.sum)
	}
	return out, nil
}

func (c *counter) Snapshot() (group.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return image(binary.BigEndian.AppendUint64(nil, c.sum)), nil
}

func (c *counter) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(b) != 8 {
		return fmt.Errorf("%d bytes", len(b))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum = binary.BigEndian.Uint64(b)
	return nil
}

func (c *counter) Close() error { return nil }

type image []byte

func (b image) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b)
	return int64(n), err
}

func (b image) Close() error { return nil }

// TestCounter simulates a program's own state machine with its own workload: every
// acknowledged command has counted, and nothing has counted twice.
func TestCounter(t *testing.T) {
	counters := func(sim.FS) group.Factory {
		return func(group.Env) (group.StateMachine, error) { return new(counter), nil }
	}
	for seed := range uint64(10) {
		seen := make(map[string]bool) // answers: no two are the same
		sim.Test(t, sim.Config{
			Seed:  seed,
			Kinds: map[string]sim.Kind{"counter": counters},
			Workload: func(c *sim.Client) {
				for i := 0; i < c.Ops() && c.Running(); i++ {
					c.Sleep(time.Duration(c.Rand().IntN(100)) * time.Millisecond)
					for _, g := range c.Groups() {
						res, err := c.Propose(g, []byte("one more"))
						if err != nil {
							if node.NotApplied(err) {
								continue // certainly has not counted
							}
							return
						}
						answer := fmt.Sprintf("group %d: %x", g, res.Data)
						if seen[answer] {
							t.Errorf("seed %d: two commands had the same answer, %s", seed, answer)
						}
						seen[answer] = true
					}
				}
			},
		})
	}
}
