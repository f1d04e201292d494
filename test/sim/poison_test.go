package sim

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
)

// poison is what breaks a brittle counter.
const poison = "poison"

// An illness is what the brittle counters of a run have: poison breaks them until it is
// skipped. Then the program is mended, and a state machine that is given it all the same
// does not end up as the others.
type illness struct {
	given  map[raftyard.GroupID]bool // at most one entry of a group has it
	mended map[raftyard.GroupID]bool
}

// brittle adds up, and can be poisoned.
type brittle struct {
	mu  sync.Mutex
	sum uint64
	env group.Env
	ill *illness
}

func (b *brittle) Apply(batch []group.Command) ([]group.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range batch {
		b.sum++
		if string(batch[i].Data) != poison {
			continue
		}
		if !b.ill.mended[b.env.Group] {
			panic("poisoned")
		}
		b.sum += 1000
	}
	return make([]group.Result, len(batch)), nil
}

func (b *brittle) Hash() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return binary.BigEndian.AppendUint64(nil, b.sum), nil
}

func (b *brittle) Snapshot() (group.Snapshot, error) {
	sum, err := b.Hash()
	return sumImage(sum), err
}

func (b *brittle) Restore(r io.Reader) error {
	sum, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(sum) != 8 {
		return fmt.Errorf("%d bytes", len(sum))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum = binary.BigEndian.Uint64(sum)
	return nil
}

func (b *brittle) Close() error { return nil }

type sumImage []byte

func (b sumImage) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b)
	return int64(n), err
}

func (b sumImage) Close() error { return nil }

// TestPoisonSeeds poisons groups amid faults of every kind, and has the entry skipped.
// Replicas restart, replay their logs and take snapshots over before and after that; all
// must come to the same state in the end.
func TestPoisonSeeds(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 15
	}
	skips := 0
	Seeds(t, n, poisonous(func(ill *illness) { skips += len(ill.mended) }))
	if skips < n/2 {
		t.Errorf("%d entries are skipped in %d runs", skips, n)
	}
}

// poisonous is a run in which groups are poisoned. At its end it tells what came of that.
func poisonous(told func(*illness)) Config {
	return Config{
		Seed: 7300, Nodes: 3, Bare: true, Lacking: []raftyard.NodeID{},
		Prepare: func(cfg *Config) {
			ill := &illness{
				given:  make(map[raftyard.GroupID]bool),
				mended: make(map[raftyard.GroupID]bool),
			}
			cfg.Kinds = map[string]Kind{"brittle": func(FS) group.Factory {
				return func(env group.Env) (group.StateMachine, error) {
					return &brittle{env: env, ill: ill}, nil
				}
			}}
			cfg.Workload = func(c *Client) { poisonGroups(c, ill) }
			cfg.Audit = func(c *Client) {
				auditPoison(c, ill)
				told(ill)
			}
		},
	}
}

// poisonGroups adds up, poisons, and skips. Whatever comes of it, the replicas must agree.
func poisonGroups(c *Client, ill *illness) {
	for i := 0; i < c.Ops() && c.Running(); i++ {
		c.Sleep(time.Duration(c.Rand().IntN(150)) * time.Millisecond)
		for _, g := range c.Groups() {
			cmd := "one more"
			if c.ID() == 1 && i > 5 && !ill.given[g] {
				cmd, ill.given[g] = poison, true
			}
			_, err := c.Propose(g, []byte(cmd))
			switch {
			case cmd != poison:
			case err == nil:
				c.Failf("group %d has taken poison", g)
			case node.NotApplied(err):
				ill.given[g] = false
			}
			if c.ID() == 1 {
				skipPoison(c, g, ill)
			}
		}
	}
}

// skipPoison has the entry skipped at which a group stands, if that can be done now. It
// reports whether nothing is wrong with the group.
func skipPoison(c *Client, g raftyard.GroupID, ill *illness) (well bool) {
	skipped := false
	err := c.Do("skip", func(ctx context.Context, n *node.Node) error {
		st, err := n.Group(ctx, g)
		if err != nil || st.Poison == nil {
			well = err == nil && len(st.Problems) == 0
			return err
		}
		_, err = n.SkipEntry(ctx, g, node.Skip{Index: st.Poison.Index, Confirm: st.Incarnation})
		skipped = err == nil
		return err
	})
	if skipped && err == nil {
		ill.mended[g] = true
	}
	return well
}

// auditPoison frees the groups of what is left and compares the states of their replicas.
func auditPoison(c *Client, ill *illness) {
	for _, g := range c.Groups() {
		for i := 0; !skipPoison(c, g, ill); i++ {
			if i > 200 {
				c.Failf("group %d does not get well", g)
				return
			}
			c.Sleep(200 * time.Millisecond)
		}
		hashes := make(map[uint64]string) // by index
		for i := 0; i < 12; {
			err := c.Do("hash", func(ctx context.Context, n *node.Node) error {
				h, err := n.Hash(ctx, g, 0)
				if err != nil {
					return err
				}
				if other, ok := hashes[h.Index]; ok && other != h.Hash {
					return fmt.Errorf("at index %d: %w", h.Index, errDiffer)
				}
				hashes[h.Index] = h.Hash
				return nil
			})
			switch {
			case errors.Is(err, errDiffer):
				c.Failf("group %d: %w", g, err)
				return
			case err == nil:
				i++
			default:
				c.Sleep(50 * time.Millisecond)
			}
		}
	}
}

var errDiffer = errors.New("replicas have different states")
