package bench

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// testDescriptor is that of a group with three voters.
func testDescriptor() group.Descriptor {
	d := group.Descriptor{
		Group: 1, Incarnation: raftyard.Incarnation{1}, Kind: "none", Epoch: 1, NextReplica: 4,
		SnapshotEntries: 10_000, TrailingEntries: 5000,
	}
	for id := range raftyard.ReplicaID(3) {
		d.Members = append(d.Members, group.Member{
			ID: id + 1, Node: raftyard.NodeID(id + 1), Role: group.Voter,
		})
	}
	return d
}

// A core is three members of a group in one goroutine, with logs in memory and messages
// that arrive at once: what is left is what the members do.
type core struct {
	members []coreMember
	mail    []*raftpb.Message
	applied int // commands, by the first member
}

// A coreMember is one of them.
type coreMember interface {
	propose(data []byte) error
	step(m *raftpb.Message) error
	// work does one step, and reports whether there was one.
	work(c *core) (bool, error)
	// cut cuts the log.
	cut() error
}

// settle works until nothing is left to do.
func (c *core) settle() error {
	for busy := true; busy; {
		busy = false
		for _, m := range c.members {
			worked, err := m.work(c)
			if err != nil {
				return err
			}
			busy = busy || worked
		}
		for len(c.mail) > 0 {
			m := c.mail[0]
			c.mail = c.mail[1:]
			if err := c.members[m.GetTo()-1].step(m); err != nil {
				return err
			}
			busy = true
		}
	}
	return nil
}

// do has so many commands applied, proposed together.
func (c *core) do(commands int, data []byte) error {
	want := c.applied + commands
	for range commands {
		if err := c.members[0].propose(data); err != nil {
			return err
		}
	}
	if err := c.settle(); err != nil {
		return err
	}
	if c.applied != want {
		return fmt.Errorf("%d commands are applied, want %d", c.applied, want)
	}
	return nil
}

// A replica is a [group.Replica] with its log.
type replica struct {
	r       *group.Replica
	log     *raft.MemoryStorage
	state   group.State
	applied uint64
	token   *int // of the next proposal
}

// newReplicas returns a group whose first member leads.
func newReplicas(b *testing.B) *core {
	b.Helper()
	d := testDescriptor()
	snap, hs := group.Genesis(d)
	c := &core{}
	for _, m := range d.Members {
		r := &replica{log: newLog(b, snap, hs), token: new(int)}
		r.state = group.State{Descriptor: d, Index: snap.GetMetadata().GetIndex()}
		var err error
		r.r, err = group.New(group.Config{
			Group: d.Group, Incarnation: d.Incarnation, Node: m.Node, Replica: m.ID,
			Storage: r.log, State: r.state, Boot: 1,
		})
		if err != nil {
			b.Fatal(err)
		}
		c.members = append(c.members, r)
	}
	first, ok := c.members[0].(*replica)
	if !ok {
		b.Fatal("the first member is none")
	}
	if err := first.r.Campaign(); err != nil {
		b.Fatal(err)
	}
	if err := c.settle(); err != nil {
		b.Fatal(err)
	}
	return c
}

func newLog(b *testing.B, snap *raftpb.Snapshot, hs *raftpb.HardState) *raft.MemoryStorage {
	b.Helper()
	log := raft.NewMemoryStorage()
	if err := log.ApplySnapshot(snap); err != nil {
		b.Fatal(err)
	}
	if err := log.SetHardState(hs); err != nil {
		b.Fatal(err)
	}
	return log
}

func (r *replica) propose(data []byte) error {
	r.token = new(*r.token + 1)
	return r.r.Propose(group.Proposal{Data: data, Token: r.token})
}

func (r *replica) step(m *raftpb.Message) error { return r.r.Step(m) }

func (r *replica) work(c *core) (bool, error) {
	if !r.r.HasReady() {
		return false, nil
	}
	out := r.r.Ready()
	c.mail = append(c.mail, out.Messages...)
	if s := out.Save; s != nil {
		if err := r.log.Append(s.Entries); err != nil {
			return false, err
		}
		if s.HardState != nil {
			if err := r.log.SetHardState(s.HardState); err != nil {
				return false, err
			}
		}
		if s.State != nil {
			r.state = *s.State
		}
	}
	c.mail = append(c.mail, out.After...)
	if a := out.Apply; a != nil {
		r.applied = a.Last
		if c.members[0] == r {
			c.applied += len(a.Commands)
		}
	}
	r.r.Advance()
	return true, nil
}

