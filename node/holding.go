package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/node/registry"
)

// A holding is what a node has of one incarnation of a group: a replica, or what is
// left of one, or nothing.
type holding struct {
	// Store is the data directory that this is of.
	Store string `json:"store,omitempty"`

	// Live: there is a replica, which may vouch for something now or later.
	Live bool `json:"live,omitempty"`

	// Other: another incarnation is here, or was here last. Whether this one was here
	// before it is not known.
	Other bool `json:"other,omitempty"`

	// Replica is the id of the replica, or of the last one; zero: none is known.
	Replica raftyard.ReplicaID `json:"replica,omitempty"`

	// Epoch, Next and Members are of the newest descriptor that it has applied. With no
	// members only the epoch counts: somebody else has told of it.
	Epoch   uint64             `json:"epoch,omitempty"`
	Next    raftyard.ReplicaID `json:"next,omitempty"`
	Members []MemberStatus     `json:"members,omitempty"`

	// Ahead are others that it may have vouched for when it was destroyed: those that it
	// had applied itself, and those that were in its log beyond that.
	Ahead []membership `json:"ahead,omitempty"`

	// Whole: there is no replica in this directory, and this is all that the last one, if
	// there was one, has ever had in its log of members from the newest on.
	Whole bool `json:"whole,omitempty"`

	// Stored counts what this node has stored of any incarnation of the group, but for
	// a tombstone: a replica, and what is still to be deleted of others.
	Stored int `json:"stored,omitempty"`
}

// A membership is a part of a descriptor.
type membership struct {
	Epoch   uint64         `json:"epoch"`
	Members []MemberStatus `json:"members"`
}

// A question asks for holdings.
type question struct {
	group       raftyard.GroupID
	incarnation raftyard.Incarnation

	// version is what the registry of a node that answers must have reached at least: it
	// knows then what the registry has decided until there, and what it says in its
	// answer that it has not got, it will not get. Zero: any.
	version uint64
}

func (q question) encode() []byte {
	b := wire.AppendUvarint(nil, uint64(q.group))
	b = wire.AppendID(b, q.incarnation)
	return wire.AppendUvarint(b, q.version)
}

