package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/transport"
)

const (
	// maxSnapshotQueue bounds the snapshots that wait to be sent. More are
	// reported as failed; raft asks again.
	maxSnapshotQueue = 1024
	// snapshotTimeout ends a transfer that gets nowhere; the transport ends one
	// that stalls much earlier.
	snapshotTimeout = time.Hour
)

// A sendJob is a snapshot that raft wants a follower to have, or a state that a replica
// without a state machine has asked for.
type sendJob struct {
	r   *replica
	env transport.Envelope

	file  string // that a log-only replica sends; empty: the state is taken now
	check fileCheck

	told  chan error // holds one; nil: raft hears how it ends
	least uint64     // the index that the state must have reached
}

// snapshotSender sends snapshots from a fixed number of goroutines. The state
// machine's view is taken only when its turn comes.
type snapshotSender struct {
	node   *Node
	queue  chan *sendJob
	cancel context.CancelFunc
	procs  processes
}

func newSnapshotSender(n *Node, senders int) *snapshotSender {
	ctx, cancel := context.WithCancel(context.Background())
	s := &snapshotSender{node: n, queue: make(chan *sendJob, maxSnapshotQueue), cancel: cancel}
	for range senders {
		s.procs = append(s.procs, n.world.spawn("sender", func() { s.run(ctx) }))
	}
	return s
}

func (s *snapshotSender) close() {
	s.cancel()
	s.procs.wait()
}

func (s *snapshotSender) run(ctx context.Context) {
	for {
		j, from := await(s.node.world, s.queue, ctx.Done(), nil)
		if from != fromValues {
			return
		}
		s.send(ctx, j)
	}
}

// sendSnapshot takes a MsgSnap out of the stream of messages. An empty state
// travels in the message itself; any other as a stream of its own.
func (w *worker) sendSnapshot(r *replica, env transport.Envelope) {
	to := env.To.Replica
	manifest, err := group.DecodeManifest(env.Message.GetSnapshot().GetData())
	switch {
	case err != nil:
		r.raft.ReportSnapshot(to, false)
		w.node.logger.Error("own snapshot manifest", groupAttr(r.group), errAttr(err))
	case manifest.Empty:
		w.outgoing.add(env)
		// Raft must not wait for word of a message that may be lost: from here
		// it probes, and sends the snapshot again if that shows it is needed.
		r.raft.ReportSnapshot(to, true)
	default:
		j := &sendJob{r: r, env: env}
		if r.machine.logOnly.Load() && !w.offerOwn(r, j) {
			return
		}
		select {
		case w.node.sender.queue <- j:
			r.sending++
		default:
			w.node.metrics.refuse(snapshotSendLimit)
			r.raft.ReportSnapshot(to, false)
		}
	}
}

// send streams one snapshot and tells raft, or who asked for it, once, how that ended.
func (s *snapshotSender) send(ctx context.Context, j *sendJob) {
	r := j.r
	err := s.stream(ctx, j)
	if err != nil {
		s.node.metrics.snapshotsFailed.Add(1)
		if !errors.Is(err, context.Canceled) {
			s.node.logger.Warn("snapshot not delivered; it will be tried again",
				groupAttr(r.group), nodeAttr(j.env.To.Node), errAttr(err))
		}
	} else {
		s.node.metrics.snapshotsSent.Add(1)
	}
	if j.told != nil {
		j.told <- err
		return
	}
	r.worker.box.control(func() {
		r.sending--
		r.pins.remove(j)
		r.worker.guard(r, "report a snapshot", func() {
			if err == nil {
				r.follow(j.env.To.Replica, j.index())
			}
			switch {
			case errors.Is(err, errSource):
				r.worker.sourceFailed(r, j.env.To.Replica, err)
			case err == nil || !mutant.On(mutant.SnapshotLimbo):
				r.raft.ReportSnapshot(j.env.To.Replica, err == nil)
			}
			if err == nil && j.file == "" {
				r.sourceWorks()
			}
			if errors.Is(err, errRotten) {
				r.worker.ownRotten(r, j.file)
			}
			r.worker.touch(r)
		})
	})
}

// index is that of the snapshot which raft wants to be sent.
func (j *sendJob) index() uint64 { return j.env.Message.GetSnapshot().GetMetadata().GetIndex() }

