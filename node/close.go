package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// handoverTicks bounds, in election timeouts, how long Close waits for other
// nodes to take leaderships over.
const handoverTimeouts = 2

// Close stops the node: it hands over the leaderships that it holds, for as long
// as ctx and two election timeouts allow, and then stops in bounded time, with
// or without a quorum. It does not change any group's members. Requests under
// way end with an error, however long their contexts would go on. With a ctx that has
// ended nothing is handed over. Close may be called more than once.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() {
		close(n.closing)
		if n.Err() == nil {
			n.handOver(ctx)
		}
		n.closeErr = n.stop()
	})
	return n.closeErr
}

// handOver asks the best follower of every group led here to take over, and
// waits until none is led here, or time is up.
func (n *Node) handOver(ctx context.Context) {
	ctx, cancel := n.world.withTimeout(ctx, n.ticks(handoverTimeouts*n.cfg.ElectionTicks))
	defer cancel()
	for ctx.Err() == nil {
		led, live := 0, n.liveNodes()
		for _, r := range n.allReplicas() {
			if r.serving() && r.view.Load().couldHandOver(r, live) {
				led++
				r.worker.box.control(func() {
					r.worker.guard(r, "hand over", func() {
						r.worker.handOver(r, func(id raftyard.NodeID) bool { return live[id] })
					})
				})
			}
		}
		if led == 0 {
			return
		}
		if !n.world.sleep(ctx, n.cfg.TickInterval/2) {
			n.logger.Warn("leaderships not handed over in time", countAttr(led))
			return
		}
	}
}

// handOver transfers the leadership to a voter on an eligible node that has been heard
// of lately, one of those that have most of the log.
func (w *worker) handOver(r *replica, eligible func(raftyard.NodeID) bool) {
	st := r.raft.Status()
	if st.Role != group.Leader || st.Transferee != 0 {
		return
	}
	var best []raftyard.ReplicaID
	var match uint64
	for _, m := range r.meta.State.Descriptor.Voters() {
		p := st.Progress[m.ID]
		if m.ID == r.id || !p.RecentActive || p.Match < max(match, 1) || !eligible(m.Node) {
			continue
		}
		if p.Match > match {
			best, match = best[:0], p.Match
		}
		best = append(best, m.ID)
	}
	if len(best) == 0 {
		return
	}
	// Groups with the same voters are not all handed to the same one.
	if err := r.raft.TransferLeader(best[uint64(r.group)%uint64(len(best))]); err == nil {
		w.touch(r)
	}
}

// couldHandOver reports whether the replica leads, and another voter is connected.
func (v *view) couldHandOver(r *replica, live map[raftyard.NodeID]bool) bool {
	if !v.initialized() || v.Leader != r.id {
		return false
	}
	return slices.ContainsFunc(v.State.Descriptor.Voters(), func(m group.Member) bool {
		return m.ID != r.id && live[m.Node]
	})
}

// stop ends every part, in the order in which they depend on each other. It is
// also how a start that failed halfway cleans up.
func (n *Node) stop() error {
	var errs []error
	n.cancel()
	n.stopWaiting()
	if n.lifecycle != nil {
		n.lifecycle.close()
	}
	if n.sender != nil {
		n.sender.close()
	}
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	for _, r := range n.allReplicas() {
		r.worker.box.control(func() { r.worker.retire(r, ErrClosed) })
	}
	for _, w := range n.workers {
		w.box.close()
		w.proc.wait()
	}
	if n.appliers != nil {
		n.appliers.close()
	}
	if n.committer != nil {
		n.committer.close()
	}
	close(n.stopped)
	n.underWay.close()
	if n.files != nil {
		n.files.close()
	}
	n.procs.wait()
	for _, r := range n.allReplicas() {
		end := r.machine.close
		if r.machine.fault() != nil {
			end = r.machine.closeApart
		}
		if err := end(false); err != nil {
			errs = append(errs, fmt.Errorf("group %d: %w", r.group, err))
		}
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("node: close: %w", err)
	}
	return nil
}

// halt has the worker retire a replica, and waits for that.
func (w *worker) halt(r *replica, reason error) {
	done := make(chan struct{})
	if !w.box.control(func() { w.retire(r, reason); close(done) }) {
		return
	}
	await[struct{}](w.node.world, nil, done, w.proc.done)
}
