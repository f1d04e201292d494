package check

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
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
			b.stand(3, 3, 2)
		}},
		{"stands with entries that are not durable", DurableFirst, func(b *bench) {
			b.vote(2, 2, 3)
			b.stand(3, 4, 2)
		}},
		{"stands with an entry of a later term than it has", DurableFirst, func(b *bench) {
			b.vote(2, 2, 4)
			b.stand(4, 3, 3)
		}},
		{"stands with a shorter log of a later term than it has", DurableFirst, func(b *bench) {
			b.vote(2, 2, 4)
			b.stand(4, 2, 3)
		}},
		{"leads a term in which its vote is another's", DurableFirst, func(b *bench) {
			b.vote(2, 3, 3)
			b.send(2, 3, message(raftpb.MsgApp, 3, 3))
		}},
		{"acknowledges while a commit is not synced", DurableFirst, func(b *bench) {
			b.c.Sent(2, b.envelope(2, 1, message(raftpb.MsgAppResp, 2, 3)), true)
		}},
		{"gives a vote while a commit is not synced", DurableFirst, func(b *bench) {
			b.vote(2, 3, 3)
			b.c.Sent(2, b.envelope(2, 3, message(raftpb.MsgVoteResp, 3, 0)), true)
		}},
		{"has nothing durable", DurableFirst, func(b *bench) {
			env := b.envelope(2, 1, message(raftpb.MsgHeartbeatResp, 2, 0))
			env.From.Replica, env.Message.From = 9, new(uint64(9))
			b.c.Sent(2, env, false)
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

// stand has node 2 ask for a vote, with a log that ends with an entry of a term.
func (b *bench) stand(term, index, of uint64) {
	m := message(raftpb.MsgVote, term, index)
	m.LogTerm = new(of)
	b.send(2, 3, m)
}

// TestStandsWithLess: a candidate that hears of the leader of its term before its own
// requests have left has lost what they show, and has something newer instead.
func TestStandsWithLess(t *testing.T) {
	b := newBench(t, Config{})
	l := b.log(2)
	l.terms = append(l.terms, 2, 2)
	b.r(2).Last = l.last()
	b.step(2)
	b.vote(2, 2, 3)
	b.stand(3, 5, 2)
	b.none()
	l.terms = append(l.terms[:3], 3)
	b.r(2).Last = l.last()
	b.step(2)
	for index := uint64(3); index < 6; index++ {
		b.stand(3, index, 2)
	}
	b.stand(3, 4, 3)
	b.none()
}

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
			b.c.Sent(2, b.envelope(3, 1, message(raftpb.MsgHeartbeatResp, 2, 0)), false)
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
			b.bury()
			b.send(3, 1, message(raftpb.MsgHeartbeatResp, 2, 0))
		}},
		{"comes back from the dead", DeadAreSilent, func(b *bench) {
			r := *b.r(3)
			b.bury()
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
		{"loses its state machine though nothing was lost", Quarantine, func(b *bench) {
			b.r(3).Broken = errors.New("broken")
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
func (b *bench) bury() {
	const node = 3
	b.nodes[node].Replicas = nil
	b.nodes[node].Stored[0].Tombstone = &storage.Tombstone{NextReplica: 4, Purged: true}
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
