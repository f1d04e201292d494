package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/wire"
)

// Consistency says how fresh a read must be.
type Consistency = group.Consistency

// The consistencies of reads; see [group.Consistency].
const (
	Linearizable = group.Linearizable
	Stale        = group.Stale
)

const (
	minRetry = 5 * time.Millisecond
	maxRetry = 200 * time.Millisecond
)

// Propose has a command applied by a group and returns the state machine's
// result. Any node may propose, with or without a replica: the command goes to
// the group's leader, and waits for one until ctx ends.
//
// On an error, [NotApplied] tells whether the command certainly has no effect;
// otherwise the error is [ErrUnknownOutcome], perhaps with another kind beside it
// ([ErrFaulty] when applying it broke the state machine), so ask for that first.
// A leader on a node without a state machine for the group cannot tell the result: the
// command goes through another member then, and waits for one; see [ErrNoState].
//
// Propose repeats only what certainly was not logged. cmd may be empty; it must not
// be modified afterwards, also after an error.
func (n *Node) Propose(ctx context.Context, g raftyard.GroupID, cmd []byte) (group.Result, error) {
	p := group.Proposal{ID: n.newMessageID(), Data: cmd}
	limit := n.limitOf(ctx)
	began := n.world.now()
	res, done, err := n.proposeAsLeader(ctx, limit, g, p)
	if !done {
		res, err = n.proposeAnywhere(ctx, n.left(limit, began), g, p)
	}
	n.metrics.count(outcomeOf(err))
	return res, err
}

// proposeAsLeader proposes a command if this node leads the group, as far as it knows, which
// is the short way. It is not done if another way may help, and the command has certainly not
// been logged.
func (n *Node) proposeAsLeader(
	ctx context.Context, limit time.Duration, g raftyard.GroupID, p group.Proposal,
) (res group.Result, done bool, err error) {
	if to, _ := n.Leader(g); to != n.cfg.ID {
		return res, false, nil
	}
	if err = ctx.Err(); err != nil {
		return res, false, err
	}
	r, err := n.serving(g)
	if err != nil {
		return res, false, err
	}
	c := newCall(r)
	if err = c.propose(p); err != nil {
		return res, true, err
	}
	res, err = c.waitFor(ctx, limit)
	return res, !n.retryable(g, n.cfg.ID, err), err
}

// proposeAnywhere proposes a command wherever that is possible.
func (n *Node) proposeAnywhere(
	ctx context.Context, limit time.Duration, g raftyard.GroupID, p group.Proposal,
) (res group.Result, err error) {
	ctx, cancel := n.withLimit(ctx, limit)
	defer cancel()
	err = n.atState(ctx, g, func(to raftyard.NodeID, through bool) (err error) {
		switch {
		case to == n.cfg.ID && through:
			res, err = n.proposeHere(ctx, here(g), p)
		case to == n.cfg.ID:
			res, err = n.proposeLocal(ctx, here(g), p)
		case through:
			res, err = n.proposeAt(ctx, to, askThrough, g, p)
		default:
			res, err = n.proposeAt(ctx, to, askPropose, g, p)
		}
		return err
	})
	return res, err
}

// proposeLocal proposes through this node's replica.
func (n *Node) proposeLocal(
	ctx context.Context, at address, p group.Proposal,
) (group.Result, error) {
	return n.proposeWithin(ctx, 0, at, p)
}

// proposeAsked is proposeLocal for another node.
func (n *Node) proposeAsked(
	ctx context.Context, at address, p group.Proposal,
) (group.Result, error) {
	return n.proposeWithin(ctx, n.answerWithin(ctx), at, p)
}

// proposeWithin is proposeLocal for so long at most, unless that is zero.
func (n *Node) proposeWithin(
	ctx context.Context, limit time.Duration, at address, p group.Proposal,
) (group.Result, error) {
	r, err := n.servingAt(at)
	if err != nil {
		return group.Result{}, err
	}
	c := newCall(r)
	if err := c.propose(p); err != nil {
		return group.Result{}, err
	}
	return c.waitFor(ctx, limit)
}

// propose queues the command of which the call is.
func (c *call) propose(p group.Proposal) error {
	p.Token = c
	if !c.r.worker.box.propose(proposal{r: c.r, p: p}) {
		c.r.worker.node.metrics.refuse(workerQueueLimit)
		return fmt.Errorf("group %d: %w", c.r.group, ErrOverloaded)
	}
	return nil
}

