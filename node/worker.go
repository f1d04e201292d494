package node

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/transport"
)

// A worker owns many replicas and is the only goroutine that touches their raft
// state. Its loop is a router: it takes what has come in, lets each replica
// concerned make a step, and hands what leaves the replicas to the log, to the
// peers and to the state machines. It never waits for any of them.
type worker struct {
	node *Node
	box  *mailbox
	proc process

	replicas map[raftyard.GroupID]*replica
	awake    roster    // those that are ticked
	nodes    nodeViews // as of which those that sleep do so
	placedBy *directories
	ticks    int64
	ticked   atomic.Int64  // after how long a time it has ticked last, in ns
	dirty    []*replica    // to be looked at in this round
	held     []*replica    // to be looked at in the next one, see hold
	keeping  []*replica    // that keep something to themselves, see keepTidings
	keeps    chan struct{} // holds one signal: there is one that does
	outgoing outgoing
	writes   []write
	well     ailing // what is published of groups whose members are well; it stays empty
}

func newWorker(n *Node) *worker {
	w := &worker{
		node:     n,
		box:      newMailbox(n.cfg.Bounds.WorkerQueueBytes),
		replicas: make(map[raftyard.GroupID]*replica),
		keeps:    make(chan struct{}, 1),
	}
	w.ticked.Store(int64(n.uptime()))
	return w
}

// run works until the mailbox is closed.
func (w *worker) run() {
	var m mail
	for !m.closed {
		await(w.node.world, w.box.wake, nil, nil)
		w.node.world.yield() // one round for what comes together, and one frame to each node
		if len(w.held) > 0 {
			w.node.world.yield() // first the appliers that answer, then those who are answered
		}
		m = w.box.take(m)
		w.process(&m)
	}
}

// process handles what came in and lets everything that follows from it out.
func (w *worker) process(m *mail) {
	w.release()
	w.lookAtNodes()
	for _, fn := range m.controls {
		fn()
	}
	for _, r := range m.saved {
		w.guard(r, "finish a step", func() { w.saved(r) })
	}
	for i := range m.messages {
		w.receive(&m.messages[i])
	}
	for i := range m.proposals {
		w.propose(&m.proposals[i])
	}
	for _, c := range m.reads {
		w.read(c)
	}
	for _, r := range m.applied {
		w.guard(r, "serve reads", func() { w.applied(r) })
	}
	for range m.ticks {
		w.ticks++
		w.ticked.Store(int64(w.node.uptime()))
		if !w.node.slow.muted.Load() {
			w.callRoll()
			w.tick()
		}
	}
	w.collect()
}

// collect takes the next step of every replica that has one, then sends and
// submits everything at once. Messages first: a leader's appends travel while
// its own disk works.
func (w *worker) collect() {
	for i := 0; i < len(w.dirty); i++ { //nolint:intrange // it grows meanwhile
		r := w.dirty[i]
		r.dirty = false
		w.shield(r, "take a step", func() { w.drain(r) })
		w.countProposals(r)
	}
	clear(w.dirty)
	w.dirty = w.dirty[:0]
	if w.outgoing.waiting > 0 { // there is no transport before there is something to send
		w.outgoing.flush(w.node.transport.Send)
	}
	if len(w.writes) > 0 {
		w.node.committer.submit(w.writes...)
		clear(w.writes)
		w.writes = w.writes[:0]
	}
}

// touch has the replica looked at in this round.
func (w *worker) touch(r *replica) {
	if !r.dirty {
		r.dirty = true
		w.dirty = append(w.dirty, r)
	}
}

// guard runs fn, which concerns r alone and is something that happens to it: it wakes it.
func (w *worker) guard(r *replica, what string, fn func()) {
	if r.serving() {
		w.rouse(r)
		w.shield(r, what, fn)
	}
}

// shield runs fn, which concerns r alone. A panic in it, which is how raft tells
// of a broken invariant, stops that replica and nothing else.
func (w *worker) shield(r *replica, what string, fn func()) {
	if !r.serving() {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			w.node.stopReplica(r, faulty(RaftPanicked,
				&panicError{what: "an attempt to " + what, value: p, stack: debug.Stack()}))
		}
	}()
	fn()
}

// add takes charge of a replica.
func (w *worker) add(r *replica) {
	w.replicas[r.group] = r
	w.awake.leave() // one that had its place
	w.awake.join(r)
	r.publish()
	w.touch(r)
}

