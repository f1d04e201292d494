package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

const (
	// announceEvery is how often a node that waits to be let in says where it is.
	announceEvery = 5 * time.Second
	// lookAtReading is how often a node that reads the registry does what might help.
	lookAtReading = time.Second

	// The log says what a start waits for after so long, and then ever more rarely.
	firstComplaint = 3 * time.Second
	lastComplaint  = 5 * time.Minute
)

// housekeeping brings the node into step with the cluster once the system group
// answers: the registry is read, this node's addresses are in it, and the
// configured groups exist. After that it looks for replicas that were removed and
// have not been told. It begins anew if this node ceases to be a member of the system
// group.
func (n *Node) housekeeping() {
	ctx := n.running
	defer n.endReading()
	for n.settle(ctx) {
		n.ready.Store(true)
		n.noteChange()
		forget := 0
		for i := 1; n.lifecycle.isFresh() && n.world.sleep(ctx, n.ticks(strayTicks)); i++ {
			n.cleanStrays(ctx)
			n.noticeRefusal()
			if i >= forget && !n.forgetTombstones(ctx) {
				forget = i + forgetTicks/strayTicks
			}
		}
		n.ready.Store(false)
	}
}

// endReading waits for the end of a read that is under way when the node stops.
func (n *Node) endReading() {
	if n.reading != nil {
		n.reading.wait()
	}
}

// settle does what is to be done before the node is ready. It is false when the node
// stops before.
func (n *Node) settle(ctx context.Context) bool {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"read the registry", n.refresh},
		{"register the nodes", n.registerNodes},
		{"create the configured groups", n.createConfigured},
	}
	patience := complaints{next: n.world.now().Add(firstComplaint), pause: firstComplaint}
	for _, step := range steps {
		for err := step.do(ctx); err != nil; err = step.do(ctx) {
			n.waitsFor.Store(&startWait{step: step.name, err: err})
			if patience.due(n.world.now()) {
				n.complain(step.name, err)
			}
			n.learnWhereabouts(ctx)
			if !n.world.sleep(ctx, n.cfg.TickInterval) {
				return false
			}
		}
		n.waitsFor.Store(nil)
		n.logger.Debug("start-up step done", stepAttr(step.name))
	}
	return ctx.Err() == nil
}

// A startWait is what a start waits for: a step, and why it was not done the last time.
type startWait struct {
	step string
	err  error
}

func (w *startWait) String() string { return fmt.Sprintf("to %s: %v", w.step, w.err) }

// complaints say when to complain: soon, and then ever more rarely.
type complaints struct {
	next  time.Time
	pause time.Duration
}

func (c *complaints) due(now time.Time) bool {
	if now.Before(c.next) {
		return false
	}
	c.pause = min(2*c.pause, lastComplaint)
	c.next = now.Add(c.pause)
	return true
}

// complain says what a start waits for.
func (n *Node) complain(step string, err error) {
	if why := n.standing(); why != nil {
		n.logger.Warn("this node takes no part in the cluster", errAttr(why))
		return
	}
	n.logger.Warn("waiting for a majority of the system group", stepAttr(step),
		slog.Int("connected", n.countLive()), slog.Int("nodes", len(n.registry.Nodes())),
		errAttr(err))
}

// refresh reads the registry linearizably, once. From then on what it says may
// be used against what is on this node's disk.
func (n *Node) refresh(parent context.Context) error {
	err := n.readRegistry(parent)
	switch {
	case err == nil:
		n.outside.Store(nil)
		n.shunned.Store(nil)
		n.lifecycle.setFresh()
		return n.lifecycle.settle(parent)
	case isOutside(err) || !n.mayAnnounce():
		return err
	}
	told, refusal := n.announce(parent)
	if told || refusal != nil {
		n.letIn.Store(told)
		n.takeOutside(refusal)
	}
	return errors.Join(err, refusal)
}

// A reading is a read of the registry that is under way.
type reading struct {
	process
	begun time.Time
	err   error // when the process has returned
}

