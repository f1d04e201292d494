package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
)

func nodes(ids ...uint64) []raftyard.NodeID {
	var list []raftyard.NodeID
	for _, id := range ids {
		list = append(list, raftyard.NodeID(id))
	}
	return list
}

func replicas(ids ...uint64) []raftyard.ReplicaID {
	var list []raftyard.ReplicaID
	for _, id := range ids {
		list = append(list, raftyard.ReplicaID(id))
	}
	return list
}

func TestApplyChange(t *testing.T) {
	tests := []struct {
		name    string
		from    Descriptor
		change  Change
		want    string
		wantErr string
	}{
		{
			name: "learners together", from: testDescriptor(Voter),
			change: Change{AddLearners: nodes(5, 4)},
			want:   "1@1 voter, 2@5 learner, 3@4 learner",
		},
		{
			name: "one voter changes", from: testDescriptor(Voter, Learner),
			change: Change{Promote: replicas(2)}, want: "1@1 voter, 2@2 voter",
		},
		{
			name: "one voter and learners", from: testDescriptor(Voter, Voter, Learner),
			change: Change{Demote: replicas(2), Remove: replicas(3), AddLearners: nodes(4)},
			want:   "1@1 voter, 2@2 learner, 4@4 learner",
		},
		{
			name: "two voters change", from: testDescriptor(Voter, Voter, Voter, Learner),
			change: Change{Promote: replicas(4), Remove: replicas(1)},
			want:   "1@1 outgoing, 2@2 voter, 3@3 voter, 4@4 incoming",
		},
		{
			name: "swap with demotion", from: testDescriptor(Voter, Learner),
			change: Change{Promote: replicas(2), Demote: replicas(1)},
			want:   "1@1 demoting, 2@2 incoming",
		},
		{
			name: "a member on a node whose last one goes", from: testDescriptor(Voter, Voter),
			change: Change{
				Remove: replicas(2), AddLearners: nodes(2), Stores: testStores(nodes(2), nil),
			},
			want: "1@1 voter, 3@2 learner in 2.2",
		},
		{
			name: "a node that has one", from: testDescriptor(Voter, Voter),
			change: Change{AddLearners: nodes(2)}, wantErr: "node 2 has more than one",
		},
		{
			name: "all voters", from: testDescriptor(Voter, Learner),
			change: Change{Remove: replicas(1)}, wantErr: "there must be a voter",
		},
		{
			name: "promote a voter", from: testDescriptor(Voter, Voter),
			change: Change{Promote: replicas(2)}, wantErr: "cannot promote replica 2",
		},
		{
			name: "a stranger", from: testDescriptor(Voter, Voter),
			change: Change{Remove: replicas(9)}, wantErr: "replica 9, which is not a member",
		},
		{
			name: "named twice", from: testDescriptor(Voter, Voter),
			change: Change{Remove: replicas(2), Demote: replicas(2)}, wantErr: "named twice",
		},
		{name: "nothing", from: testDescriptor(Voter), wantErr: "no member changes"},
		{
			name: "joint", from: testDescriptor(Voter, Incoming),
			change: Change{AddLearners: nodes(4)}, wantErr: "joint",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			next, err := tt.from.Apply(tt.change)
			if tt.wantErr != "" {
				if !errors.Is(err, ErrInvalidChange) || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("Apply = %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := describeMembers(next); got != tt.want {
				t.Errorf("Apply = %s, want %s", got, tt.want)
			}
			if err := tt.from.rehearse(next); err != nil {
				t.Errorf("raft refuses it: %v", err)
			}
		})
	}
}