// serveHolding answers another node.
func (n *Node) serveHolding(ctx context.Context, r *wire.Reader) ([]byte, error) {
	q := question{
		group: raftyard.GroupID(r.Uvarint()), incarnation: r.ID(), version: r.Uvarint(),
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return jsonAnswer(n.holding(ctx, q))
}

// holding returns what this node has.
func (n *Node) holding(ctx context.Context, q question) (holding, error) {
	if q.version > 0 {
		if err := n.awaitVersion(ctx, q.version); err != nil {
			return holding{}, err
		}
		// A replica that was about to be made is made now, or will never be.
		if err := n.lifecycle.settle(ctx); err != nil {
			return holding{}, err
		}
	}
	st := holding{Store: n.ownStore().String(), Stored: n.leftovers(q.group)}
	have, ok := n.store.Replica(q.group)
	if !ok {
		st.Whole = true
		return st, nil
	}
	if have.Tombstone == nil || !have.Tombstone.Purged || n.store.Remains(q.group) {
		st.Stored++
	}
	if st.Other = have.Incarnation != q.incarnation; st.Other {
		return st, nil
	}
	st.Replica = have.ID
	if t := have.Tombstone; t != nil {
		last, err := remainsIn(t)
		if err != nil {
			n.logger.Error("tombstone", groupAttr(q.group), errAttr(err))
		}
		st.tell(last)
		st.Whole = err == nil && !last.Blind
		return st, nil
	}
	st.Live = true
	if r := n.replica(q.group); r != nil && r.incarnation == q.incarnation {
		st.tell(remains{Descriptor: r.view.Load().State.Descriptor})
	}
	return st, nil
}

// tell puts what is left of a replica, or what it has applied, into the answer.
func (st *holding) tell(last remains) {
	st.Epoch, st.Next, st.Members = last.Epoch, last.NextReplica, memberStatuses(last.Descriptor)
	for _, d := range last.Ahead {
		st.Ahead = append(st.Ahead, membership{Epoch: d.Epoch, Members: memberStatuses(d)})
	}
}

// awaitVersion returns when this node's registry has reached a version, after the node
// has read it since its start.
func (n *Node) awaitVersion(ctx context.Context, version uint64) error {
	for !n.lifecycle.isFresh() || n.registry.Version() < version {
		if !n.world.sleep(ctx, pollEvery) {
			return fmt.Errorf("node %d: %w: its registry is at version %d, not at %d yet",
				n.cfg.ID, ErrNotReady, n.registry.Version(), version)
		}
	}
	return nil
}

// A survey is what the nodes have answered that may have to do with a group.
type survey struct {
	answers map[raftyard.NodeID]holding
	silent  map[raftyard.NodeID]error // those that have not, and why
}

// survey asks nodes how they stand, and those that they name, and so on.
func (n *Node) survey(ctx context.Context, q question, first []raftyard.NodeID) survey {
	s := survey{
		answers: make(map[raftyard.NodeID]holding),
		silent:  make(map[raftyard.NodeID]error),
	}
	for next := sortedSet(first); len(next) > 0; next = s.unasked() {
		n.surveyOnce(ctx, q, next, &s)
	}
	return s
}

// passOverRemoved takes those who were removed from the cluster out of those who are
// silent: nobody hears them, whatever they still have.
func (n *Node) passOverRemoved(s *survey) {
	maps.DeleteFunc(s.silent, func(id raftyard.NodeID, _ error) bool {
		node, ok := n.registry.Node(id)
		return ok && node.State == registry.NodeRemoved
	})
}

func (n *Node) surveyOnce(
	ctx context.Context, q question, nodes []raftyard.NodeID, s *survey,
) {
	var mu sync.Mutex
	asks := make([]func(), 0, len(nodes))
	for _, id := range nodes {
		asks = append(asks, func() {
			short, cancel := n.world.withTimeout(ctx, askPatience)
			defer cancel()
			st, err := n.askHolding(short, id, q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.silent[id] = err
			} else {
				s.answers[id] = st
			}
		})
	}
	n.world.all("ask what a node holds", asks)
}

func (n *Node) askHolding(
	ctx context.Context, at raftyard.NodeID, q question,
) (st holding, err error) {
	if at == n.cfg.ID {
		return n.holding(ctx, q)
	}
	err = n.askJSON(ctx, at, askHolding, q.encode(), &st)
	return st, err
}

// unasked returns the nodes that answers name and that were not asked.
func (s *survey) unasked() []raftyard.NodeID {
	var next []raftyard.NodeID
	for _, d := range s.memberships(0) {
		for _, m := range d.Members {
			_, answered := s.answers[m.Node]
			if _, silent := s.silent[m.Node]; !answered && !silent {
				next = append(next, m.Node)
			}
		}
	}
	return sortedSet(next)
}

// memberships returns all that answers tell of epochs from the given one on.
func (s *survey) memberships(from uint64) []membership {
	var list []membership
	for _, id := range slices.Sorted(maps.Keys(s.answers)) {
		st := s.answers[id]
		for _, d := range append([]membership{{st.Epoch, st.Members}}, st.Ahead...) {
			if d.Epoch >= from && len(d.Members) > 0 {
				list = append(list, d)
			}
		}
	}
	return list
}

// newest returns the newest epoch that somebody has applied and whose members are known.
func (s *survey) newest() (epoch uint64) {
	for _, st := range s.answers {
		if len(st.Members) > 0 {
			epoch = max(epoch, st.Epoch)
		}
	}
	return epoch
}

// running returns the nodes of which it is not known that they have no replica.
func (s *survey) running() []raftyard.NodeID {
	ids := slices.Collect(maps.Keys(s.silent))
	for id, st := range s.answers {
		if st.Live {
			ids = append(ids, id)
		}
	}
	return sortedSet(ids)
}

// anyLive reports whether somebody has a replica.
func (s *survey) anyLive() bool {
	for _, st := range s.answers {
		if st.Live {
			return true
		}
	}
	return false
}

// vouches reports whether a member's replica is gone, and its node tells all that it may
// have vouched for. It must be the directory that the replica was given to: another one
// does not know what it had logged. If a later replica of the same group was there, it
// has forgotten what the earlier one knew.
func (s *survey) vouches(m MemberStatus) bool {
	st, answered := s.answers[m.Node]
	return answered && st.Whole && st.isHome(m)
}

// canVouch reports whether vouches may be true when the group is deleted.
func (s *survey) canVouch(m MemberStatus) bool {
	st, answered := s.answers[m.Node]
	return answered && (st.Live && st.Replica == m.Replica || st.Whole && st.isHome(m))
}

// isHome reports whether the answer is from the directory of a replica, and no later
// replica has been there.
func (st *holding) isHome(m MemberStatus) bool {
	return st.Replica == m.Replica ||
		st.Replica < m.Replica && m.Store != "" && m.Store == st.Store
}

func sortedSet(ids []raftyard.NodeID) []raftyard.NodeID {
	return slices.Compact(sortedIDs(ids))
}
