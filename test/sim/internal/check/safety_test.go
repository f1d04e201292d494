package check

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// TestSound has a cluster do everything that is allowed, and nothing may be said.
func TestSound(t *testing.T) {
	b := newBench(t, Config{})
	b.write(1)
	b.elect(2, 3) // another leader, and a restart of every node
	b.write(2)
	for node := range b.nodes {
		b.restart(node, LostNothing)
	}
	b.elect(3, 4)
	last := b.write(3)

	// A leader's own entries are committed before its disk has them.
	for _, n := range b.others(3) {
		b.log(n).terms = append(b.log(n).terms, 4)
		b.r(n).Last++
		b.step(n)
		b.send(n, 3, message(raftpb.MsgAppResp, 4, last+1))
	}
	b.r(3).Last++
	b.commit(3, last+1)
	b.log(3).terms = append(b.log(3).terms, 4)
	b.step(3)

	// What was acknowledged and not committed is replaced by a later leader.
	b.log(1).terms = append(b.log(1).terms, 4)
	b.r(1).Last++
	b.step(1)
	b.send(1, 3, message(raftpb.MsgAppResp, 4, last+2))
	b.vote(1, 2, 5)
	b.log(1).terms[len(b.log(1).terms)-1] = 5
	b.step(1)
	b.restart(1, LostNothing)

	// The log is cut behind a snapshot, and a removed replica leaves a tombstone.
	b.log(1).compact(threeVoters())
	b.r(1).First = 4
	b.step(1)
	b.nodes[2].Replicas = nil
	b.nodes[2].Stored[0].Tombstone = &storage.Tombstone{NextReplica: 4, Epoch: 2}
	b.step(2)
	b.none()
}

// Votes, leaders and terms: rules 1 and 5.
func TestLeaders(t *testing.T) {
	try(t, []breach{
		{"two leaders", OneLeader, func(b *bench) {
			b.r(2).Role, b.r(2).Leader = group.Leader, 2
			b.step(2)
		}},
		{"sends as leader of another's term", OneLeader, func(b *bench) {
			b.send(2, 3, message(raftpb.MsgHeartbeat, 2, 0))
		}},
		{"follows another leader", OneLeader, func(b *bench) {
			b.r(2).Leader = 3
			b.step(2)
		}},
		{"leads without votes", Membership, func(b *bench) {
			b.vote(2, 2, 3)
			b.r(2).Role, b.r(2).Leader = group.Leader, 2
			b.step(2)
		}},
		{"counts a vote of its own that is not durable", Membership, func(b *bench) {
			b.vote(3, 2, 3)
			b.send(3, 2, message(raftpb.MsgVoteResp, 3, 0))
			b.vote(2, 0, 3)
			b.r(2).Role, b.r(2).Leader = group.Leader, 2
			b.step(2)
		}},
		{"leads without what was committed", AckedSurvives, func(b *bench) {
			index := b.replicate(1, 2)
			b.commit(1, index)
			b.vote(2, 3, 3)
			b.send(2, 3, message(raftpb.MsgVoteResp, 3, 0))
			b.vote(3, 3, 3)
			b.r(3).Role, b.r(3).Leader = group.Leader, 3
			b.step(3)
		}},
		{"votes twice", NoRegress, func(b *bench) {
			b.vote(3, 2, 3)
			b.send(3, 2, message(raftpb.MsgVoteResp, 3, 0))
			b.vote(3, 1, 3)
			b.send(3, 1, message(raftpb.MsgVoteResp, 3, 0))
		}},
		{"votes for another after a restart", NoRegress, func(b *bench) {
			b.vote(3, 2, 3)
			b.send(3, 2, message(raftpb.MsgVoteResp, 3, 0))
			b.log(3).vote = 0
			b.restart(3, LostNothing)
		}},
		{"forgets its term", NoRegress, func(b *bench) {
			b.log(3).term = 1
			b.restart(3, LostNothing)
		}},
		{"forgets a term that it has only spoken of", NoRegress, func(b *bench) {
			b.log(3).term = 3
			b.send(3, 1, message(raftpb.MsgHeartbeatResp, 3, 0))
			b.log(3).term = 2
			b.restart(3, LostNothing)
		}},
		{"goes back in terms while it runs", NoRegress, func(b *bench) {
			b.r(3).Term = 1
			b.step(3)
		}},
		{"changes its vote while it runs", NoRegress, func(b *bench) {
			b.r(3).Vote = 2
			b.step(3)
		}},
		{"forgets what is committed", NoRegress, func(b *bench) {
			b.r(3).Commit, b.r(3).HandedTo, b.r(3).Applied = 2, 2, 2
			b.step(3)
		}},
		{"forgets the durable commit index", NoRegress, func(b *bench) {
			b.log(3).commit = 3
			b.r(3).Leader = 0
			b.step(3)
			b.log(3).commit = 1
			b.restart(3, LostNothing)
		}},
	})
}

