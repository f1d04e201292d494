package check

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// Indexes and snapshots: rule 12.
func TestBounds(t *testing.T) {
	try(t, []breach{
		{"applies beyond what was handed out", Bounds, func(b *bench) {
			b.r(3).Applied = 4
			b.step(3)
		}},
		{"hands out what is not committed", Bounds, func(b *bench) {
			b.r(3).HandedTo = 4
			b.step(3)
		}},
		{"commits beyond its log", Bounds, func(b *bench) {
			b.r(3).Commit = 4
			b.step(3)
		}},
		{"begins its log beyond what is committed", Bounds, func(b *bench) {
			b.r(3).First = 5
			b.step(3)
		}},
		{"has a later term on disk", Bounds, func(b *bench) {
			b.log(3).term = 3
			b.r(3).Leader = 0
			b.step(3)
		}},
		{"cuts its log without a snapshot", Bounds, func(b *bench) {
			b.log(3).compact(threeVoters())
			b.log(3).snap = nil
			b.step(3)
		}},
		{"cuts its log behind the snapshot", Bounds, func(b *bench) {
			b.log(3).compact(threeVoters())
			b.log(3).snap = group.NewSnapshot(2, 2, group.Manifest{State: threeVoters()})
			b.log(3).start = 3
			b.step(3)
		}},
		{"has a snapshot of the wrong term", Bounds, func(b *bench) {
			b.log(3).compact(threeVoters())
			b.log(3).snap = group.NewSnapshot(3, 1, group.Manifest{State: threeVoters()})
			b.step(3)
		}},
		{"sends a snapshot of the wrong term", Bounds, func(b *bench) {
			m := message(raftpb.MsgSnap, 2, 0)
			m.Snapshot = group.NewSnapshot(2, 1, group.Manifest{State: threeVoters()})
			b.send(1, 2, m)
		}},
		{"sends a snapshot without a manifest", Bounds, func(b *bench) {
			m := message(raftpb.MsgSnap, 2, 0)
			m.Snapshot = group.NewSnapshot(2, 2, group.Manifest{State: threeVoters()})
			m.Snapshot.Data = []byte("x")
			b.send(1, 2, m)
		}},
		{"applies what is not committed", Bounds, func(b *bench) {
			b.c.Applied(b.identity(3), commands(4), results("done"))
		}},
		{"keeps a snapshot that cannot be read", Bounds, func(b *bench) {
			b.log(3).compact(threeVoters())
			b.log(3).snapErr = storage.ErrDamaged
			b.step(3)
		}},
		{"is durable beyond what it has applied", Bounds, func(b *bench) {
			b.c.MachineDurable(b.identity(3), 4)
		}},
		{"holds more than it may", Budgets, func(b *bench) { b.c.Measured("queue", 11, 10) }},
		{"gives back what it has not taken", Budgets, func(b *bench) { b.c.Measured("q", -1, 10) }},
	})
}

