package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/transport"
)

// A change is the members of a group from an index on.
type change struct {
	index   uint64
	members group.Descriptor
}

// checkMembers compares a replica's members with those that others have.
//
// Rule 8, [Membership]: the members on each replica are a function of its applied
// index.
func (c *Checker) checkMembers(s *replicaState, r *Replica) {
	if r.State.IsZero() {
		return
	}
	if r.State.Index != s.state.Index || r.State.Descriptor.Epoch != s.state.Descriptor.Epoch {
		c.noteChange(s, r.State, "has")
	}
	if newest, ok := s.group.changeAt(r.Applied); ok && newest.index > r.State.Index {
		c.fail(Membership, "%v has applied %d, and has the members of index %d instead of %d",
			s, r.Applied, r.State.Index, newest.index)
	}
}

// changeAt returns the newest change at or before an index.
func (g *groupState) changeAt(index uint64) (change, bool) {
	for _, ch := range slices.Backward(g.changes) {
		if ch.index <= index {
			return ch, true
		}
	}
	return change{}, false
}

// noteChange notes members and compares them with what is known.
func (c *Checker) noteChange(s *replicaState, st group.State, how string) {
	g := s.group
	at, found := slices.BinarySearchFunc(g.changes, st.Index, func(ch change, index uint64) int {
		return cmp.Compare(ch.index, index)
	})
	switch {
	case found && !g.changes[at].members.Equal(st.Descriptor):
		c.fail(Membership, "%v %s at index %d the members %s, others have %s", s, how, st.Index,
			describe(st.Descriptor), describe(g.changes[at].members))
		return
	case found:
		return
	case st.Index > g.commit:
		c.fail(Membership, "%v %s the members of index %d, but only %d is committed",
			s, how, st.Index, g.commit)
	}
	g.changes = slices.Insert(g.changes, at, change{st.Index, st.Descriptor.Clone()})
	if at > 0 {
		c.checkChange(s, g.changes[at-1], g.changes[at])
	}
	if at+1 < len(g.changes) {
		c.checkChange(s, g.changes[at], g.changes[at+1])
	}
}

// checkChange looks at two changes of which one follows the other.
//
// Rule 8, [Membership]: no two changes overlap, so that any two majorities that
// follow each other have a member in common; ids are never given out again.
func (c *Checker) checkChange(s *replicaState, was, is change) {
	from, to := was.members, is.members
	if to.Epoch > from.Epoch+1 {
		return // what lies between was not seen yet
	}
	bad := func(why string) {
		c.fail(Membership, "%v: from %s at %d to %s at %d: %s",
			s, describe(from), was.index, describe(to), is.index, why)
	}
	if to.Epoch != from.Epoch+1 {
		bad("the epoch does not rise")
	}
	for _, m := range to.Members {
		if _, stays := from.Member(m.ID); !stays && m.ID < from.NextReplica {
			bad(fmt.Sprintf("id %d was given out before", m.ID))
		}
	}
	if why := wrongStep(from, to); why != "" {
		bad(why)
	}
}

// wrongStep returns why the majorities of two descriptors may be apart, or nothing.
func wrongStep(from, to group.Descriptor) string {
	fromNew, toNew := votersOf(from, newVoter), votersOf(to, newVoter)
	switch {
	case from.IsJoint() && to.IsJoint():
		return "one joint change follows another"
	case from.IsJoint() && !slices.Equal(fromNew, toNew):
		return "a joint change ends with other voters than its new ones"
	case from.IsJoint():
		return ""
	case to.IsJoint() && !slices.Equal(fromNew, votersOf(to, oldVoter)):
		return "a joint change begins with other voters than there were"
	case !to.IsJoint() && differences(fromNew, toNew) > 1:
		return "more than one voter changes at once"
	}
	return ""
}

func newVoter(r group.Role) bool { return r == group.Voter || r == group.Incoming }

func oldVoter(r group.Role) bool {
	return r == group.Voter || r == group.Outgoing || r == group.Demoting
}