// The wire tap: rule 4.
func TestDurableFirst(t *testing.T) {
	try(t, []breach{
		{"acknowledges beyond its log", DurableFirst, func(b *bench) {
			b.send(2, 1, message(raftpb.MsgAppResp, 2, 4))
		}},
		{"acknowledges in a term that is not durable", DurableFirst, func(b *bench) {
			b.send(2, 1, message(raftpb.MsgAppResp, 3, 3))
		}},
		{"refuses in a term that is not durable", DurableFirst, func(b *bench) {
			m := message(raftpb.MsgAppResp, 3, 3)
			m.Reject = new(true)
			b.send(2, 1, m)
		}},
		{"answers a heartbeat in a term that is not durable", DurableFirst, func(b *bench) {
			b.send(2, 1, message(raftpb.MsgHeartbeatResp, 3, 0))
		}},
		{"gives a vote that is not durable", DurableFirst, func(b *bench) {
			b.vote(2, 0, 3)
			b.send(2, 3, message(raftpb.MsgVoteResp, 3, 0))
		}},
		{"stands without its own durable vote", DurableFirst, func(b *bench) {
			b.vote(2, 0, 3)
			m := message(raftpb.MsgVote, 3, 3)
			m.LogTerm = new(uint64(2))
			b.send(2, 3, m)
		}},
		{"stands with entries that are not durable", DurableFirst, func(b *bench) {
			b.vote(2, 2, 3)
			m := message(raftpb.MsgVote, 3, 4)
			m.LogTerm = new(uint64(2))
			b.send(2, 3, m)
		}},
		{"leads a term in which its vote is another's", DurableFirst, func(b *bench) {
			b.vote(2, 3, 3)
			b.send(2, 3, message(raftpb.MsgApp, 3, 3))
		}},
		{"acknowledges while a commit is not synced", DurableFirst, func(b *bench) {
			held := view{Held{incarnation(), 2, b.log(2), true}}
			b.c.Sent(2, b.envelope(2, 1, message(raftpb.MsgAppResp, 2, 3)), held)
		}},
		{"has nothing durable", DurableFirst, func(b *bench) {
			m := message(raftpb.MsgHeartbeatResp, 2, 0)
			b.c.Sent(2, b.envelope(2, 1, m), view{Held{incarnation(), 9, b.log(2), false}})
		}},
		{"drops what it acknowledged", DurableFirst, func(b *bench) {
			b.replicate(1, 2)
			b.log(2).terms = b.log(2).terms[:3]
			b.r(2).Last = 3
			b.step(2)
		}},
		{"has lost what it acknowledged", NoRegress, func(b *bench) {
			b.replicate(1, 2)
			b.log(2).terms = b.log(2).terms[:3]
			b.restart(2, LostNothing)
		}},
		{"has lost what it has committed", NoRegress, func(b *bench) {
			b.vote(2, 3, 3)
			b.step(2)
			b.log(2).terms = b.log(2).terms[:2]
			b.r(2).Applied = 2
			b.restart(2, LostNothing)
		}},
		{"commits with acknowledgements of a minority", Membership, func(b *bench) {
			b.commit(1, b.replicate(1))
		}},
		{"counts itself before its entry is durable", Membership, func(b *bench) {
			index := b.replicate(1, 2)
			b.log(1).terms = b.log(1).terms[:3]
			b.c.Crashed(3, LostNothing)
			b.commit(1, index)
		}},
		{"counts acknowledgements of an earlier term", Membership, func(b *bench) {
			b.replicate(1, 2, 3)
			b.elect(1, 3)
			b.r(1).Commit = 5
			b.log(1).terms = append(b.log(1).terms, 3)
			b.r(1).Last = 5
			b.step(1)
		}},
	})
}

// view shows one replica's durable state.
type view struct{ held Held }

func (v view) Held(raftyard.GroupID) (Held, bool) { return v.held, true }

// Committed entries: rule 2.
func TestLogMatching(t *testing.T) {
	try(t, []breach{
		{"has another committed entry", LogMatching, func(b *bench) {
			index := b.replicate(1, 2, 3)
			b.commit(1, index)
			b.log(3).terms[len(b.log(3).terms)-1] = 1
			b.c.group(groupKey{benchGroup, incarnation()}).replica(3).promised.ack.replaced = true
			b.commit(3, index)
		}},
		{"changes a committed entry later", NoRegress, func(b *bench) {
			b.log(3).terms[2] = 1
			b.restart(3, LostNothing)
		}},
		{"acknowledges what the leader does not have", LogMatching, func(b *bench) {
			b.replicate(1)
			m := message(raftpb.MsgApp, 2, 3)
			m.LogTerm = new(uint64(2))
			m.Entries = []*raftpb.Entry{{Term: new(uint64(2)), Index: new(uint64(4))}}
			b.send(1, 2, m)
			b.log(2).terms = append(b.log(2).terms, 1)
			b.send(2, 1, message(raftpb.MsgAppResp, 2, 4))
		}},
		{"leads with a log that changes", LogMatching, func(b *bench) {
			b.elect(1, 3)
			b.replicate(1, 2)
			m := message(raftpb.MsgApp, 3, 4)
			m.LogTerm = new(uint64(2))
			b.send(1, 3, m)
		}},
	})
}