// proposeAt sends the command to the node that is believed to lead, or to one that has it
// proposed.
func (n *Node) proposeAt(
	ctx context.Context, to raftyard.NodeID, kind uint8, g raftyard.GroupID, p group.Proposal,
) (group.Result, error) {
	at, err := n.address(g)
	if err != nil {
		return group.Result{}, err
	}
	body := at.append(make([]byte, 0, len(p.Data)+64))
	body = wire.AppendID(body, p.ID)
	body = wire.AppendBytes(body, p.Data)
	answer, err := n.ask(ctx, to, kind, body)
	if err != nil {
		return group.Result{}, err
	}
	r := wire.NewReader(answer)
	res := group.Result{Index: r.Uvarint(), Data: r.Bytes()}
	if err := r.Close(); err != nil {
		return group.Result{}, fmt.Errorf("%w: answer of node %d: %w", ErrUnknownOutcome, to, err)
	}
	return res, nil
}

// serving returns this node's replica if it takes requests. It does not before the
// node has read the registry: the group may be deleted, and its id another group's by
// now, and the replica would neither know nor need anybody to go on.
func (n *Node) serving(g raftyard.GroupID) (*replica, error) {
	r := n.replica(g)
	switch {
	case g != raftyard.SystemGroup && !n.lifecycle.isSwept():
		return nil, fmt.Errorf("group %d: node %d: %w: it has not read the registry yet",
			g, n.cfg.ID, ErrNotReady)
	case n.isClosing() && g != raftyard.SystemGroup:
		return nil, fmt.Errorf("%w: node %d", ErrClosed, n.cfg.ID)
	case r == nil:
		return nil, fmt.Errorf("group %d: %w", g, ErrNoReplica)
	case !r.serving():
		return nil, fmt.Errorf("group %d: %w", g, r.goneReason())
	case !r.view.Load().initialized():
		return nil, fmt.Errorf("group %d: %w: %w", g, ErrNoReplica, errNoState)
	}
	return r, nil
}