func (r *replica) cut() error {
	manifest := group.Manifest{State: r.state, Empty: true}
	_, err := r.log.CreateSnapshot(r.applied, r.state.Descriptor.ConfState(), manifest.Encode())
	if err != nil {
		return err
	}
	if err := r.log.Compact(r.applied); err != nil {
		return err
	}
	r.r.Compacted(r.applied)
	return nil
}

// A rawNode is raft by itself, with its log.
type rawNode struct {
	n       *raft.RawNode
	log     *raft.MemoryStorage
	applied uint64
}

// newRawNodes returns a group of them whose first member leads.
func newRawNodes(b *testing.B) *core {
	b.Helper()
	d := testDescriptor()
	snap, hs := group.Genesis(d)
	c := &core{}
	var nodes []*rawNode
	for _, m := range d.Members {
		n := &rawNode{log: newLog(b, snap, hs)}
		var err error
		n.n, err = raft.NewRawNode(&raft.Config{
			ID: uint64(m.ID), Storage: n.log, Applied: snap.GetMetadata().GetIndex(),
			ElectionTick: 10, HeartbeatTick: 1, CheckQuorum: true, PreVote: true,
			MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256, MaxUncommittedEntriesSize: math.MaxUint64,
			Logger: discard{},
		})
		if err != nil {
			b.Fatal(err)
		}
		c.members = append(c.members, n)
		nodes = append(nodes, n)
	}
	if err := nodes[0].n.Campaign(); err != nil {
		b.Fatal(err)
	}
	if err := c.settle(); err != nil {
		b.Fatal(err)
	}
	return c
}

func (n *rawNode) propose(data []byte) error    { return n.n.Propose(data) }
func (n *rawNode) step(m *raftpb.Message) error { return n.n.Step(m) }

func (n *rawNode) work(c *core) (bool, error) {
	if !n.n.HasReady() {
		return false, nil
	}
	rd := n.n.Ready()
	if err := n.log.Append(rd.Entries); err != nil {
		return false, err
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		if err := n.log.SetHardState(rd.HardState); err != nil {
			return false, err
		}
	}
	c.mail = append(c.mail, rd.Messages...)
	for _, e := range rd.CommittedEntries {
		n.applied = e.GetIndex()
		if c.members[0] == n && len(e.GetData()) > 0 {
			c.applied++
		}
	}
	n.n.Advance(rd)
	return true, nil
}

func (n *rawNode) cut() error {
	_, err := n.log.CreateSnapshot(n.applied, testDescriptor().ConfState(), nil)
	if err != nil {
		return err
	}
	return n.log.Compact(n.applied)
}

// discard is a raft.Logger that says nothing.
type discard struct{ raft.Logger }

func (discard) Debug(...any)            {}
func (discard) Debugf(string, ...any)   {}
func (discard) Info(...any)             {}
func (discard) Infof(string, ...any)    {}
func (discard) Warning(...any)          {}
func (discard) Warningf(string, ...any) {}

// BenchmarkGroup measures what three members of a group do for a command: proposing,
// replicating and handing out, without disks and networks, against raft by itself. The more
// commands are proposed together, the less one must cost.
func BenchmarkGroup(b *testing.B) {
	for _, together := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("together=%d", together), func(b *testing.B) {
			const commands = 2048 // in a turn
			data := bytes.Repeat([]byte{1}, payload)
			var mallocs [2]uint64
			measured := func(c *core, count *uint64) *side {
				return &side{turn: func() (int, error) {
					var from, to runtime.MemStats
					runtime.ReadMemStats(&from)
					for range commands / together {
						if err := c.do(together, data); err != nil {
							return 0, err
						}
					}
					for _, m := range c.members {
						if err := m.cut(); err != nil {
							return 0, err
						}
					}
					runtime.ReadMemStats(&to)
					*count += to.Mallocs - from.Mallocs
					return commands, nil
				}}
			}
			ours := measured(newReplicas(b), &mallocs[0])
			baseline := measured(newRawNodes(b), &mallocs[1])
			versus(b, "commands", ours, baseline)
			b.ReportMetric(float64(mallocs[0])/float64(ours.ops), "allocs/command")
			b.ReportMetric(float64(mallocs[1])/float64(baseline.ops), "baseline-allocs/command")
		})
	}
}
