package node

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/node/registry"
)

const (
	// maxPage bounds one page of a list of groups.
	maxPage = 1000
	// askPatience bounds how long a report waits for one node, so that a report
	// comes even when a node is down.
	askPatience = 2 * time.Second
)

// GroupFilter selects groups. The zero value selects all.
type GroupFilter struct {
	After   raftyard.GroupID // only ids greater than this
	Limit   int              // at most so many; default and maximum: 1000
	Node    raftyard.NodeID  // only those that want or have a replica there
	Problem string           // only those with this problem; "any" for any
}

// Groups lists groups in the order of their ids, as far as this node and those
// that it can reach know. next is the After of the next page, zero at the end.
func (n *Node) Groups(
	ctx context.Context, f GroupFilter,
) (groups []GroupSummary, next raftyard.GroupID, err error) {
	if !n.lifecycle.isFresh() {
		return nil, 0, n.unread()
	}
	limit := maxPage
	if f.Limit > 0 && f.Limit < maxPage {
		limit = f.Limit
	}
	after := f.After
	for {
		recs := n.registry.Groups(after, limit)
		known := n.collectReports(ctx, recs)
		for i := range recs {
			after = recs[i].ID
			s := n.summarize(&recs[i], known[recs[i].ID])
			if !f.matches(&s) {
				continue
			}
			groups = append(groups, s)
			if len(groups) == limit {
				return groups, after, nil
			}
		}
		if len(recs) < limit {
			return groups, 0, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
	}
}

func (f GroupFilter) matches(s *GroupSummary) bool {
	if f.Node != 0 && !slices.Contains(s.Voters, f.Node) && !slices.Contains(s.Learners, f.Node) &&
		!slices.ContainsFunc(s.Members, func(m MemberStatus) bool { return m.Node == f.Node }) {
		return false
	}
	switch f.Problem {
	case "":
		return true
	case "any":
		return len(s.Problems) > 0
	default:
		return slices.Contains(s.Problems, f.Problem)
	}
}

// replicaReport is what a node tells of one of its replicas in a list.
type replicaReport struct {
	Group       raftyard.GroupID   `json:"g"`
	Incarnation string             `json:"i"`
	Term        uint64             `json:"t"`
	Epoch       uint64             `json:"e"`
	Leader      raftyard.NodeID    `json:"l"`
	Leads       bool               `json:"s"`
	Members     []MemberStatus     `json:"m"`
	Fault       string             `json:"f,omitempty"`
	Reason      QuarantineReason   `json:"q,omitempty"`
	Index       uint64             `json:"x,omitempty"` // of the fault
	Replica     raftyard.ReplicaID `json:"r"`
	Ailing      ailing             `json:"a"`
	LogOnly     bool               `json:"o,omitempty"`

	// For how long the group has been joint, and has had a learner that is not to be one.
	Joint  time.Duration `json:"j,omitempty"`
	Orphan time.Duration `json:"u,omitempty"`
}

// replicaReports tells of this node's replicas with ids from a given one on.
func (n *Node) replicaReports(from raftyard.GroupID, limit int) []replicaReport {
	rs := n.allReplicas()
	rs = slices.DeleteFunc(rs, func(r *replica) bool { return r.group < from })
	slices.SortFunc(rs, func(a, b *replica) int { return cmp.Compare(a.group, b.group) })
	if len(rs) > limit {
		rs = rs[:limit]
	}
	out := make([]replicaReport, 0, len(rs))
	for _, r := range rs {
		out = append(out, r.report())
	}
	return out
}

func (r *replica) report() replicaReport {
	rep := replicaReport{
		Group: r.group, Incarnation: r.incarnation.String(), Replica: r.id,
		LogOnly: r.machine.isLogOnly(),
	}
	if v := r.view.Load(); v != nil {
		rep.Term, rep.Epoch, rep.Leader = v.Term, v.State.Descriptor.Epoch, v.LeaderNode
		rep.Leads = v.Leader == r.id
		if a := r.ailing.Load(); a != nil && rep.Leads {
			rep.Ailing = *a
		}
		rep.Members = memberStatuses(v.State.Descriptor)
	}
	if err := r.fault(); err != nil {
		q := quarantineOf(err)
		rep.Fault, rep.Reason, rep.Index = err.Error(), q.Reason, q.Index
	}
	if r.serving() {
		rep.fillHalfway(r.lingers.Load(), r.worker.node.world.now())
	} else {
		rep.Leads, rep.Leader = false, 0
	}
	return rep
}

func memberStatuses(d group.Descriptor) []MemberStatus {
	out := make([]MemberStatus, 0, len(d.Members))
	for _, m := range d.Members {
		st := MemberStatus{Replica: m.ID, Node: m.Node, Role: m.Role.String()}
		if !m.Store.IsZero() {
			st.Store = m.Store.String()
		}
		out = append(out, st)
	}
	return out
}

// summarize makes one line of what the registry wants and what replicas say.
func (n *Node) summarize(rec *registry.Group, reps []replicaReport) GroupSummary {
	s := GroupSummary{
		ID: rec.ID, Kind: rec.Kind, Incarnation: rec.Incarnation.String(),
		Voters: rec.Voters, Learners: nonNil(rec.Learners),
		Members: []MemberStatus{}, Problems: []string{},
	}
	faults := make(faultsOf)
	logOnly := false
	var sick ailing
	for i := range reps {
		rep := &reps[i]
		if rep.Incarnation != s.Incarnation {
			continue
		}
		if rep.Fault != "" {
			faults[rep.Replica] = standing{rep.Reason, rep.Index}
		}
		if rep.Epoch > s.Epoch {
			s.Epoch, s.Members = rep.Epoch, rep.Members
		}
		if rep.Leader != 0 && rep.Term >= s.Term {
			s.Leader, s.Term = rep.Leader, rep.Term
			if rep.Leads {
				sick, logOnly = rep.Ailing, rep.LogOnly
			}
		}
		s.Term = max(s.Term, rep.Term)
	}
	d := group.Descriptor{Epoch: s.Epoch}
	for _, m := range s.Members {
		d.Members = append(d.Members, group.Member{
			ID: m.Replica, Node: m.Node, Role: roleFromString(m.Role),
		})
	}
	s.addProblem(len(s.Members) == 0, "no_replica")
	s.addProblem(len(s.Members) == 0 && n.seedLost(rec), "seed_lost")
	s.addProblem(s.Leader == 0, "no_leader")
	s.addHalfway(&d, rec, reps, n.world.now())
	s.addProblem(!reached(d, *rec) || len(sick.Down) > 0, "under_replicated")
	s.addProblem(len(sick.Lagging) > 0, "lagging")
	s.addFault(faults, d)
	s.addProblem(logOnly, "log_only_leader")
	return s
}

func (s *GroupSummary) addProblem(has bool, word string) {
	if has {
		s.Problems = append(s.Problems, word)
	}
}

func nonNil(ids []raftyard.NodeID) []raftyard.NodeID {
	if ids == nil {
		return []raftyard.NodeID{}
	}
	return ids
}

// Group returns everything about one group, asking every member.
func (n *Node) Group(ctx context.Context, g raftyard.GroupID) (GroupStatus, error) {
	rec, err := n.knownRecord(g)
	if err != nil {
		return GroupStatus{}, err
	}
	sum := n.summarize(&rec, n.collectReports(ctx, []registry.Group{rec})[g])
	st := GroupStatus{
		GroupSummary:    sum,
		SnapshotEntries: rec.SnapshotEntries, TrailingEntries: rec.TrailingEntries,
	}
	if len(sum.Members) == 0 {
		st.Steering = n.whyNowhere(&rec)
	}
	nodes := slices.Concat(rec.Voters, rec.Learners)
	for _, m := range sum.Members {
		nodes = append(nodes, m.Node)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	st.Replicas = make([]ReplicaStatus, len(nodes))
	var mu sync.Mutex
	var led uint64 // the newest term that a replica leads in
	asks := make([]func(), 0, len(nodes))
	for i, id := range nodes {
		asks = append(asks, func() {
			short, cancel := n.world.withTimeout(ctx, askPatience)
			defer cancel()
			rs, err := n.askReplica(short, id, g)
			if err == nil && rs.Group.Incarnation != rec.Incarnation.String() {
				rs, err = RaftStatus{}, n.anotherGroup(&rec)
			}
			rs.Node = id
			if err != nil {
				rs.Error, rs.Role = err.Error(), "none"
			}
			mu.Lock()
			defer mu.Unlock()
			st.Replicas[i] = rs.ReplicaStatus
			st.NextReplica = max(st.NextReplica, rs.NextReplica)
			if rs.Epoch > st.Epoch {
				st.Epoch, st.Members = rs.Epoch, rs.Members
			}
			if rs.Role == group.Leader.String() && rs.Term > led {
				led, st.Steering = rs.Term, rs.Steering
			}
		})
	}
	n.world.all("ask for a replica", asks)
	st.fillLag()
	st.fillPoison()
	return st, nil
}

func (st *GroupStatus) fillLag() {
	var commit uint64
	for i := range st.Replicas {
		commit = max(commit, st.Replicas[i].Commit)
	}
	for i := range st.Replicas {
		if r := &st.Replicas[i]; r.Error == "" && r.Applied < commit {
			r.Lag = commit - r.Applied
		}
	}
}

// askReplica returns a replica's status, from this node or another.
func (n *Node) askReplica(
	ctx context.Context, at raftyard.NodeID, g raftyard.GroupID,
) (RaftStatus, error) {
	if at == n.cfg.ID {
		return n.RaftStatus(ctx, g)
	}
	var st RaftStatus
	err := n.askJSON(ctx, at, askReplica, wire.AppendUvarint(nil, uint64(g)), &st)
	return st, err
}

// RaftStatus returns raft's own view of one group on this node.
func (n *Node) RaftStatus(ctx context.Context, g raftyard.GroupID) (RaftStatus, error) {
	r := n.replica(g)
	if r == nil {
		return RaftStatus{}, fmt.Errorf("group %d on node %d: %w", g, n.cfg.ID, ErrNoReplica)
	}
	st := RaftStatus{
		Group:         GroupRef{ID: g, Incarnation: r.incarnation.String()},
		ReplicaStatus: ReplicaStatus{Node: n.cfg.ID, Replica: r.id, Role: "none"},
		Members:       []MemberStatus{},
	}
	if r.serving() {
		got := make(chan struct{}, 1)
		r.worker.box.control(func() {
			defer func() { got <- struct{}{} }()
			r.worker.shield(r, "report", func() { r.fillStatus(&st) })
		})
		// That the replica has gone is found below.
		if _, from := await(n.world, got, r.gone, ctx.Done()); from == fromSecond {
			return RaftStatus{}, fmt.Errorf("group %d: %w", g, ctx.Err())
		}
	}
	select {
	case <-r.gone:
		// The worker may still be filling st: begin anew.
		return RaftStatus{
			Group: st.Group, Members: memberStatuses(r.view.Load().State.Descriptor),
			ReplicaStatus: ReplicaStatus{
				Node: n.cfg.ID, Replica: r.id, Role: "none", Fault: r.goneReason().Error(),
				Quarantine: r.quarantine(), LogOnly: r.machine.isLogOnly(),
			},
		}, nil
	default:
		return st, nil
	}
}

// fillStatus is called by the worker.
func (r *replica) fillStatus(st *RaftStatus) {
	s := r.raft.Status()
	d := r.meta.State.Descriptor
	role := s.Role.String()
	if m, ok := d.Member(r.id); ok && m.Role == group.Learner {
		role = "learner"
	}
	first, last := r.log.Bounds()
	st.ReplicaStatus = ReplicaStatus{
		Node: r.node, Replica: r.id, Role: role, Term: s.Term, Vote: s.Vote, Leader: s.Leader,
		Epoch: d.Epoch, First: first, Last: last, Commit: s.Commit, Applied: r.applied.Load(),
		Snapshot: r.snap.index, Bytes: r.log.Bytes(), LogOnly: r.machine.isLogOnly(),
		Asleep: r.sleep.state == asleep,
	}
	st.SnapshotFault = r.source.fault
	if err := r.fault(); err != nil {
		st.Fault, st.Quarantine = err.Error(), r.quarantine()
	}
	st.Members = memberStatuses(d)
	st.NextReplica = uint64(d.NextReplica)
	st.Queued, st.Inflight, st.WaitingReads = s.Queued, s.Inflight, s.Reads
	st.ApplyQueue = r.machine.queued()
	st.Transferee = uint64(s.Transferee)
	st.Installing = r.staged != nil || r.out.Install != nil || r.receiving.Load()
	st.DurableApplied = r.meta.Floor.Index
	st.Steering = r.steering.why
	for id, p := range s.Progress {
		st.Progress = append(st.Progress, PeerProgress{
			Replica: id, Node: r.nodeOf(id), Match: p.Match, Next: p.Next,
			State: p.State, RecentActive: p.RecentActive, Paused: p.Paused,
			Inflight: p.Inflight, Learner: p.Learner,
		})
	}
	slices.SortFunc(st.Progress, func(a, b PeerProgress) int {
		return cmp.Compare(a.Replica, b.Replica)
	})
}

// Hash returns the content hash of a group's state machine on this node. With
// an index it waits until the state machine has applied that index, and fails if
// it has gone further; with zero it takes the state as it is.
func (n *Node) Hash(ctx context.Context, g raftyard.GroupID, index uint64) (HashInfo, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	r, err := n.serving(g)
	if err != nil {
		return HashInfo{}, err
	}
	for r.applied.Load() < index {
		if !n.world.sleep(ctx, pollEvery) {
			return HashInfo{}, fmt.Errorf(
				"group %d: index %d is not applied within the deadline: %w", g, index, ctx.Err())
		}
	}
	type hashed struct {
		info HashInfo
		err  error
	}
	got := make(chan hashed, 1)
	n.appliers.add(r, task{
		run: func(m *machine) {
			h, err := m.hash()
			got <- hashed{err: err, info: HashInfo{
				Group: g, Node: n.cfg.ID, Index: m.position.applied, Hash: hex.EncodeToString(h),
			}}
		},
		drop: func(reason error) { got <- hashed{err: reason} },
	})
	h, from := await(n.world, got, r.gone, ctx.Done())
	switch {
	case from == fromFirst:
		return HashInfo{}, fmt.Errorf("group %d: %w", g, r.goneReason())
	case from == fromSecond:
		return HashInfo{}, ctx.Err()
	case h.err == nil && index != 0 && h.info.Index != index:
		h.err = fmt.Errorf("%w: the state machine is at index %d already, not %d",
			ErrInvalid, h.info.Index, index)
	}
	return h.info, h.err
}

// hash returns the state machine's content hash.
func (m *machine) hash() (h []byte, err error) {
	defer recovered(&err, "Hash")
	if err := m.fault(); err != nil {
		return nil, err
	}
	if m.logOnly.Load() {
		return nil, fmt.Errorf("%w: %w", ErrNoReplica, errLogOnly)
	}
	hasher, ok := m.sm.(group.Hasher)
	if !ok {
		return nil, fmt.Errorf("%w: it has no content hash", ErrUnsupported)
	}
	return hasher.Hash()
}