// atLeader calls try with the node that leads the group, as far as is known,
// until try succeeds, or fails in a way that trying again cannot help or might
// repeat an effect, or ctx ends.
func (n *Node) atLeader(
	ctx context.Context, g raftyard.GroupID, try func(to raftyard.NodeID) error,
) error {
	wait := minRetry
	var avoid raftyard.NodeID
	var last error
	for {
		to, err := n.leaderOrMember(g, avoid)
		if errors.Is(err, ErrGroupNotFound) {
			// This node's copy of the registry may be behind.
			if err = n.confirmMissing(ctx, g); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if to != 0 {
			if err = try(to); !n.retryable(g, to, err) {
				return err
			}
			last, avoid = err, to
		}
		if leader, ok := n.Leader(g); ok && leader != to {
			wait = minRetry // somebody else: no reason to wait long
		}
		if !n.world.sleep(ctx, wait/2+time.Duration(n.world.roll(int64(wait)))) {
			return n.gaveUp(ctx, g, last)
		}
		wait = min(2*wait, maxRetry)
	}
}

// confirmMissing returns nil if the registry, read linearizably, has the group.
func (n *Node) confirmMissing(ctx context.Context, g raftyard.GroupID) error {
	_, err := n.freshRecord(ctx, g)
	if err == nil || errors.Is(err, ErrGroupNotFound) {
		return err
	}
	return fmt.Errorf("group %d: %w: the registry cannot be read: %w", g, ErrNotReady, err)
}

// gaveUp is the error of a request that found no leader in time.
func (n *Node) gaveUp(ctx context.Context, g raftyard.GroupID, last error) error {
	if errors.Is(last, ErrOverloaded) || errors.Is(last, ErrNotReady) ||
		errors.Is(last, ErrNoState) {
		return fmt.Errorf("group %d: %w", g, last) // it is known why
	}
	err := fmt.Errorf("group %d: %w: %w", g, ErrNoLeader, context.Cause(ctx))
	if last != nil && !errors.Is(last, context.DeadlineExceeded) {
		err = fmt.Errorf("%w; the last attempt: %s", err, last.Error())
	}
	return err
}

// retryable reports whether a request that ended with err certainly had no
// effect and may do better elsewhere or later. It also learns who leads.
func (n *Node) retryable(g raftyard.GroupID, to raftyard.NodeID, err error) bool {
	if err == nil {
		if to != n.cfg.ID {
			n.hints.set(g, to)
		}
		return false
	}
	if !NotApplied(err) {
		n.hints.set(g, 0)
		return mutant.On(mutant.ResendUnknown)
	}
	if nl, ok := errors.AsType[*NotLeaderError](err); ok {
		n.hints.set(g, nl.Leader)
		return true
	}
	if errors.Is(err, ErrNoState) {
		return true // it leads all the same
	}
	n.hints.set(g, 0)
	if _, ok := errors.AsType[*unreachableError](err); ok {
		return true
	}
	// ErrClosed, ErrFaulty: that node is going; another will lead. ErrNotReady: it comes.
	return errors.Is(err, ErrNoReplica) || errors.Is(err, ErrDropped) ||
		errors.Is(err, ErrNotReady) ||
		(to != n.cfg.ID && (errors.Is(err, ErrClosed) || errors.Is(err, ErrFaulty)))
}

// leaderOrMember returns the node to try: the leader if one is known, or else
// some member, which will know. Zero: nobody to try now. An error is final.
func (n *Node) leaderOrMember(
	g raftyard.GroupID, avoid raftyard.NodeID,
) (raftyard.NodeID, error) {
	if n.isClosing() {
		return 0, fmt.Errorf("%w: node %d", ErrClosed, n.cfg.ID)
	}
	r := n.replica(g)
	own := r != nil && r.serving() && r.view.Load().initialized()
	held := own && n.isHeldByDisk()
	if held { // it notes no new term before there is space, and hears of no new leader until then
		if leader, ok := n.hints.get(g); ok && leader != avoid {
			return leader, nil
		}
	}
	if leader, ok := n.Leader(g); ok && (!held || leader != avoid) {
		return leader, nil
	}
	if !held && (own || g == raftyard.SystemGroup) {
		return 0, nil // our own replica will hear of a leader, or there will be one
	}
	members, err := n.whoMayKnow(g, r)
	if err != nil {
		return 0, err
	}
	members = whomToAsk(members, n.cfg.ID, avoid)
	if len(members) == 0 {
		return 0, n.localFault(g)
	}
	return members[n.world.roll(int64(len(members)))], nil
}

// whomToAsk returns the members other than this node, and than the one to avoid if there
// is another. It reuses the slice.
func whomToAsk(members []raftyard.NodeID, self, avoid raftyard.NodeID) []raftyard.NodeID {
	slices.Sort(members)
	members = slices.Compact(members)
	members = slices.DeleteFunc(members, func(id raftyard.NodeID) bool { return id == self })
	return butNot(members, avoid)
}

// butNot takes a node out of a list in which none is twice, unless it is the only one: who
// was of no use a moment ago may be now, and is better than nobody.
func butNot(nodes []raftyard.NodeID, avoid raftyard.NodeID) []raftyard.NodeID {
	if len(nodes) < 2 {
		return nodes
	}
	return slices.DeleteFunc(nodes, func(id raftyard.NodeID) bool { return id == avoid })
}

// whoMayKnow returns the nodes that have, or had, a member of the group. r is this node's
// replica, or nil.
func (n *Node) whoMayKnow(g raftyard.GroupID, r *replica) ([]raftyard.NodeID, error) {
	var members []raftyard.NodeID
	if g != raftyard.SystemGroup {
		rec, ok := n.registry.Group(g)
		if !ok || rec.Deleted {
			return nil, fmt.Errorf("group %d: %w", g, ErrGroupNotFound)
		}
		members = slices.Clone(rec.Voters)
		if rec.Seed != 0 && !slices.Contains(members, rec.Seed) {
			members = append(members, rec.Seed)
		}
	}
	if r != nil {
		for _, m := range r.view.Load().State.Descriptor.Members {
			members = append(members, m.Node)
		}
	}
	return members, nil
}

// localFault returns why this node's replica is stopped, if it is.
func (n *Node) localFault(g raftyard.GroupID) error {
	if r := n.replica(g); r != nil {
		return r.fault()
	}
	return nil
}

// Leader returns the node that leads a group, as far as this node knows.
func (n *Node) Leader(g raftyard.GroupID) (raftyard.NodeID, bool) {
	if r := n.replica(g); r != nil && r.serving() {
		if v := r.view.Load(); v.initialized() {
			return v.LeaderNode, v.LeaderNode != 0
		}
	}
	return n.hints.get(g)
}

// leaderHints remembers who leads the groups that have no replica here.
type leaderHints struct {
	mu sync.RWMutex
	m  map[raftyard.GroupID]raftyard.NodeID
}

func (h *leaderHints) get(g raftyard.GroupID) (raftyard.NodeID, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	id, ok := h.m[g]
	return id, ok
}

// set learns a leader; zero forgets it.
func (h *leaderHints) set(g raftyard.GroupID, leader raftyard.NodeID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if leader == 0 {
		delete(h.m, g)
		return
	}
	if h.m == nil {
		h.m = make(map[raftyard.GroupID]raftyard.NodeID)
	}
	h.m[g] = leader
}