// State machines: rules 3, 9 and 11.
func TestApplied(t *testing.T) {
	try(t, []breach{
		{"applies twice", AppliedOnce, func(b *bench) { b.apply(3, 3) }},
		{"leaves one out", AppliedOnce, func(b *bench) {
			b.lag(4, 5)
			b.apply(3, 5)
		}},
		{"applies what others left out", AppliedOnce, func(b *bench) {
			b.c.group(groupKey{benchGroup, incarnation()}).commit = 9
			b.c.Applied(b.identity(1), commands(9), results("done"))
			b.none()
			b.c.Applied(b.identity(2), commands(8), results("done"))
		}},
		{"applies another command", AppliedOnce, func(b *bench) {
			b.lag(4)
			batch := commands(4)
			batch[0].Data = []byte("other")
			b.c.Applied(b.identity(3), batch, results("done"))
		}},
		{"applies a part", AppliedOnce, func(b *bench) {
			b.lag(4)
			batch := append(commands(4), commands(4)...)
			batch[1].Offset = 1
			b.c.Applied(b.identity(3), batch, append(results("done"), results("done")...))
		}},
		{"applies out of order", AppliedOnce, func(b *bench) {
			batch := commands(4)
			batch[0].Offset = 1
			b.c.group(groupKey{benchGroup, incarnation()}).commit = 9
			b.c.Applied(b.identity(3), batch, results("done"))
		}},
		{"forgets a result", AppliedOnce, func(b *bench) {
			b.c.Applied(b.identity(3), commands(4), nil)
		}},
		{"applies when it is closed", AppliedOnce, func(b *bench) {
			b.c.Crashed(3, LostNothing)
			b.c.Applied(b.identity(3), commands(4), results("done"))
		}},
		{"goes back by a restore", AppliedOnce, func(b *bench) { b.c.Restored(b.identity(3), 2) }},
		{"is where nobody was", AppliedOnce, func(b *bench) { b.c.Restored(b.identity(3), 9) }},
		{"applies again after a restart", AppliedOnce, func(b *bench) {
			b.restart(3, LostNothing)
			b.apply(3, 3)
		}},
		{"has lost what was durable", NoRegress, func(b *bench) {
			b.c.MachineDurable(b.identity(3), 3)
			b.c.Crashed(3, LostNothing)
			b.c.MachineOpened(b.identity(3), 2)
			b.c.Opened(3, b.nodes[3])
		}},
		{"answers differently", SameState, func(b *bench) {
			b.lag(4)
			b.c.Applied(b.identity(3), commands(4), results("refused"))
		}},
		{"has another hash", SameState, func(b *bench) {
			b.c.Hashed(b.identity(1), 3, 1)
			b.c.Hashed(b.identity(2), 3, 1)
			b.none()
			b.c.Hashed(b.identity(3), 3, 2)
		}},
		{"was never applied", AckedSurvives, func(b *bench) { b.ack(4, "\x04", "done") }},
		{"was another command", AckedSurvives, func(b *bench) { b.ack(3, "\x04", "done") }},
		{"had another result", AckedSurvives, func(b *bench) {
			b.ack(3, "\x03", "done")
			b.none()
			b.ack(3, "\x03", "refused")
		}},
	})
}

// lag has nodes 1 and 2 apply indexes that node 3 has in its log only.
func (b *bench) lag(indexes ...uint64) {
	for range indexes {
		index := b.replicate(1, 2, 3)
		b.commit(1, index)
		b.commit(2, index)
		b.r(3).Commit, b.r(3).HandedTo = index, index
		b.step(3)
	}
	b.none()
}

func (b *bench) ack(index uint64, data, result string) {
	b.c.Acked(Write{
		Group: benchGroup, Incarnation: incarnation(), Index: index,
		Data: []byte(data), Result: []byte(result),
	})
}