// retire ends a replica: whoever waits is told what is known of the outcome, and
// from then on the replica writes and sends nothing.
func (w *worker) retire(r *replica, reason error) {
	w.shield(r, "end", func() {
		for _, o := range r.raft.Close() {
			w.conclude(r, o)
		}
		for _, wr := range r.reads {
			wr.call.finish(group.Result{}, reason)
		}
		r.reads = nil
	})
	w.node.unsaved.Add(-r.unsaved.drop())
	r.stopServing(reason)
	w.countProposals(r)
	w.writes = slices.DeleteFunc(w.writes, func(x write) bool { return x.group == r.group })
	if w.replicas[r.group] == r {
		delete(w.replicas, r.group)
		w.awake.leave()
	}
	if r.sleep.state == asleep {
		r.sleep.state = awake
		w.node.metrics.asleep.Add(-1)
	}
}

func (w *worker) tick() {
	for _, r := range w.awake.settle(w.isAwake) {
		w.shield(r, "tick", func() {
			if r.movedDirectories() {
				r.publish()
				r.steering.unmet = true
			}
			if !w.node.waitsToFound(r) {
				w.tickRaft(r)
			}
			w.tickDeposed(r)
			w.tickTold(r)
			w.tickTransfer(r)
			w.tickOffers(r)
			w.tickHealth(r)
			w.tickOwn(r)
			w.tickSource(r)
			w.tickHandBack(r)
			if r.steering.unmet {
				w.steer(r)
			}
			w.tickSleep(r)
			w.touch(r)
		})
	}
}

func (w *worker) propose(p *proposal) {
	r := p.r
	c, ok := p.p.Token.(*call)
	if !ok || c.comesTooLate() {
		return
	}
	w.guard(r, "propose", func() {
		if c.ended {
			return
		}
		c.begun = true
		if err := w.node.diskRefuses(r); err != nil {
			c.finish(group.Result{}, err)
			return
		}
		if w.node.appliers.behind(r) {
			w.node.metrics.refuse(applyBacklogLimit)
			c.finish(group.Result{}, fmt.Errorf("%w: the state machine of group %d is behind",
				ErrOverloaded, r.group))
			return
		}
		if r.machine.logOnly.Load() && !c.append && r.raft.Position().Role == group.Leader {
			c.finish(group.Result{}, r.noState())
			return
		}
		if err := r.raft.Propose(p.p); err != nil {
			if errors.Is(err, group.ErrOverloaded) {
				w.node.metrics.refuse(proposalLimit)
			}
			c.finish(group.Result{}, outcomeError(r, err))
			return
		}
		w.touch(r)
	})
}

func (w *worker) read(c *call) {
	if c.comesTooLate() {
		return
	}
	w.guard(c.r, "read", func() {
		if c.ended {
			return
		}
		c.begun = true
		if w.refusesMuted(c) {
			return
		}
		if err := askToRead(c); err != nil {
			c.finish(group.Result{}, outcomeError(c.r, err))
			return
		}
		w.touch(c.r)
	})
}

// askToRead asks raft for the index from which a read can be served.
func askToRead(c *call) error {
	r := c.r
	if mutant.On(mutant.StaleRead) && r.leader.Role == group.Leader {
		r.reads = append(r.reads, waitingRead{index: r.raft.Position().Commit, call: c})
		r.worker.serveReads(r)
		return nil
	}
	return r.raft.Read(c)
}

// cancel ends a call whose caller waits no longer. What is still queued
// certainly has no effect; for the rest nobody knows yet.
func (w *worker) cancel(c *call, cause error) {
	w.guard(c.r, "cancel a request", func() {
		c.ended = true
		if !c.begun || c.r.raft.Cancel(c) || c.r.dropRead(c) {
			w.countProposals(c.r)
			c.finish(group.Result{}, w.node.notApplied(c.r, cause))
			return
		}
		c.finish(group.Result{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, cause))
	})
}

// drain lets the replica make steps until it has none or must wait for one. A node whose
// disk is stuck makes none: it sends nothing, so that others take over.
func (w *worker) drain(r *replica) {
	for !r.busy && r.raft.HasReady() && w.node.appliers.room(r) {
		if w.node.slow.muted.Load() {
			return
		}
		if r.answered {
			w.hold(r)
			return
		}
		r.out = r.raft.Ready()
		r.unsaved.taken()
		w.route(r)
	}
	r.answered = false
}