func TestCheckNextRefusesWhatApplyNeverMakes(t *testing.T) {
	from := testDescriptor(Voter, Voter, Learner)
	tests := []struct {
		name   string
		change func(d *Descriptor)
		want   error
	}{
		{name: "epoch skipped", change: func(d *Descriptor) { d.Epoch++ }, want: ErrEpochMismatch},
		{name: "epoch kept", change: func(d *Descriptor) { d.Epoch-- }, want: ErrEpochMismatch},
		{name: "another kind", change: func(d *Descriptor) { d.Kind = "other" }},
		{name: "another incarnation", change: func(d *Descriptor) { d.Incarnation[0]++ }},
		{name: "another directory", change: func(d *Descriptor) {
			d.Members[1].Store = directory(2, 1)
		}},
		{name: "other options", change: func(d *Descriptor) { d.SnapshotEntries++ }},
		{name: "another node", change: func(d *Descriptor) { d.Members[1].Node = 8 }},
		{name: "ids go back", change: func(d *Descriptor) {
			d.Members, d.NextReplica = d.Members[:2], 3
		}},
		{name: "old id again", change: func(d *Descriptor) {
			d.Members[2].ID, d.NextReplica = 4, 5 // 3 goes, 4 comes: allowed
			d.Members[2].ID = 3
			d.Members[2].Node = 9
		}},
		{name: "two voters at once", change: func(d *Descriptor) {
			d.Members[1].Role, d.Members[2].Role = Learner, Voter
		}},
		{name: "incoming voter", change: func(d *Descriptor) { d.Members[1].Role = Incoming }},
		{name: "outgoing learner", change: func(d *Descriptor) { d.Members[2].Role = Outgoing }},
		{name: "voter vanishes into joint", change: func(d *Descriptor) {
			d.Members = d.Members[1:]
			d.Members[1].Role = Incoming
		}},
		{name: "plain promotion into joint", change: func(d *Descriptor) {
			d.Members[0].Role, d.Members[2].Role = Outgoing, Voter
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			next := from.Clone()
			next.Epoch++
			tt.change(&next)
			want := tt.want
			if want == nil {
				want = ErrInvalidChange
			}
			if err := from.checkNext(next); !errors.Is(err, want) {
				t.Errorf("checkNext = %v, want %v", err, want)
			}
		})
	}
	joint := testDescriptor(Voter, Incoming, Outgoing)
	next := joint.LeaveJoint()
	if err := joint.checkNext(next); err != nil {
		t.Errorf("leaving a joint configuration: %v", err)
	}
	next.NextReplica++
	if err := joint.checkNext(next); !errors.Is(err, ErrInvalidChange) {
		t.Errorf("leaving with something else = %v, want ErrInvalidChange", err)
	}
}

// progressOf returns the progress of d's members: all active and caught up.
func progressOf(d Descriptor) map[raftyard.ReplicaID]Progress {
	p := make(map[raftyard.ReplicaID]Progress)
	for _, m := range d.Members {
		p[m.ID] = Progress{Match: 1000, Next: 1001, RecentActive: true, State: "replicate"}
	}
	return p
}

// directory is the n-th directory of a node; env_test prints it as node.n.
func directory(node raftyard.NodeID, n byte) raftyard.StoreID {
	return raftyard.StoreID{byte(node), n}
}

// testStores are the directories of nodes 1 to 9: their first, or the second of those
// that have lost one.
func testStores(lost, unknown []raftyard.NodeID) map[raftyard.NodeID]NodeStore {
	stores := make(map[raftyard.NodeID]NodeStore)
	for node := raftyard.NodeID(1); node < 10; node++ {
		s := NodeStore{Current: directory(node, 1), First: directory(node, 1)}
		if slices.Contains(lost, node) {
			s.Current = directory(node, 2)
		}
		if !slices.Contains(unknown, node) {
			stores[node] = s
		}
	}
	return stores
}

// given returns d with a replica that was given to a directory.
func given(d Descriptor, id raftyard.ReplicaID, store raftyard.StoreID) Descriptor {
	for i := range d.Members {
		if d.Members[i].ID == id {
			d.Members[i].Store = store
		}
	}
	return d
}

