package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// nodeReport is what a node tells of itself.
type nodeReport struct {
	Replicas  int    `json:"replicas"`
	Leaders   int    `json:"leaders"`
	DiskFree  int64  `json:"disk_free"`
	DiskLevel string `json:"disk_level"`
	// SyncMicros is how long a sync takes, and SyncedMillis how long the last one is ago.
	SyncMicros   int64  `json:"sync_us,omitempty"`
	SyncedMillis int64  `json:"synced_ms,omitempty"`
	DiskSpeed    string `json:"disk_speed,omitempty"`
	Version      string `json:"version"`
	Boot         uint64 `json:"boot"`
	Movable      int    `json:"movable,omitempty"` // groups that it leads and could hand over
	// Kinds are those of which the node has a state machine, in order.
	Kinds   []string `json:"kinds"`
	LogOnly int      `json:"log_only,omitempty"` // replicas without one

	Databases []DatabaseStatus `json:"databases,omitempty"`
}

func (n *Node) report() nodeReport {
	rep := nodeReport{
		Version: n.cfg.Version, Boot: n.store.Identity().Boot, Kinds: n.cfg.kindNames(),
	}
	c := n.condition()
	rep.DiskLevel, rep.DiskSpeed = c.Level.String(), c.speed()
	rep.SyncMicros, rep.SyncedMillis = c.Sync.Microseconds(), c.Synced.Milliseconds()
	rep.Replicas, rep.Leaders = n.countReplicas()
	rep.DiskFree = n.disk.free.Load()
	rep.Movable, rep.LogOnly = n.countMovable(), n.countLogOnly()
	rep.Databases = n.databases()
	return rep
}

// countLogOnly counts this node's replicas that have no state machine.
func (n *Node) countLogOnly() (count int) {
	for _, r := range n.allReplicas() {
		if r.machine.isLogOnly() {
			count++
		}
	}
	return count
}

// countReplicas counts this node's replicas, without the system group's.
func (n *Node) countReplicas() (replicas, leaders int) {
	for _, r := range n.allReplicas() {
		if r.group == raftyard.SystemGroup {
			continue
		}
		replicas++
		if v := r.view.Load(); r.serving() && v.initialized() && v.Leader == r.id {
			leaders++
		}
	}
	return replicas, leaders
}

// Nodes lists the nodes of the cluster, in the order of their ids. It asks each
// that it is connected to; the others are shown as not live.
func (n *Node) Nodes(ctx context.Context) []NodeStatus {
	list, _ := n.nodeStatuses(ctx, n.registry.Nodes())
	return list
}

// nodeStatuses asks for what these nodes are like, and returns what they tell of
// themselves, too.
func (n *Node) nodeStatuses(
	ctx context.Context, recs []registry.Node,
) ([]NodeStatus, []nodeReport) {
	peers := make(map[raftyard.NodeID]transport.PeerStatus)
	known := n.transport.Peers()
	for i := range known {
		peers[known[i].Node] = known[i]
	}
	found := n.foundAt(known)
	out := make([]NodeStatus, len(recs))
	reports := make([]nodeReport, len(recs))
	var asks []func()
	for i, rec := range recs {
		st := &out[i]
		*st = NodeStatus{
			ID: rec.ID, Peer: rec.Peer, HTTP: rec.HTTP, Labels: rec.Labels,
			State: rec.State.String(), Problem: n.othersAddress(&rec, found),
		}
		if !rec.Store.IsZero() {
			st.Store = rec.Store.String()
		}
		if rec.State == registry.NodeLeaving {
			st.Problem = cmp.Or(n.leaveProblem(&rec), st.Problem)
		}
		if rec.ID == n.cfg.ID {
			st.Self, st.Live = true, true
			reports[i] = n.report()
			st.fill(&reports[i])
			continue
		}
		p := peers[rec.ID]
		st.RTTMicros = p.RTT.Microseconds()
		st.Live = p.Up && !n.foreignStore(rec.ID, raftyard.StoreID(p.Identity.Store))
		current := n.directory(rec.ID).Current
		st.Problem = cmp.Or(n.newcomers.problem(rec.ID, current, n.world.now()), st.Problem)
		if p.LastError != nil && !p.Up {
			st.LastError = p.LastError.Error()
		}
		if !st.Live {
			continue
		}
		asks = append(asks, func() {
			short, cancel := n.world.withTimeout(ctx, askPatience)
			defer cancel()
			if err := n.askJSON(short, rec.ID, askNode, nil, &reports[i]); err != nil {
				st.LastError = err.Error()
				return
			}
			st.fill(&reports[i])
		})
	}
	n.world.all("ask for a node", asks)
	return out, reports
}