// Homes, graves and quarantine: rules 6, 7 and 14.
func TestIdentity(t *testing.T) {
	try(t, []breach{
		{"is on two nodes", OneHome, func(b *bench) {
			b.nodes[4] = &Examined{Node: 4, Replicas: []Replica{*b.r(3)}}
			b.c.Opened(4, b.nodes[4])
		}},
		{"is opened twice", OneHome, func(b *bench) { b.c.Opened(3, b.nodes[3]) }},
		{"comes back in a wiped directory", OneHome, func(b *bench) {
			b.restart(3, LostAll)
		}},
		{"sends in another's name", OneHome, func(b *bench) {
			b.c.Sent(2, b.envelope(3, 1, message(raftpb.MsgHeartbeatResp, 2, 0)), nil)
		}},
		{"vanishes without a tombstone", DeadAreSilent, func(b *bench) {
			b.nodes[3].Replicas, b.nodes[3].Stored = nil, nil
			b.step(3)
		}},
		{"is missing after a restart", DeadAreSilent, func(b *bench) {
			b.c.Crashed(3, LostNothing)
			b.nodes[3].Replicas, b.nodes[3].Stored = nil, nil
			b.c.Opened(3, b.nodes[3])
		}},
		{"sends after it was destroyed", DeadAreSilent, func(b *bench) {
			b.bury(3)
			b.send(3, 1, message(raftpb.MsgHeartbeatResp, 2, 0))
		}},
		{"comes back from the dead", DeadAreSilent, func(b *bench) {
			r := *b.r(3)
			b.bury(3)
			b.nodes[3].Replicas = []Replica{r}
			b.nodes[3].Stored[0] = b.stored(3)
			b.step(3)
			b.r(3).Commit++ // whatever it does
			b.step(3)
		}},
		{"is stopped though nothing was lost", Quarantine, func(b *bench) {
			b.r(3).Serving, b.r(3).Fault = false, errors.New("broken")
			b.step(3)
		}},
		{"sends though it is stopped", Quarantine, func(b *bench) {
			b.c.Excuse(b.identity(3))
			b.r(3).Serving, b.r(3).Fault = false, errors.New("broken")
			b.step(3)
			b.send(3, 1, message(raftpb.MsgHeartbeatResp, 2, 0))
		}},
		{"serves after a loss", Quarantine, func(b *bench) {
			b.log(3).terms = b.log(3).terms[:1]
			b.r(3).Applied = 1
			b.restart(3, LostSome)
			if err := b.c.Err(); !strings.Contains(err.Error(), "serves after a loss") {
				b.t.Errorf("noticed too late: %v", err)
			}
		}},
		{"sends after a loss", Quarantine, func(b *bench) {
			b.lose(3)
			b.none()
			b.send(3, 1, message(raftpb.MsgHeartbeatResp, 2, 0))
		}},
		{"serves again after a loss", Quarantine, func(b *bench) {
			b.lose(3)
			b.none()
			b.r(3).Serving, b.r(3).Fault = true, nil
			b.r(3).Commit = 3
			b.step(3)
		}},
		{"comes back under its id after its record was lost", Quarantine, func(b *bench) {
			r := *b.r(3)
			b.c.Crashed(3, LostSome)
			b.nodes[3].Replicas, b.nodes[3].Stored = nil, nil
			b.c.Opened(3, b.nodes[3])
			b.nodes[3].Replicas = []Replica{r}
			b.step(3)
			b.r(3).Leader = 0
			b.step(3)
		}},
	})
}

// bury destroys the replica on a node.
func (b *bench) bury(node raftyard.NodeID) {
	b.nodes[node].Replicas = nil
	b.nodes[node].Stored[0].Tombstone = &storage.Tombstone{NextReplica: 4}
	b.step(node)
	b.none()
}

// lose takes the tail of a node's log away, which shows it.
func (b *bench) lose(node raftyard.NodeID) {
	b.c.Crashed(node, LostSome)
	b.log(node).terms = b.log(node).terms[:1]
	b.r(node).Serving, b.r(node).Fault = false, storage.ErrDamaged
	b.nodes[node].Stored[0].Damage = storage.ErrDamaged
	b.c.Opened(node, b.nodes[node])
}

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
		b.c.Sent(1, b.removed(4, 5), nil)
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
			b.c.Sent(1, b.removed(1, 4), nil)
		}},
		{"give out ids that the removed one is not below", Membership, func(b *bench) {
			take(b, four)
			env := b.removed(2, 5)
			env.To.Replica = 7
			b.c.Sent(1, env, nil)
		}},
		{"are of an epoch that nobody has seen", Membership, func(b *bench) {
			b.c.Sent(1, b.removed(7, 4), nil)
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
