package sim_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
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
	sim.Seeds(t, 10, sim.Config{
		Kinds: map[string]sim.Kind{"counter": counters},
		Prepare: func(cfg *sim.Config) {
			told := make(map[raftyard.GroupID]*tally)
			cfg.Workload = func(c *sim.Client) { count(c, told) }
			cfg.Audit = func(c *sim.Client) { audit(c, told) }
		},
	})
}

// A tally is what clients know of the sum of a group.
type tally struct {
	seen    map[uint64]bool // answers: no two are the same
	unknown uint64          // commands that may have counted
}

// count adds up, in all groups.
func count(c *sim.Client, told map[raftyard.GroupID]*tally) {
	for i := 0; i < c.Ops() && c.Running(); i++ {
		c.Sleep(time.Duration(c.Rand().IntN(100)) * time.Millisecond)
		for _, g := range c.Groups() {
			if told[g] == nil {
				told[g] = &tally{seen: make(map[uint64]bool)}
			}
			switch res, err := c.Propose(g, []byte("one more")); {
			case err == nil:
				answer := binary.BigEndian.Uint64(res.Data)
				if told[g].seen[answer] {
					c.Failf("group %d: two commands had the answer %d", g, answer)
				}
				told[g].seen[answer] = true
			case !node.NotApplied(err):
				told[g].unknown++
			}
		}
	}
}

// audit reads the sums when all is well again.
func audit(c *sim.Client, told map[raftyard.GroupID]*tally) {
	for _, g := range c.Groups() {
		if told[g] == nil {
			continue
		}
		var sum uint64
		read := func(ctx context.Context, n *node.Node) error {
			return sim.View(ctx, n, g, node.Linearizable, func(m *counter) error {
				m.mu.Lock()
				defer m.mu.Unlock()
				sum = m.sum
				return nil
			})
		}
		err := c.Do("read the sum", read)
		for errors.Is(err, node.ErrNoReplica) { // another node has one
			err = c.Do("read the sum", read)
		}
		least := uint64(len(told[g].seen))
		if err != nil || sum < least || sum > least+told[g].unknown {
			c.Failf("group %d: the sum is %d, want %d and up to %d more (%v)",
				g, sum, least, told[g].unknown, err)
		}
	}
}