func (st *NodeStatus) fill(rep *nodeReport) {
	st.Replicas, st.Leaders, st.LogOnly = rep.Replicas, rep.Leaders, rep.LogOnly
	st.DiskFree, st.DiskLevel, st.DiskSpeed = rep.DiskFree, rep.DiskLevel, rep.DiskSpeed
	st.SyncMicros, st.SyncedMillis = rep.SyncMicros, rep.SyncedMillis
	if st.DiskSpeed == speedStuck {
		st.Live = false
		st.LastError = fmt.Sprintf("its disk does not answer; the last synced write was %v ago",
			time.Duration(st.SyncedMillis)*time.Millisecond)
	}
	st.Version, st.Boot = rep.Version, rep.Boot
	st.Databases = rep.Databases
	st.Problem = rep.problem(st.Problem, st.State == registry.NodeActive.String())
}

// NodeStatus returns one node of the cluster, or what is left of one that was removed.
func (n *Node) NodeStatus(ctx context.Context, id raftyard.NodeID) (NodeStatus, error) {
	st, _, err := n.nodeStatus(ctx, id)
	if rec, _ := n.registry.Node(id); err == nil {
		st.Problem = n.keptBy(ctx, &rec, &st)
	}
	return st, err
}

func (n *Node) nodeStatus(
	ctx context.Context, id raftyard.NodeID,
) (NodeStatus, nodeReport, error) {
	rec, ok := n.registry.Node(id)
	if !ok {
		return NodeStatus{}, nodeReport{}, fmt.Errorf("%w: node %d", ErrNodeNotFound, id)
	}
	list, reports := n.nodeStatuses(ctx, []registry.Node{rec})
	return list[0], reports[0], nil
}

// maxListedProblems bounds the groups that a status names.
const maxListedProblems = 100

// Status returns this node and what it knows of the cluster.
func (n *Node) Status(ctx context.Context) Status {
	ready, checks := n.Ready()
	id := n.store.Identity()
	st := Status{
		Cluster: n.cfg.Cluster, ClusterID: n.cluster.String(), Node: n.cfg.ID,
		Store: id.Store.String(), Boot: id.Boot, Version: n.cfg.Version, Started: n.started,
		Ready: ready, Checks: checks, Nodes: n.Nodes(ctx), Problems: []GroupSummary{},
	}
	st.System = n.systemSummary(ctx)
	st.Groups.Total = n.registry.Counts().Groups
	st.Groups.Replicas, st.Groups.Leaders = n.countReplicas()
	var after raftyard.GroupID
	for {
		list, next, err := n.Groups(ctx, GroupFilter{After: after, Problem: "any"})
		if err != nil {
			break // out of time: what was found so far is shown
		}
		st.Groups.WithProblem += len(list)
		room := maxListedProblems - len(st.Problems)
		st.Problems = append(st.Problems, list[:min(room, len(list))]...)
		if next == 0 {
			break
		}
		after = next
	}
	return st
}

// Ready reports whether the node has come up, and takes part in the cluster: its replicas
// are open, it has read the registry, it is not refused by all the others, its disk answers,
// and it is not closing. Later troubles of groups do not make it unready; [Node.Groups]
// shows those.
func (n *Node) Ready() (bool, []Check) {
	checks := []Check{
		{Name: "store", OK: n.Err() == nil},
		{Name: "replicas", OK: n.isOpen()},
		{Name: "registry", OK: n.ready.Load()},
		{Name: "serving", OK: !n.isClosing()},
		{Name: "disk", OK: !n.slow.muted.Load()},
	}
	if err := n.Err(); err != nil {
		checks[0].Detail = err.Error()
	}
	if !checks[4].OK {
		checks[4].Detail = "the disk does not answer; nothing is served here until it does"
	}
	n.checkRegistry(&checks[2])
	ready := !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
	return ready, checks
}

// checkRegistry says what is wrong with this node's registry. One with which nobody talks any
// more, because another process has taken its place, has it as it was then.
func (n *Node) checkRegistry(c *Check) {
	why := n.standing()
	if c.OK && why == nil {
		return
	}
	c.OK = false
	c.Detail = "the system group has not answered yet; it needs a majority of its voters"
	if w := n.waitsFor.Load(); w != nil {
		c.Detail = fmt.Sprintf("%s; %v", c.Detail, w)
	}
	if why != nil {
		c.Detail = why.Error()
	}
	if err := n.localFault(raftyard.SystemGroup); err != nil {
		c.Detail = "the replica of the system group is stopped: " + err.Error()
	}
}

// Live returns an error when the process cannot work any more and should be
// restarted. It asks neither raft nor the disk.
func (n *Node) Live() error { return n.Err() }

// Kind returns the name of a group's state machine, as far as this node knows: a
// group that has just been created elsewhere may be unknown here for a moment.
func (n *Node) Kind(g raftyard.GroupID) (string, bool) {
	if g == raftyard.SystemGroup {
		return systemKind, true
	}
	rec, ok := n.registry.Group(g)
	if !ok || rec.Deleted {
		return "", false
	}
	return rec.Kind, true
}
