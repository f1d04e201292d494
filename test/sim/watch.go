package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// View is [node.View] for state machines that the simulator watches, which node.View
// does not know by their own types.
func View[S any](
	ctx context.Context, n *node.Node, g raftyard.GroupID, c node.Consistency,
	fn func(S) error,
) error {
	return node.View(ctx, n, g, c, func(sm group.StateMachine) error {
		if w, ok := sm.(interface{ watches() group.StateMachine }); ok {
			sm = w.watches()
		}
		s, ok := sm.(S)
		if !ok {
			return fmt.Errorf("group %d: %w: its state machine is a %T",
				g, node.ErrUnsupported, sm)
		}
		return fn(s)
	})
}

// watch returns a kind whose state machines tell the checker what they do.
func watch(c *check.Checker, kind Kind) Kind {
	return func(files FS) group.Factory {
		open := kind(files)
		return func(env group.Env) (group.StateMachine, error) {
			sm, err := open(env)
			if err != nil {
				return nil, err
			}
			return newWatched(c, sm, env)
		}
	}
}

// watched is a state machine under watch. Its snapshots begin with the index that
// they are of, which a state machine need not know.
type watched struct {
	group.StateMachine

	check *check.Checker
	id    check.Identity
	index uint64 // of the last command that it has
}

// watchedDurable is one that keeps its state on disk.
type watchedDurable struct {
	*watched

	durable group.Durable
}

var (
	_ group.Querier   = (*watched)(nil)
	_ group.Hasher    = (*watched)(nil)
	_ group.Sizer     = (*watched)(nil)
	_ group.Destroyer = (*watched)(nil)
	_ group.Durable   = watchedDurable{}
)

func newWatched(
	c *check.Checker, sm group.StateMachine, env group.Env,
) (group.StateMachine, error) {
	w := &watched{StateMachine: sm, check: c, id: check.Identity{
		Group: env.Group, Incarnation: env.Incarnation, Replica: env.Replica, Node: env.Node,
	}}
	d, ok := sm.(group.Durable)
	if !ok {
		c.MachineOpened(w.id, 0)
		return w, nil
	}
	var err error
	if w.index, err = d.Applied(); err != nil {
		return nil, fmt.Errorf("applied index: %w", err)
	}
	c.MachineOpened(w.id, w.index)
	c.MachineDurable(w.id, w.index)
	return watchedDurable{w, d}, nil
}

func (w *watched) watches() group.StateMachine { return w.StateMachine }

// Apply implements group.StateMachine.
func (w *watched) Apply(batch []group.Command) (results []group.Result, err error) {
	done := false
	defer func() {
		if !done { // its node has died meanwhile, and some of it may be on the disk
			w.check.Began(w.id, batch)
		}
	}()
	results, err = w.StateMachine.Apply(batch)
	if err != nil {
		return results, err
	}
	done = true
	w.check.Applied(w.id, batch, results)
	w.index = batch[len(batch)-1].Index
	return results, w.hash()
}

// hash shows the checker the hash, if there is one.
func (w *watched) hash() error {
	h, ok := w.StateMachine.(group.Hasher)
	if !ok {
		return nil
	}
	sum, err := h.Hash()
	if err != nil {
		return fmt.Errorf("hash: %w", err)
	}
	w.check.HashedBytes(w.id, w.index, sum)
	return nil
}

// Snapshot implements group.StateMachine.
func (w *watched) Snapshot() (group.Snapshot, error) {
	s, err := w.StateMachine.Snapshot()
	if err != nil {
		return nil, err
	}
	return headed{s, w.index}, nil
}

// Restore implements group.StateMachine.
func (w *watched) Restore(r io.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("index of the snapshot: %w", err)
	}
	index := binary.BigEndian.Uint64(head[:])
	if err := w.StateMachine.Restore(r); err != nil {
		return err
	}
	w.check.Restored(w.id, index)
	w.index = index
	return w.hash()
}

// Query implements group.Querier.
func (w *watched) Query(query []byte) ([]byte, error) {
	q, ok := w.StateMachine.(group.Querier)
	if !ok {
		return nil, fmt.Errorf("%w: it takes no queries", node.ErrUnsupported)
	}
	return q.Query(query)
}

// Hash implements group.Hasher.
func (w *watched) Hash() ([]byte, error) {
	h, ok := w.StateMachine.(group.Hasher)
	if !ok {
		return nil, fmt.Errorf("%w: it has no content hash", node.ErrUnsupported)
	}
	return h.Hash()
}

// Size implements group.Sizer. Zero is what is taken for one that cannot tell.
func (w *watched) Size() int64 {
	if s, ok := w.StateMachine.(group.Sizer); ok {
		return s.Size()
	}
	return 0
}

// Destroy implements group.Destroyer. Without it, closing is what is done instead.
func (w *watched) Destroy() error {
	if d, ok := w.StateMachine.(group.Destroyer); ok {
		return d.Destroy()
	}
	return w.Close()
}

// Applied implements group.Durable.
func (w watchedDurable) Applied() (uint64, error) {
	index, err := w.durable.Applied()
	if err != nil {
		return 0, err
	}
	w.check.MachineDurable(w.id, index)
	return index, nil
}

// headed is a snapshot behind its index.
type headed struct {
	group.Snapshot

	index uint64
}

// WriteTo implements io.WriterTo.
func (s headed) WriteTo(w io.Writer) (int64, error) {
	head := binary.BigEndian.AppendUint64(nil, s.index)
	n, err := io.Copy(w, bytes.NewReader(head))
	if err != nil {
		return n, fmt.Errorf("index of the snapshot: %w", err)
	}
	m, err := s.Snapshot.WriteTo(w)
	return n + m, err
}