func TestPlan(t *testing.T) {
	tests := []struct {
		name   string
		d      Descriptor
		want   Want
		self   uint64
		silent []raftyard.ReplicaID // not heard of
		behind []raftyard.ReplicaID
		gone   []raftyard.ReplicaID // behind, and not heard of
		hungry []raftyard.ReplicaID // that need a state, a little behind

		// Those that have not taken the leadership lately.
		declined []raftyard.ReplicaID
		damaged  []raftyard.ReplicaID

		// Unless both are nil, directories are known: nodes that have had another one than
		// now, and nodes whose directory is not known.
		lost, unknown []raftyard.NodeID

		step StepKind
		next string
		to   raftyard.ReplicaID
		why  string
	}{
		{
			name: "as wanted", d: testDescriptor(Voter, Voter, Learner), self: 1,
			want: Want{Voters: nodes(1, 2), Learners: nodes(3)}, step: StepDone,
		},
		{
			name: "grow from the seed", d: testDescriptor(Voter), self: 1,
			want: Want{Voters: nodes(1, 2, 3)}, step: StepChange,
			next: "1@1 voter, 2@2 learner, 3@3 learner",
		},
		{
			name: "wait for learners", d: testDescriptor(Voter, Learner, Learner), self: 1,
			want: Want{Voters: nodes(1, 2, 3)}, behind: replicas(3), step: StepWait,
			why: "learner 3",
		},
		{
			name: "promote together", d: testDescriptor(Voter, Learner, Learner), self: 1,
			want: Want{Voters: nodes(1, 2, 3)}, step: StepChange,
			next: "1@1 voter, 2@2 incoming, 3@3 incoming",
		},
		{
			name: "grow without the one that is down", d: testDescriptor(Voter, Learner, Learner),
			self: 1, want: Want{Voters: nodes(1, 2, 3)}, gone: replicas(3), step: StepChange,
			next: "1@1 voter, 2@2 voter, 3@3 learner",
		},
		{
			name: "but swap all at once", d: testDescriptor(Voter, Voter, Learner, Learner),
			self: 1, want: Want{Voters: nodes(1, 3, 4)}, gone: replicas(4), step: StepWait,
			why: "learner 4",
		},
		{
			name: "all learners are down", d: testDescriptor(Voter, Learner), self: 1,
			want: Want{Voters: nodes(1, 2)}, gone: replicas(2), step: StepWait, why: "learner 2",
		},
		{
			name: "leave what another has begun", d: testDescriptor(Voter, Incoming, Outgoing),
			self: 1, want: Want{Voters: nodes(1, 3)}, step: StepLeave, next: "1@1 voter, 2@2 voter",
		},
		{
			name: "hand over before the swap", d: testDescriptor(Voter, Voter, Voter, Learner),
			self: 1, want: Want{Voters: nodes(2, 3, 4)}, behind: replicas(2),
			step: StepTransfer, to: 3,
		},
		{
			name: "wait for a successor", d: testDescriptor(Voter, Voter, Voter, Learner), self: 1,
			want: Want{Voters: nodes(2, 3, 4)}, behind: replicas(2, 3), step: StepWait,
			why: "to take the leadership",
		},
		{
			name: "swap though the voter that stays is gone",
			d:    testDescriptor(Voter, Voter, Voter, Learner, Learner), self: 2,
			want: Want{Voters: nodes(1, 4, 5)}, gone: replicas(1), step: StepChange,
			next: "1@1 voter, 2@2 outgoing, 3@3 outgoing, 4@4 incoming, 5@5 incoming",
		},
		{
			name: "hand over to a new voter where the one that stays is gone",
			d:    testDescriptor(Voter, Outgoing, Outgoing, Incoming, Incoming), self: 2,
			want: Want{Voters: nodes(1, 4, 5)}, gone: replicas(1), step: StepTransfer, to: 4,
		},
		{
			name: "swap after handing over", d: testDescriptor(Voter, Voter, Voter, Learner),
			self: 2, want: Want{Voters: nodes(2, 3, 4)}, step: StepChange,
			next: "1@1 outgoing, 2@2 voter, 3@3 voter, 4@4 incoming",
		},
		{
			name: "replace the only voter", d: testDescriptor(Voter, Learner), self: 1,
			want: Want{Voters: nodes(2)}, step: StepChange, next: "1@1 outgoing, 2@2 incoming",
		},
		{
			name: "hand over before leaving", d: testDescriptor(Outgoing, Incoming), self: 1,
			want: Want{Voters: nodes(2)}, step: StepTransfer, to: 2,
		},
		{
			name: "do not leave while nobody can follow", d: testDescriptor(Outgoing, Incoming),
			self: 1, want: Want{Voters: nodes(2)}, behind: replicas(2),
			step: StepWait, why: "caught up",
		},
		{
			name: "leave with whoever comes, not only with who is wanted by now",
			d:    testDescriptor(Outgoing, Incoming, Incoming), self: 1,
			want: Want{Voters: nodes(1, 2)}, silent: replicas(2), step: StepTransfer, to: 3,
		},
		{
			name: "a leader that comes leaves at once", d: testDescriptor(Incoming, Outgoing),
			self: 1, want: Want{Voters: nodes(2)}, step: StepLeave, next: "1@1 voter",
		},
		{
			name: "demote the leader", d: testDescriptor(Voter, Voter), self: 1,
			want: Want{Voters: nodes(2), Learners: nodes(1)}, step: StepTransfer, to: 2,
		},
		{
			name: "hand over to one that has not declined", self: 1,
			d:    testDescriptor(Voter, Voter, Voter, Learner),
			want: Want{Voters: nodes(2, 3, 4)}, declined: replicas(2), step: StepTransfer, to: 3,
		},
		{
			name: "wait when all have declined", d: testDescriptor(Voter, Voter, Voter), self: 1,
			want: Want{Voters: nodes(2, 3)}, declined: replicas(2, 3), step: StepWait,
			why: "asked again later",
		},
		{
			name: "one that is behind is not waited for as one that has declined", self: 1,
			d:    testDescriptor(Voter, Voter, Voter),
			want: Want{Voters: nodes(2, 3)}, behind: replicas(2, 3), declined: replicas(2),
			step: StepWait, why: "caught up",
		},
		{
			name: "in a joint configuration too", d: testDescriptor(Outgoing, Incoming, Incoming),
			self: 1, want: Want{Voters: nodes(2, 3)}, declined: replicas(2),
			step: StepTransfer, to: 3,
		},
		{
			name: "who has declined still counts as alive", d: testDescriptor(Voter, Voter, Voter),
			self: 1, want: Want{Voters: nodes(1, 2)}, declined: replicas(2), step: StepChange,
			next: "1@1 voter, 2@2 voter",
		},
		{
			name: "an unwanted learner goes first", self: 1,
			d:    testDescriptor(Voter, Voter, Learner),
			want: Want{Voters: nodes(2)}, declined: replicas(2), step: StepChange,
			next: "1@1 voter, 2@2 voter",
		},
		{
			name: "drop an unwanted learner", d: testDescriptor(Voter, Learner), self: 1,
			want: Want{Voters: nodes(1)}, step: StepChange, next: "1@1 voter",
		},
		{
			name: "not without a live majority", d: testDescriptor(Voter, Voter, Voter), self: 1,
			want: Want{Voters: nodes(1, 2)}, silent: replicas(2), step: StepWait, why: "alive",
		},
		{
			name: "nobody who may have the state goes before those have it that stay",
			d:    testDescriptor(Voter, Voter, Voter), self: 1, hungry: replicas(3),
			want: Want{Voters: nodes(1, 3)}, step: StepWait, why: "what the log follows",
		},
		{
			name: "one that needs a state goes", d: testDescriptor(Voter, Voter, Voter),
			self: 1, hungry: replicas(3), want: Want{Voters: nodes(1, 2)},
			step: StepChange, next: "1@1 voter, 2@2 voter",
		},
		{
			name: "others do not wait for one that needs a state", self: 1,
			d:      testDescriptor(Voter, Voter, Voter, Voter),
			hungry: replicas(3), want: Want{Voters: nodes(1, 2, 3)},
			step: StepChange, next: "1@1 voter, 2@2 voter, 3@3 voter",
		},
		{
			name: "a learner that needs a state is not promoted", self: 1,
			d: testDescriptor(Voter, Learner), hungry: replicas(2),
			want: Want{Voters: nodes(1, 2)}, step: StepWait, why: "caught up",
		},
		{
			name: "the leadership goes to nobody who needs a state", self: 1,
			d: testDescriptor(Voter, Voter, Voter), hungry: replicas(2),
			want: Want{Voters: nodes(2, 3)}, step: StepWait, why: "what the log follows",
		},
		{
			name: "replace a lost voter", d: testDescriptor(Voter, Voter, Voter), self: 1,
			want: Want{Voters: nodes(1, 2, 3)}, lost: nodes(3), step: StepChange,
			next: "1@1 voter, 2@2 voter, 4@3 learner in 3.2",
		},
		{
			name: "replace a damaged voter", d: testDescriptor(Voter, Voter, Voter), self: 1,
			want: Want{Voters: nodes(1, 2, 3)}, damaged: replicas(3), step: StepChange,
			next: "1@1 voter, 2@2 voter, 4@3 learner",
		},
		{
			name: "a damaged voter of two", d: testDescriptor(Voter, Voter), self: 1,
			want: Want{Voters: nodes(1, 2)}, damaged: replicas(2), step: StepChange,
			next: "1@1 voter, 3@2 learner", // if there were a majority to commit it
		},
		{
			name: "a damaged learner", d: testDescriptor(Voter, Learner), self: 1,
			want: Want{Voters: nodes(1), Learners: nodes(2)}, damaged: replicas(2),
			step: StepChange, next: "1@1 voter, 3@2 learner",
		},
		{
			name: "no damaged voter while another is down", self: 1,
			d:    testDescriptor(Voter, Voter, Voter),
			want: Want{Voters: nodes(1, 2, 3)}, damaged: replicas(3), silent: replicas(2),
			step: StepWait, why: "only 1 of the 2 other voters",
		},
		{
			name: "lost voters one after the other", self: 1,
			d:    testDescriptor(Voter, Voter, Voter, Voter, Voter),
			want: Want{Voters: nodes(1, 2, 3, 4, 5)}, lost: nodes(4, 5), step: StepChange,
			next: "1@1 voter, 2@2 voter, 3@3 voter, 5@5 voter, 6@4 learner in 4.2",
		},
		{
			name: "lost learners together", self: 1,
			d:    testDescriptor(Voter, Learner, Learner),
			want: Want{Voters: nodes(1), Learners: nodes(2, 3)}, lost: nodes(2, 3),
			step: StepChange, next: "1@1 voter, 4@2 learner in 2.2, 5@3 learner in 3.2",
		},
		{
			name: "a lost voter that is not wanted goes", d: testDescriptor(Voter, Voter, Voter),
			self: 1, want: Want{Voters: nodes(1, 2)}, lost: nodes(3), step: StepChange,
			next: "1@1 voter, 2@2 voter",
		},
		{
			name: "not without a live majority of the others", self: 1,
			d:    testDescriptor(Voter, Voter, Voter),
			want: Want{Voters: nodes(1, 2, 3)}, lost: nodes(3), silent: replicas(2),
			step: StepWait, why: "only 1 of the 2 other voters",
		},
		{
			name: "who is lost does not count as alive", self: 1,
			d:    testDescriptor(Voter, Voter, Voter, Voter),
			want: Want{Voters: nodes(1, 2)}, lost: nodes(3, 4), silent: replicas(2),
			step: StepWait, why: "only 1 of the 3 other voters",
		},
		{
			name: "promote in the new directory", self: 1,
			d:    given(testDescriptor(Voter, Voter, Learner), 3, directory(3, 2)),
			want: Want{Voters: nodes(1, 2, 3)}, lost: nodes(3), step: StepChange,
			next: "1@1 voter, 2@2 voter, 3@3 voter in 3.2",
		},
		{
			name: "leave a joint configuration first", self: 1,
			d:    testDescriptor(Voter, Voter, Incoming, Outgoing),
			want: Want{Voters: nodes(1, 2, 3)}, lost: nodes(3), step: StepLeave,
			next: "1@1 voter, 2@2 voter, 3@3 voter",
		},
		{
			name: "a leader whose directory is lost waits", self: 1,
			d:    testDescriptor(Voter, Voter, Voter),
			want: Want{Voters: nodes(1, 2, 3)}, lost: nodes(1), step: StepWait, why: "own data",
		},
		{
			name: "nobody who is lost is handed to", self: 1,
			d:    testDescriptor(Outgoing, Incoming, Incoming),
			want: Want{Voters: nodes(2, 3)}, lost: nodes(2), step: StepTransfer, to: 3,
		},
		{
			name: "no member in an unknown directory", d: testDescriptor(Voter), self: 1,
			want: Want{Voters: nodes(1, 2, 3)}, unknown: nodes(3), step: StepChange,
			next: "1@1 voter, 2@2 learner in 2.1",
		},
		{
			name: "grow without the unknown one", d: testDescriptor(Voter, Learner), self: 1,
			want: Want{Voters: nodes(1, 2, 3)}, unknown: nodes(3), step: StepChange,
			next: "1@1 voter, 2@2 voter",
		},
		{
			name: "nothing to do before it is known", d: testDescriptor(Voter, Voter), self: 1,
			want: Want{Voters: nodes(1, 2), Learners: nodes(3)}, unknown: nodes(3),
			step: StepWait, why: "node 3 has not told",
		},
		{
			name: "no swap for an unknown voter", d: testDescriptor(Voter, Voter), self: 1,
			want: Want{Voters: nodes(1, 3)}, unknown: nodes(3), step: StepWait, why: "node 3",
		},
		{
			name: "a swap without an unknown learner", d: testDescriptor(Voter, Voter, Learner),
			self: 1, want: Want{Voters: nodes(1, 3), Learners: nodes(4)}, unknown: nodes(4),
			step: StepChange, next: "1@1 voter, 2@2 outgoing, 3@3 incoming",
		},
		{
			name: "never nobody", d: testDescriptor(Voter), self: 1, step: StepWait,
			why: "no voters",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := progressOf(tt.d)
			for _, id := range tt.silent {
				p[id] = Progress{Match: p[id].Match}
			}
			for _, id := range tt.hungry {
				p[id] = Progress{Match: 990, RecentActive: true, NeedsState: true}
			}
			for _, id := range tt.behind {
				p[id] = Progress{Match: 10, RecentActive: true}
			}
			for _, id := range tt.gone {
				p[id] = Progress{Match: 10}
			}
			for id, q := range p {
				q.Declined = slices.Contains(tt.declined, id)
				q.Damaged = slices.Contains(tt.damaged, id)
				p[id] = q
			}
			if tt.lost != nil || tt.unknown != nil {
				tt.want.Stores = testStores(tt.lost, tt.unknown)
			}
			got := Plan(tt.d, tt.want, p, raftyard.ReplicaID(tt.self))
			if got.Kind != tt.step || got.To != tt.to || !strings.Contains(got.Why, tt.why) {
				t.Errorf("Plan = %s to %d (%s), want %s to %d",
					got.Kind, got.To, got.Why, tt.step, tt.to)
			}
			if members := describeMembers(got.Next); members != tt.next {
				t.Errorf("next = %s, want %s", members, tt.next)
			}
		})
	}
}