// readRegistry reads the registry linearizably, or says after lookAtReading that this takes
// longer: then it goes on, and the next call finds how it stands. If it began anew each time
// it would never be done where an answer takes longer than that, since the network is slow, or
// all nodes are busy with thousands of groups that have woken because this one has come.
func (n *Node) readRegistry(ctx context.Context) error {
	rd := n.reading
	if rd == nil {
		rd = &reading{begun: n.world.now()}
		rd.process = n.world.spawn("read the registry", func() {
			rd.err = View(ctx, n, raftyard.SystemGroup, Linearizable, n.checkStanding)
		})
		n.reading = rd
	}
	short, cancel := n.world.withTimeout(ctx, lookAtReading)
	defer cancel()
	if _, from := await[struct{}](n.world, nil, rd.done, short.Done()); from == fromSecond {
		return n.unanswered(rd)
	}
	n.reading = nil
	return rd.err
}

// unanswered says what a read of the registry waits for.
func (n *Node) unanswered(rd *reading) error {
	took := n.world.now().Sub(rd.begun).Round(time.Second)
	leader, ok := n.Leader(raftyard.SystemGroup)
	if !ok {
		return fmt.Errorf("%w: asked for %v", ErrNoLeader, took)
	}
	return fmt.Errorf("%w: node %d, which leads, has not answered for %v", ErrTimeout, leader, took)
}

// mayAnnounce reports whether this node shall tell where it is. One that waits to be
// let in does not do so all the time: each time is an entry in the log.
func (n *Node) mayAnnounce() bool {
	if n.founding.waits.Load() && !n.isLate() {
		return false
	}
	if n.belongs() {
		return true
	}
	now := n.world.now()
	if n.countLive() == 1 || now.Before(n.announceNext) {
		return false
	}
	n.announceNext = now.Add(announceEvery)
	return true
}

// belongs reports whether this node is a member of the cluster by itself: one of those
// that it was founded with, or one that has been let in.
func (n *Node) belongs() bool {
	r := n.replica(raftyard.SystemGroup)
	return n.cfg.founds() || r != nil && r.view.Load().initialized()
}

// announce tells the system group where this node is, by requests. It is for a
// node that has moved: those that it reaches do not reach it, so that its own
// replica hears of no leader, and cannot pass anything on to one; where it does not
// reach the leader either, another node does. It reports whether a node took it, or
// returns what one had against it. Nobody becomes a member of the cluster by that.
func (n *Node) announce(ctx context.Context) (told bool, refusal error) {
	ctx, cancel := n.world.withTimeout(ctx, time.Second)
	defer cancel()
	set := registry.SetNode{
		Node: n.self(), Starts: n.store.Identity().Starts, IfPresent: !n.belongs(), Sparse: true,
		Late: n.founding.waits.Load(),
	}
	p := group.Proposal{ID: n.newMessageID(), Data: registry.EncodeSetNode(set)}
	tried := map[raftyard.NodeID]bool{0: true, n.cfg.ID: true}
	next := n.registry.Nodes()
	for len(next) > 0 && ctx.Err() == nil {
		to := next[0].ID
		next = next[1:]
		if tried[to] {
			continue
		}
		tried[to] = true
		res, err := n.proposeAt(ctx, to, askPropose, raftyard.SystemGroup, p)
		nl, ok := errors.AsType[*NotLeaderError](err)
		switch {
		case !ok || nl.Leader == 0:
		case n.liveNodes()[nl.Leader]:
			next = slices.Insert(next, 0, registry.Node{ID: nl.Leader})
		default: // both may have moved, and know nothing of each other
			res, err = n.proposeAt(ctx, to, askThrough, raftyard.SystemGroup, p)
		}
		if err == nil {
			err = n.answered(res)
			return err == nil, err
		}
		// Saying it twice does no harm: a further node may be asked after any error.
		if errors.Is(err, ErrInvalid) || errors.Is(err, ErrNodeRemoved) {
			refusal = err // such as: this directory is not the one that is known
		}
	}
	return false, refusal
}

// answered returns what the registry had against an announcement, or nil.
func (n *Node) answered(res group.Result) error {
	out, err := registry.DecodeResult(res.Data)
	if err != nil || out.Code == registry.OK || out.Code == registry.Created {
		return err
	}
	return n.refusedBy(out)
}

// self is what this node's configuration says of itself.
func (n *Node) self() registry.Node {
	p, id := n.cfg.self(), n.store.Identity()
	return registry.Node{
		ID: p.ID, Peer: p.Addr, HTTP: p.HTTP, Labels: p.Labels,
		Store: raftyard.StoreID(id.Store), Boot: id.Boot,
	}
}
