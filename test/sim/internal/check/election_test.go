package check

import (
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// take has all replicas apply a change of members, which replica 1 leads.
func (b *bench) take(epoch uint64, roles ...group.Role) {
	b.t.Helper()
	st := group.State{Index: b.write(1), Descriptor: withRoles(epoch, roles...)}
	for _, n := range []raftyard.NodeID{1, 2, 3} {
		b.r(n).State = st
		b.step(n)
	}
	b.none()
}

// withRoles returns three members, replica n on node n.
func withRoles(epoch uint64, roles ...group.Role) group.Descriptor {
	d := threeVoters().Descriptor
	d.Epoch = epoch
	for i, role := range roles {
		d.Members[i].Role = role
	}
	return d
}

// change has replica 1 commit a change of members, which replica 2 has, too. It is
// being saved then.
func (b *bench) change(epoch uint64, roles ...group.Role) {
	b.t.Helper()
	index := b.replicate(1, 2)
	r := b.r(1)
	r.Commit, r.HandedTo = index, index
	r.State = group.State{Index: index, Descriptor: withRoles(epoch, roles...)}
	b.step(1)
	b.none()
}

// restartElected restarts node 1, whose replica has elected itself alone, and has
// committed all that it has, when it is first looked at.
func (b *bench) restartElected() {
	b.c.Crashed(1, LostNothing)
	r, l := b.r(1), b.log(1)
	b.c.MachineOpened(b.identity(1), 0)
	b.c.Restored(b.identity(1), r.Applied)
	l.term++
	l.vote, l.terms = 1, append(l.terms, l.term)
	r.Term, r.Vote, r.Role, r.Leader = l.term, 1, group.Leader, 1
	r.Last, r.Commit, r.HandedTo = l.last(), l.last(), l.last()
	b.c.Opened(1, b.nodes[1])
}

// Elections that are over when the replica is first looked at: rule 8.
func TestElectedBeforeSeen(t *testing.T) {
	const voter, learner, incoming = group.Voter, group.Learner, group.Incoming
	alone := func(b *bench) {
		b.take(2, voter, voter, learner)
		b.take(3, voter, learner, learner)
	}

	t.Run("under members of before", func(t *testing.T) {
		// The only voter adds others, and dies while that is saved. It comes back
		// with what it had saved, elects itself, and commits the change again.
		b := newBench(t, Config{})
		alone(b)
		b.change(4, voter, incoming, incoming)
		b.restartElected()
		b.none()
	})
	t.Run("under members of after", func(t *testing.T) {
		// The same the other way round: it is the only one when the change was saved.
		b := newBench(t, Config{})
		b.take(2, voter, voter, learner)
		b.change(3, voter, learner, learner)
		b.log(1).commit = b.r(1).Commit
		b.restartElected()
		b.none()
	})
	try(t, []breach{
		{"under no members at all", Membership, (*bench).restartElected},
		{"under members of before that it has applied", Membership, func(b *bench) {
			alone(b)
			b.change(4, voter, incoming, incoming)
			b.apply(1, b.r(1).Commit)
			b.none()
			b.restartElected()
		}},
		{"under members of before a durable change", Membership, func(b *bench) {
			alone(b)
			b.change(4, voter, incoming, incoming)
			b.log(1).commit = b.r(1).Commit
			b.restartElected()
		}},
		{"under members that it has had long ago", Membership, func(b *bench) {
			alone(b)
			b.take(4, voter, voter, learner)
			b.change(5, voter, voter, voter)
			b.restartElected()
		}},
		{"under members that only others have", Membership, func(b *bench) {
			b.take(2, voter, voter, learner)
			index := b.replicate(1, 2, 3)
			b.r(1).Commit = index // and is not handed out yet
			b.step(1)
			b.commit(2, index)
			b.r(2).State = group.State{
				Index: index, Descriptor: withRoles(3, voter, learner, learner),
			}
			b.step(2)
			b.none()
			b.restartElected()
		}},
		{"under members that came later", Membership, func(b *bench) {
			b.take(2, voter, voter, learner)
			b.c.Crashed(2, LostNothing)
			b.r(1).State = group.State{
				Index: b.log(1).last() + 2, Descriptor: withRoles(3, voter, learner, learner),
			}
			b.log(1).terms = append(b.log(1).terms, 3)
			b.restartElected()
		}},
	})
}