// TestPlanReachesTheWant: from any descriptor, joint or not, with nodes that have lost
// their directories, and with the leader changing its mind about nothing, a bounded
// number of steps leads to the want, and raft takes each of them.
func TestPlanReachesTheWant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDescriptor(t)
		want := drawWant(t)
		want.Stores = drawStores(t, d)
		self := rapid.SampledFrom(leaders(d, want)).Draw(t, "leader")
		changes := rapid.IntRange(0, 2).Draw(t, "leader changes")
		for range 15 + changes {
			step := Plan(d, want, progressOf(d), self)
			switch step.Kind {
			case StepDone:
				checkReached(t, d, want)
				return
			case StepTransfer:
				if step.To == self || !slices.Contains(leaders(d, want), step.To) {
					t.Fatalf("transfer from %d to %d in %s", self, step.To, describeMembers(d))
				}
				self = step.To
			case StepChange, StepLeave:
				if err := errors.Join(d.checkNext(step.Next), d.rehearse(step.Next)); err != nil {
					t.Fatalf("%s → %s: %v", describeMembers(d), describeMembers(step.Next), err)
				}
				d = step.Next
				if m, ok := d.Member(self); !ok || m.Role == Learner {
					self = leaders(d, want)[0] // it stepped down
				}
			default:
				t.Fatalf("%s in %s", step.Why, describeMembers(d))
			}
			if changes > 0 && rapid.Bool().Draw(t, "leader changes now") {
				changes--
				self = rapid.SampledFrom(leaders(d, want)).Draw(t, "another leader")
			}
		}
		t.Fatalf("no end: %s, want %v", describeMembers(d), want)
	})
}