// route sends what leaves the replica its way.
func (w *worker) route(r *replica) {
	out := &r.out
	w.send(r, out.Messages)
	if mutant.On(mutant.AnswerBeforeSync) {
		w.send(r, out.After)
		out.After = nil
	}
	if mutant.On(mutant.ApplyBeforeSync) && out.Apply != nil && out.Install == nil {
		w.node.appliers.apply(r, out.Apply)
		out.Apply = nil
	}
	w.tell(r, out)
	skipped := r.noteSkipped(out.Apply)
	switch {
	case out.Install != nil:
		r.busy = true
		w.install(r)
	case skipped && out.Save == nil:
		r.busy = true
		w.discardStaged(r)
		w.writes = append(w.writes, write{group: r.group, update: r.metaUpdate(), saved: r})
	case out.Save != nil:
		r.busy = true
		w.discardStaged(r)
		if skipped {
			w.writes = append(w.writes,
				write{group: r.group, done: func(error) {}, update: r.metaUpdate()})
		}
		w.writes = r.saveWrites(w.writes, out.Save, w.node.chunk)
	default:
		w.discardStaged(r)
		w.finish(r)
	}
}

// tell ends the calls whose outcome is known and notes a change of leader.
func (w *worker) tell(r *replica, out *group.Output) {
	for _, o := range out.Outcomes {
		w.conclude(r, o)
	}
	for _, rd := range out.Reads {
		if c, ok := rd.Token.(*call); ok {
			r.reads = append(r.reads, waitingRead{index: rd.Index, call: c})
		}
	}
	if len(out.Reads) > 0 {
		w.serveReads(r)
	}
	if out.Leader != nil {
		w.leaderChanged(r, *out.Leader)
	}
}

// conclude hands an outcome to whoever waits for it.
func (w *worker) conclude(r *replica, o group.Outcome) {
	switch t := o.Token.(type) {
	case *call:
		t.finish(group.Result{}, outcomeError(r, o.Err))
	case steerToken:
		w.changed(r, o.Err)
	}
}

// saved goes on with a step whose append is durable.
func (w *worker) saved(r *replica) {
	if !r.busy {
		return
	}
	w.finish(r)
	w.touch(r)
}

// finish lets out what had to wait for the append, and ends the step.
func (w *worker) finish(r *replica) {
	out := r.out
	r.out = group.Output{}
	r.busy = false
	w.node.unsaved.Add(-r.unsaved.saved())
	w.send(r, out.After)
	if out.Apply != nil {
		r.snap.passed += int64(out.Apply.Bytes)
		w.node.appliers.apply(r, out.Apply)
		r.answered = worthHolding(len(out.Apply.Tokens))
	}
	w.lookAtSkips(r)
	if out.Install != nil {
		w.snapshotInstalled(r, out.Install)
	}
	if out.Save != nil && out.Save.State != nil {
		w.stateChanged(r)
	}
	r.raft.Advance()
	if out.Removed {
		w.node.lifecycle.removed(r)
	}
}

// send addresses messages to the nodes of their receivers.
func (w *worker) send(r *replica, ms []*raftpb.Message) {
	for _, m := range ms {
		to := raftyard.ReplicaID(m.GetTo())
		nodeID := r.nodeOf(to)
		if nodeID == 0 || r.isLost(to) {
			w.node.metrics.messagesUnaddressed.Add(1)
			w.reportLost(r, m)
			continue
		}
		env := transport.Envelope{
			Group: r.group, Incarnation: r.incarnation, Epoch: r.meta.State.Descriptor.Epoch,
			From: r.endpoint(), To: transport.Endpoint{Node: nodeID, Replica: to}, Message: m,
		}
		if m.GetType() == raftpb.MsgSnap {
			w.sendSnapshot(r, env)
			continue
		}
		if !w.keepTidings(r, &env) {
			w.outgoing.add(env)
		}
	}
}

// reportLost tells raft of a snapshot that cannot be sent; it waits for word.
func (w *worker) reportLost(r *replica, m *raftpb.Message) {
	if m.GetType() == raftpb.MsgSnap {
		r.raft.ReportSnapshot(raftyard.ReplicaID(m.GetTo()), false)
	}
}

// applied serves the reads that waited for the state machine, and takes a
// snapshot when it is time.
func (w *worker) applied(r *replica) {
	r.appliedPosted.Store(false)
	w.serveReads(r)
	w.maybeSnapshot(r)
	w.touch(r) // it may have waited for the state machine
}

func (w *worker) serveReads(r *replica) {
	applied := r.applied.Load()
	kept := r.reads[:0]
	for _, wr := range r.reads {
		if wr.index > applied && !mutant.On(mutant.ReadUnapplied) {
			kept = append(kept, wr)
			continue
		}
		wr.call.finish(group.Result{Index: applied}, nil)
	}
	clear(r.reads[len(kept):])
	r.reads = kept
}