func votersOf(d group.Descriptor, votes func(group.Role) bool) []raftyard.ReplicaID {
	var ids []raftyard.ReplicaID
	for _, m := range d.Members {
		if votes(m.Role) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// differences counts the ids that are in one of two lists only.
func differences(a, b []raftyard.ReplicaID) int {
	n := 0
	for _, id := range a {
		if !slices.Contains(b, id) {
			n++
		}
	}
	return n + len(b) - (len(a) - n)
}

// decided reports whether those who agree are a majority of the members that were in
// force at some moment since the replica was last seen. An election is over before the
// new leader's first entry: members of that index or later were not in force yet.
func (c *Checker) decided(
	s *replicaState, r *Replica, before uint64, agrees func(raftyard.ReplicaID) bool,
) bool {
	for _, ch := range s.group.changes {
		if ch.index >= s.state.Index && ch.index <= r.State.Index && ch.index < before &&
			majority(ch.members, agrees) {
			return true
		}
	}
	return false
}

// noLimit is behind every index.
const noLimit = ^uint64(0)

// oldest returns the members with which a replica may go on at the least when its node
// has started again. What it had last was perhaps being saved when the node died, and
// is then applied once more, when it has been elected under the members of before. But
// what was durable is there, and no replica campaigns over a change that it knows to
// be committed.
func (s *replicaState) oldest() group.State {
	ch, _ := s.group.changeAt(max(s.promised.members, s.promised.commit))
	return group.State{Index: ch.index, Descriptor: ch.members}
}

// majority reports whether those who agree are a majority of the voters, in both
// halves of a joint configuration.
func majority(d group.Descriptor, agrees func(raftyard.ReplicaID) bool) bool {
	half := func(votes func(group.Role) bool) bool {
		yes, all := 0, 0
		for _, m := range d.Members {
			if votes(m.Role) {
				all++
				if agrees(m.ID) {
					yes++
				}
			}
		}
		return yes > all/2
	}
	return half(newVoter) && (!d.IsJoint() || half(oldVoter))
}

// checkDecision looks at what a leader has newly committed.
//
// Rule 8, [Membership]: a majority of the members in force, or of both halves, has
// acknowledged it. Rule 4, [DurableFirst]: the leader counts only when it has it
// durably. Entries of earlier terms are committed by one of its own.
func (c *Checker) checkDecision(s *replicaState, r *Replica) {
	if r.Role != group.Leader || r.Commit == s.seen.commit && r.Term == s.seen.term {
		return
	}
	if own, state := termAt(s.log, r.Commit); state == before || state == present && own != r.Term {
		return // it is of another term, and was known before
	}
	has := func(id raftyard.ReplicaID) bool { return s.group.has(id, r.Term, r.Commit, s) }
	if !c.decided(s, r, noLimit, has) {
		c.fail(Membership, "%v has committed entry %d in term %d without a majority of %s",
			s, r.Commit, r.Term, describe(r.State.Descriptor))
	}
	reign := s.group.reignOf(r.Term)
	reign.commit = max(reign.commit, r.Commit)
}

// has reports whether a replica has acknowledged an index in a leader's term.
func (g *groupState) has(
	id raftyard.ReplicaID, term, index uint64, leader *replicaState,
) bool {
	s := g.replicas[id]
	switch s {
	case nil:
		return false
	case leader:
		_, state := termAt(s.log, index)
		return state != beyond
	default:
		most, known := s.promised.acks.get(term)
		return !known || most >= index
	}
}

// checkNotice looks at a word to a replica that it is removed.
//
// Rule 8, [Membership]: it rests on members that were in force, and without the
// replica.
func (c *Checker) checkNotice(s *replicaState, env *transport.Envelope) {
	n := env.Notice
	if n.Kind != transport.NoticeRemoved {
		return
	}
	for _, ch := range s.group.changes {
		if ch.members.Epoch != n.Epoch {
			continue
		}
		if _, member := ch.members.Member(env.To.Replica); member {
			c.fail(Membership, "%v tells replica %d that it is removed, but it is in %s",
				s, env.To.Replica, describe(ch.members))
		}
		if env.To.Replica >= n.NextReplica || n.NextReplica > ch.members.NextReplica {
			c.fail(Membership, "%v tells replica %d that it is removed, with next id %d, not %d",
				s, env.To.Replica, n.NextReplica, ch.members.NextReplica)
		}
		return
	}
	c.fail(Membership, "%v speaks of epoch %d, which no replica has seen", s, n.Epoch)
}

// describe returns the members in a short form.
func describe(d group.Descriptor) string {
	members := make([]string, len(d.Members))
	for i, m := range d.Members {
		members[i] = fmt.Sprintf("%d@%d:%v", m.ID, m.Node, m.Role)
	}
	return fmt.Sprintf("epoch %d %v", d.Epoch, members)
}

// position returns index and term of an entry.
func position(index, term uint64) string { return fmt.Sprintf("%d in term %d", index, term) }