// leaders returns who can lead d.
func leaders(d Descriptor, want Want) []raftyard.ReplicaID {
	var ids []raftyard.ReplicaID
	for _, m := range d.Members {
		if m.Role != Learner && !want.Stores[m.Node].Lost(m) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// drawStores lets nodes lose their directories, of both halves' voters so few that the
// others are a majority. Nil: nobody minds directories.
func drawStores(t *rapid.T, d Descriptor) map[raftyard.NodeID]NodeStore {
	if rapid.Bool().Draw(t, "directories are not minded") {
		return nil
	}
	node := rapid.Map(rapid.Uint64Range(1, 8), func(n uint64) raftyard.NodeID {
		return raftyard.NodeID(n)
	})
	type stores = map[raftyard.NodeID]NodeStore
	draw := func(lost []raftyard.NodeID) stores { return testStores(lost, nil) }
	enough := func(s stores) bool { return canDecide(d, s) }
	return rapid.Map(rapid.SliceOf(node), draw).Filter(enough).Draw(t, "stores")
}

// canDecide reports whether the members that are not lost are a majority, now and when
// a joint configuration is left.
func canDecide(d Descriptor, stores map[raftyard.NodeID]NodeStore) bool {
	halves := []func(Role) bool{Role.newVoter}
	if d.IsJoint() {
		halves = append(halves, Role.oldVoter)
	}
	for _, votes := range halves {
		live, total := 0, 0
		for _, m := range d.Members {
			if votes(m.Role) {
				total++
			}
			if votes(m.Role) && !stores[m.Node].Lost(m) {
				live++
			}
		}
		if live <= total/2 {
			return false
		}
	}
	return true
}

func drawDescriptor(t *rapid.T) Descriptor {
	return rapid.Custom(func(t *rapid.T) Descriptor {
		roles := rapid.SliceOfN(rapid.SampledFrom(
			[]Role{Voter, Voter, Learner, Incoming, Outgoing, Demoting}), 1, 6).Draw(t, "roles")
		return testDescriptor(roles...)
	}).Filter(func(d Descriptor) bool { return d.Validate() == nil }).Draw(t, "descriptor")
}

func drawWant(t *rapid.T) Want {
	node := rapid.Map(rapid.Uint64Range(1, 8), func(n uint64) raftyard.NodeID {
		return raftyard.NodeID(n)
	})
	return Want{
		Voters:   rapid.SliceOfN(node, 1, 5).Draw(t, "voters"),
		Learners: rapid.SliceOfN(node, 0, 3).Draw(t, "learners"),
	}
}

func checkReached(t *rapid.T, d Descriptor, want Want) {
	got := make(map[raftyard.NodeID]Role)
	for _, m := range d.Members {
		if want.Stores[m.Node].Lost(m) {
			t.Fatalf("done with %s, but replica %d is lost", describeMembers(d), m.ID)
		}
		got[m.Node] = m.Role
	}
	wanted := make(map[raftyard.NodeID]Role)
	for _, n := range want.Learners {
		wanted[n] = Learner
	}
	for _, n := range want.Voters {
		wanted[n] = Voter
	}
	if !maps.Equal(got, wanted) {
		t.Fatalf("done with %s, want %v", describeMembers(d), want)
	}
}

// TestInvalidChangeAppliesAsNothing: a change that is in the log and must not be
// applied changes nothing, on every replica, and the group goes on.
func TestInvalidChangeAppliesAsNothing(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(voters(3)...))
	m := e.member(1)
	e.must(m.r.Campaign())
	e.stabilize()
	next, err := m.r.State().Descriptor.Apply(Change{AddLearners: nodes(4)})
	e.must(err)
	e.must(m.r.ChangeMembers(next, "change"))
	// Somebody has proposed for an epoch that is gone.
	m.r.change.cc.Context = encodeChange(9, next)
	var outcome error
	e.answered = func(_ *member, token any, _ uint64, err error) {
		if token == "change" {
			outcome = err
		}
	}
	e.stabilize()
	if !errors.Is(outcome, ErrEpochMismatch) {
		t.Errorf("outcome = %v, want ErrEpochMismatch", outcome)
	}
	for _, m := range e.members {
		if s := m.r.State(); s.Descriptor.Epoch != 1 || m.list.applied != 3 {
			t.Errorf("replica %d: epoch %d, applied %d", m.id, s.Descriptor.Epoch, m.list.applied)
		}
	}
	e.must(m.r.ChangeMembers(next, "again"))
	e.stabilize()
	if got := m.r.State().Descriptor.Epoch; got != 2 {
		t.Errorf("epoch = %d after a valid change, want 2", got)
	}
	if got := fmt.Sprint(StepLeave, StepKind(9), Candidate, Follower); got !=
		"leave step(9) candidate follower" {
		t.Errorf("names: %s", got)
	}
}