func (s *snapshotSender) stream(ctx context.Context, j *sendJob) error {
	ctx, cancel := s.node.world.withTimeout(ctx, snapshotTimeout)
	defer cancel()
	if j.told == nil {
		j.r.pins.add(j, j.index()) // until raft has heard how it ends
	}
	content, snap, err := s.content(ctx, j)
	if err != nil {
		return err
	}
	env := j.env
	env.Message = &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(),
		To:   env.Message.To,
		From: env.Message.From,
		// What is sent aside from raft is in no term of a leader.
		Term:     new(cmp.Or(env.Message.GetTerm(), snap.GetMetadata().GetTerm())),
		Context:  env.Message.GetContext(),
		Snapshot: snap,
	}
	source := &sourced{Snapshot: content}
	err = s.node.transport.SendSnapshot(ctx, env, source)
	if source.fault != nil {
		err = source.fault
	}
	if cerr := content.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close snapshot: %w", cerr)
	}
	return err
}

// content returns what is to be sent, and the snapshot that says what it is.
func (s *snapshotSender) content(
	ctx context.Context, j *sendJob,
) (group.Snapshot, *raftpb.Snapshot, error) {
	r := j.r
	if j.file != "" {
		file, err := s.node.openOwn(j)
		return file, j.env.Message.GetSnapshot(), err
	}
	content, at, err := s.node.viewOf(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	if !r.serving() { // it may have gone while the view was on its way
		err = r.goneReason()
	} else if j.told != nil {
		err = j.fits(at)
	}
	if err != nil {
		return nil, nil, errors.Join(err, content.Close())
	}
	if mutant.On(mutant.SnapshotMembers) {
		at.state = oldState(r)
	}
	if mutant.On(mutant.SnapshotTerm) {
		at.term = r.view.Load().Term
	}
	return content, s.node.newSnapshot(at, r.machine.size()), nil
}

// viewOf gets a state machine's view of its state between two applies, so that
// the log index that it is the state of is known.
func (n *Node) viewOf(ctx context.Context, r *replica) (group.Snapshot, position, error) {
	h := &handoff{got: make(chan taken, 1)}
	n.appliers.add(r, task{
		run: func(m *machine) {
			if !r.serving() {
				h.deliver(taken{err: r.goneReason()})
				return
			}
			if m.between() {
				h.deliver(taken{err: errBetween})
				return
			}
			s, err := m.snapshot()
			if err != nil {
				err = fmt.Errorf("%w: %w", errSource, err)
			}
			if !h.deliver(taken{s: s, at: m.position, err: err}) && s != nil {
				n.closeSnapshot(r, s)
			}
		},
		drop: func(reason error) { h.deliver(taken{err: reason}) },
	})
	t, from := await(n.world, h.got, r.gone, ctx.Done())
	var err error
	switch from {
	case fromValues:
		return t.s, t.at, t.err
	case fromFirst:
		err = r.goneReason()
	case fromSecond:
		err = ctx.Err()
	}
	if t, ok := h.leave(); ok && t.s != nil {
		n.closeSnapshot(r, t.s)
	}
	return nil, position{}, err
}

func (n *Node) closeSnapshot(r *replica, s group.Snapshot) {
	if err := s.Close(); err != nil {
		n.logger.Warn("close snapshot", groupAttr(r.group), errAttr(err))
	}
}

// taken is a state machine's view and what it is the view of.
type taken struct {
	s   group.Snapshot
	at  position
	err error
}

// handoff passes a view from an applier to somebody who may not wait for it any
// more; then it must be given back.
type handoff struct {
	got chan taken // holds one

	mu   sync.Mutex
	left bool
}

// deliver reports whether somebody will take t.
func (h *handoff) deliver(t taken) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left {
		return false
	}
	h.got <- t
	return true
}

// leave ends the wait and returns what was delivered before, if anything was.
func (h *handoff) leave() (taken, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = true
	select {
	case t := <-h.got:
		return t, true
	default:
		return taken{}, false
	}
}

// newMessageID is a random id for a command, see [group.CommandID].
func (n *Node) newMessageID() group.CommandID { return group.CommandID(n.world.newID()) }

// reservedID reports whether raft keeps the id for itself.
func reservedID(id raftyard.ReplicaID) bool {
	return id == 0 || uint64(id) == raft.LocalAppendThread || uint64(id) == raft.LocalApplyThread
}