// Members: rule 8.
func TestMembership(t *testing.T) {
	four := descriptor(2, append(threeVoters().Descriptor.Members,
		group.Member{ID: 4, Node: 4, Role: group.Learner})...)
	take := func(b *bench, d group.Descriptor) {
		index := b.write(1)
		for _, n := range []raftyard.NodeID{1, 2, 3} {
			b.r(n).State = group.State{Index: index, Descriptor: d}
			b.step(n)
		}
	}
	with := func(d group.Descriptor, epoch uint64, change func(m []group.Member)) group.Descriptor {
		d = d.Clone()
		d.Epoch = epoch
		change(d.Members)
		return d
	}
	roles := func(a, b, c, d group.Role) func(m []group.Member) {
		return func(m []group.Member) { m[0].Role, m[1].Role, m[2].Role, m[3].Role = a, b, c, d }
	}
	const voter, learner = group.Voter, group.Learner
	joint := with(four, 3, roles(voter, voter, group.Outgoing, group.Incoming))

	t.Run("sound", func(t *testing.T) {
		b := newBench(t, Config{})
		take(b, four)
		take(b, joint)
		b.send(1, 4, message(raftpb.MsgHeartbeat, 2, 0))
		after := with(four, 4, roles(voter, voter, voter, voter))
		after.Members = append(after.Members[:2], after.Members[3])
		take(b, after)
		b.c.Sent(1, b.removed(4, 5), false)
		b.none()
	})
	try(t, []breach{
		{"differ at an index", Membership, func(b *bench) {
			take(b, four)
			b.r(3).State.Descriptor = with(four, 3, func(m []group.Member) { m[3].Node = 5 })
			b.step(3)
		}},
		{"are in force before they are committed", Membership, func(b *bench) {
			b.r(1).State = group.State{Index: b.replicate(1), Descriptor: four}
			b.step(1)
		}},
		{"are not those of the applied index", Membership, func(b *bench) {
			index := b.write(1)
			b.r(1).State = group.State{Index: index, Descriptor: four}
			b.step(1)
			b.r(2).Leader = 0
			b.step(2)
		}},
		{"change two voters at once", Membership, func(b *bench) {
			take(b, four)
			take(b, with(four, 3, roles(voter, voter, learner, voter)))
		}},
		{"are joint twice", Membership, func(b *bench) {
			take(b, four)
			take(b, joint)
			take(b, with(joint, 4, roles(group.Outgoing, voter, voter, voter)))
		}},
		{"begin a joint change with others", Membership, func(b *bench) {
			take(b, four)
			take(b, with(four, 3, roles(voter, learner, group.Outgoing, group.Incoming)))
		}},
		{"end a joint change with others", Membership, func(b *bench) {
			take(b, four)
			take(b, joint)
			take(b, with(four, 4, roles(voter, voter, voter, learner)))
		}},
		{"use an id again", Membership, func(b *bench) {
			take(b, four)
			three := with(four, 3, func([]group.Member) {})
			three.Members = three.Members[:3]
			take(b, three)
			take(b, with(four, 4, func([]group.Member) {}))
		}},
		{"keep the epoch", Membership, func(b *bench) {
			take(b, with(four, 1, func([]group.Member) {}))
		}},
		{"decide by one half only", Membership, func(b *bench) {
			take(b, four)
			take(b, with(four, 3, roles(group.Outgoing, voter, group.Outgoing, group.Incoming)))
			b.none()
			// Old 1, 2, 3; new 2, 4: all of the old half, and half of the new.
			b.commit(1, b.replicate(1, 2, 3))
		}},
		{"are older than the snapshot that is sent", Membership, func(b *bench) {
			take(b, four)
			m := message(raftpb.MsgSnap, 2, 0)
			m.Snapshot = group.NewSnapshot(4, 2, group.Manifest{State: threeVoters()})
			b.send(1, 2, m)
		}},
		{"are not in the snapshot's configuration", Membership, func(b *bench) {
			m := message(raftpb.MsgSnap, 2, 0)
			m.Snapshot = group.NewSnapshot(3, 2, group.Manifest{State: threeVoters()})
			m.Snapshot.Metadata.ConfState = four.ConfState()
			b.send(1, 2, m)
		}},
		{"have the one that is told it is removed", Membership, func(b *bench) {
			b.c.Sent(1, b.removed(1, 4), false)
		}},
		{"give out ids that the removed one is not below", Membership, func(b *bench) {
			take(b, four)
			env := b.removed(2, 5)
			env.To.Replica = 7
			b.c.Sent(1, env, false)
		}},
		{"are of an epoch that nobody has seen", Membership, func(b *bench) {
			b.c.Sent(1, b.removed(7, 4), false)
		}},
	})
}

// removed is a notice of node 1 that replica 3 is removed.
func (b *bench) removed(epoch uint64, next raftyard.ReplicaID) *transport.Envelope {
	env := b.envelope(1, 3, new(raftpb.Message))
	env.Message = nil
	env.Notice = &transport.Notice{
		Kind: transport.NoticeRemoved, Epoch: epoch, NextReplica: next,
	}
	return env
}

// TestOpenedToBeDeleted: the state machine of a destroyed replica is opened once more
// when its deletion was interrupted, and may have less then than it had.
func TestOpenedToBeDeleted(t *testing.T) {
	b := newBench(t, Config{})
	b.c.MachineDurable(b.identity(3), 3)
	b.c.Crashed(3, LostNothing)
	b.c.MachineOpened(b.identity(3), 0)
	gone := b.stored(3)
	gone.Tombstone = &storage.Tombstone{NextReplica: 4, Epoch: 2}
	b.nodes[3].Replicas, b.nodes[3].Stored = nil, []storage.Replica{gone}
	b.c.Opened(3, b.nodes[3])
	b.none()
}

// TestUnsynced: a log is needed behind what a state machine on disk has made durable, and
// only there.
func TestUnsynced(t *testing.T) {
	b := newBench(t, Config{})
	want := func(when string, last, want uint64) {
		t.Helper()
		if got := b.c.Unsynced(b.identity(3), last); got != want {
			t.Errorf("%s, Unsynced(%d) = %d, want %d", when, last, got, want)
		}
	}
	want("of a state machine that keeps nothing on disk", 70, 0)
	b.c.MachineDurable(b.identity(3), 2)
	want("durable up to 2", 70, 68)
	b.c.MachineDurable(b.identity(3), 3)
	want("durable up to 3", 70, 67)
	want("with a log behind which it is", 1, 0)
	b.c.Crashed(3, LostNothing)
	b.c.MachineOpened(b.identity(3), 0)
	want("after a start without a state machine on disk", 70, 0)
}
