package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

const (
	// newcomersEvery is how often a node looks whether a directory can take the place of
	// another.
	newcomersEvery = 2 * time.Second
	// newcomerPatience is how long a newcomer is remembered that does not come again.
	newcomerPatience = 10 * time.Second
	// steadyRounds is how often in a row nothing must have been in the way. The node that
	// leads the system group goes first; the others wait whether it does.
	steadyRounds, steadyRoundsOfOthers = 2, 5
	// maxNamed bounds the groups that a reason names.
	maxNamed = 5
)

// newcomers are nodes that come with another data directory than they are known with,
// and are refused. Who comes again and again gets its place when nobody needs the other
// directory any more: then the registry is told, and the groups replace the members
// that were there by themselves. There are no more of them than nodes.
type newcomers struct {
	count   atomic.Int32 // of list
	refused atomic.Bool  // somebody was, since this node asked the others who is right

	mu   sync.Mutex
	list map[raftyard.NodeID]*newcomer
}

// newcomer is a node that comes with another directory.
type newcomer struct {
	store  raftyard.StoreID
	spent  bool      // the node had this one before
	last   time.Time // when it came
	other  time.Time // when it came with a third directory
	known  time.Time // when the one came that it is known with
	steady int       // rounds in a row in which nothing was in the way
	why    string    // what is in the way
	said   string    // and what the log says of it
}

// refuseNewcomer remembers who comes with another directory, unless there is no such
// node, and says why there is no connection.
func (n *Node) refuseNewcomer(
	from knownStore, dir *group.NodeStore, known bool,
) *transport.RefusalError {
	n.newcomers.refused.Store(true)
	spent := dir.First == from.Store
	why := "nobody here knows yet what it waits for"
	if known {
		why = n.newcomers.saw(from, spent, n.world.now())
	}
	code, what := transport.RefusedReplaced, "its directory was wiped or replaced"
	if spent {
		code, what = transport.RefusedSpent, "it had that one before"
	}
	return refused(code, "node %d is known with data directory %s and comes "+
		"with %s: %s; %s", from.Node, dir.Current, from.Store, what, why)
}

// What is in the way of a newcomer that is none of a group's business.
const (
	spentDirectory = "its replicas there are replaced, and nothing in it is of use any more: " +
		"stop it, and start it in the directory with which it is known or, if that is lost, " +
		"move this one away and start it in an empty one: it is taken in again by itself"
	severalDirectories = "more than one directory comes as this node: stop all of its processes " +
		"but one"
	bothRun = "the node runs in the directory with which it is known as well, or did so until a " +
		"moment ago: stop the one that is not to be"
)

// saw hears that a node has come with another directory, and returns what it waits for.
// One that is spent waits for nothing.
func (c *newcomers) saw(from knownStore, spent bool, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil {
		c.list = make(map[raftyard.NodeID]*newcomer)
	}
	nc := c.list[from.Node]
	switch {
	case nc == nil:
		nc = &newcomer{store: from.Store}
		c.list[from.Node] = nc
		c.count.Store(int32(len(c.list)))
	case nc.store != from.Store && now.Sub(nc.last) < newcomerPatience:
		nc.other = now
		return severalDirectories
	case nc.store != from.Store:
		*nc = newcomer{store: from.Store}
	}
	nc.last, nc.spent = now, spent
	if spent {
		nc.why = spentDirectory
	}
	if nc.why == "" {
		return "it gets the node's place by itself when no group needs the old one any more"
	}
	return nc.why
}

// heard hears that a node has come with the directory that it is known with.
func (c *newcomers) heard(id raftyard.NodeID, now func() time.Time) {
	if c.count.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if nc := c.list[id]; nc != nil {
		nc.known = now()
	}
}

// problem says what is wrong with a node that comes with another directory than the current
// one, or nothing. Nothing is when it comes no more, though nobody has cleared up since.
func (c *newcomers) problem(id raftyard.NodeID, current raftyard.StoreID, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	nc := c.list[id]
	switch {
	case nc == nil || nc.store == current || nc.isGone(now):
		return ""
	case nc.why == "":
		return fmt.Sprintf("it comes with data directory %s, which is not the registered one, "+
			"and is to get its place", nc.store)
	default:
		return fmt.Sprintf("it comes with data directory %s, which is not the registered one, "+
			"and is refused: %s", nc.store, nc.why)
	}
}

// isGone reports whether a newcomer comes no more. Whoever runs comes every two seconds at
// least, so that a few of them are enough once the node is there with its own directory.
func (nc *newcomer) isGone(now time.Time) bool {
	patience := newcomerPatience
	if nc.known.After(nc.last) {
		patience /= 2
	}
	return now.Sub(nc.last) > patience
}

// waiting returns copies of those who have come lately, and forgets the others.
func (c *newcomers) waiting(now time.Time) map[raftyard.NodeID]newcomer {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make(map[raftyard.NodeID]newcomer, len(c.list))
	for id, nc := range c.list {
		if now.Sub(nc.last) > newcomerPatience {
			delete(c.list, id)
			continue
		}
		list[id] = *nc
	}
	c.count.Store(int32(len(c.list)))
	return list
}

// judged notes what is in the way of a newcomer, if anything is, and returns for how many
// rounds nothing was, and whether there is something to say.
func (c *newcomers) judged(id raftyard.NodeID, store raftyard.StoreID, why string) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nc := c.list[id]
	if nc == nil || nc.store != store {
		return 0, false
	}
	nc.why = why
	nc.steady++
	if why != "" {
		nc.steady = 0
	}
	news := why != "" && why != nc.said
	nc.said = why
	return nc.steady, news
}

// gone forgets a newcomer.
func (c *newcomers) gone(id raftyard.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.list, id)
	c.count.Store(int32(len(c.list)))
}

// welcomeNewcomers looks now and then who has come, and gives those their places whom
// nothing is in the way of. Whether it is this node that is behind it asks even before it
// is ready: it may be the one that leads the system group that was refused.
func (n *Node) welcomeNewcomers() {
	n.world.every(n.running, newcomersEvery, func() {
		if n.newcomers.refused.Swap(false) {
			n.learnDirectories(n.running)
		}
		if !n.ready.Load() {
			return
		}
		n.judgeStrangers(n.running)
		waiting := n.newcomers.waiting(n.world.now())
		for _, id := range slices.Sorted(maps.Keys(waiting)) {
			nc := waiting[id]
			n.judgeNewcomer(id, &nc)
		}
	})
}

func (n *Node) judgeNewcomer(id raftyard.NodeID, nc *newcomer) {
	dir := n.directory(id)
	if dir.Current == nc.store {
		n.newcomers.gone(id) // it has got its place
		return
	}
	why := n.whyNotReplace(n.running, id, nc)
	steady, news := n.newcomers.judged(id, nc.store, why)
	if news {
		n.logger.Warn("a node comes with another data directory, and waits", nodeAttr(id),
			stepAttr(why))
	}
	rounds := steadyRoundsOfOthers
	if r := n.replica(raftyard.SystemGroup); r != nil && r.view.Load().Leader == r.id {
		rounds = steadyRounds
	}
	if steady >= rounds {
		n.replaceStore(id, dir.Current, nc.store)
	}
}

// replaceStore has the registry decide that a node has another directory from now on.
func (n *Node) replaceStore(id raftyard.NodeID, old, store raftyard.StoreID) {
	ctx, cancel := n.world.withTimeout(n.running, n.cfg.DefaultTimeout)
	defer cancel()
	if rec, ok := n.registry.Node(id); ok && rec.Store.IsZero() {
		// Nobody has said so to the registry, but that it had this one is noted here.
		rec.Store = old
		set := registry.SetNode{Node: rec, IfAbsent: true, Late: true}
		if err := n.setNode(ctx, set); err != nil {
			n.logger.Warn("register the directory that is lost", nodeAttr(id), errAttr(err))
			return
		}
	}
	res, err := n.command(ctx, registry.EncodeReplaceStore(registry.ReplaceStore{
		ID: id, Old: old, New: store,
	}))
	switch {
	case err != nil:
		n.logger.Warn("replace a data directory", nodeAttr(id), errAttr(err))
	case res.Code == registry.OK:
		n.logger.Info("a node has another data directory now; its replicas are replaced",
			nodeAttr(id), stepAttr(store.String()))
		n.newcomers.gone(id)
	default:
		n.newcomers.judged(id, store, res.Detail)
	}
}

// whyNotReplace returns what is in the way of another directory of a node, or nothing.
// Whatever it says, nothing unsafe comes of replacing: the members in the old directory
// are as good as crashed. But a group that needs one of them would be without it for
// ever.
func (n *Node) whyNotReplace(ctx context.Context, id raftyard.NodeID, nc *newcomer) string {
	switch now := n.world.now(); {
	case now.Sub(nc.other) < newcomerPatience:
		return severalDirectories
	case nc.spent:
		return spentDirectory
	case now.Sub(nc.known) < newcomerPatience || n.isConnected(id):
		return bothRun
	}
	blocked := blockedBy{node: id, store: nc.store, live: n.liveNodes()}
	n.lookForBlocked(ctx, []registry.Group{n.systemRecord()}, &blocked)
	for recs := n.registry.Groups(0, maxPage); len(recs) > 0; {
		n.lookForBlocked(ctx, recs, &blocked)
		if ctx.Err() != nil || len(blocked.reasons) > maxNamed {
			break
		}
		recs = n.registry.Groups(recs[len(recs)-1].ID, maxPage)
	}
	return blocked.String()
}

// lookForBlocked looks at groups, which follow each other in the registry. Those whose
// leader is not where it is looked for first are asked about everywhere.
func (n *Node) lookForBlocked(ctx context.Context, recs []registry.Group, blocked *blockedBy) {
	known := n.collectReports(ctx, recs)
	var unled []registry.Group
	for i := range recs {
		if leaderOf(&recs[i], known[recs[i].ID]) == nil {
			unled = append(unled, recs[i])
			continue
		}
		blocked.look(&recs[i], known[recs[i].ID])
	}
	if len(unled) == 0 {
		return
	}
	var others []raftyard.NodeID
	for id, up := range blocked.live {
		if up && id != n.cfg.ID {
			others = append(others, id)
		}
	}
	slices.Sort(others)
	asked := n.askReports(ctx, askGroups, unled[0].ID, others)
	for i := range unled {
		g := unled[i].ID
		blocked.look(&unled[i], append(known[g], asked[g]...))
	}
}

// isConnected reports whether this node sends to a node in the directory that it is known
// with.
func (n *Node) isConnected(id raftyard.NodeID) bool {
	current := n.directory(id).Current
	return slices.ContainsFunc(n.transport.Peers(), func(p transport.PeerStatus) bool {
		return p.Node == id && p.Up && raftyard.StoreID(p.Identity.Store) == current
	})
}

// blockedBy collects the groups that cannot do without what a node had in a directory.
type blockedBy struct {
	node    raftyard.NodeID
	store   raftyard.StoreID // the newcomer's
	live    map[raftyard.NodeID]bool
	reasons []string

	system, others bool // groups are among them
}

// String says what is in the way, or nothing.
func (b *blockedBy) String() string {
	if len(b.reasons) == 0 {
		return ""
	}
	named, more := b.reasons, ""
	if len(named) > maxNamed {
		named, more = named[:maxNamed], ", and others"
	}
	return "these groups need what was in the registered one: " + strings.Join(named, ", ") +
		more + "; bring the old directory back, or the nodes of their other voters" + b.giveUp()
}

// giveUp says which of the groups can be given up. The system group never can.
func (b *blockedBy) giveUp() string {
	switch {
	case !b.others:
		return ": the system group cannot be deleted"
	case b.system:
		return ", or delete all but the system group by force"
	default:
		return ", or delete them by force"
	}
}

func (b *blockedBy) because(rec *registry.Group, format string, args ...any) {
	if rec.ID == raftyard.SystemGroup {
		b.system = true
	} else {
		b.others = true
	}
	b.reasons = append(b.reasons,
		fmt.Sprintf("group %d (%s)", rec.ID, fmt.Sprintf(format, args...)))
}

// leaderOf returns what the leader of a group says, or nil.
func leaderOf(rec *registry.Group, reps []replicaReport) *replicaReport {
	var leader *replicaReport
	for i := range reps {
		rep := &reps[i]
		if rep.Incarnation == rec.Incarnation.String() && rep.Leads &&
			(leader == nil || rep.Term > leader.Term) {
			leader = rep
		}
	}
	return leader
}

// look adds the group if it needs the node. reps are what its replicas say.
func (b *blockedBy) look(rec *registry.Group, reps []replicaReport) {
	named := rec.Names(b.node) ||
		slices.ContainsFunc(reps, func(rep replicaReport) bool {
			return slices.ContainsFunc(rep.Members, func(m MemberStatus) bool {
				return m.Node == b.node
			})
		})
	leader := leaderOf(rec, reps)
	switch {
	case !named:
	case leader == nil:
		b.because(rec, "it has no leader")
	default:
		b.lookAt(rec, leader)
	}
}

// lookAt counts the voters that are alive without the node, in each half of a joint
// configuration.
func (b *blockedBy) lookAt(rec *registry.Group, leader *replicaReport) {
	halves := []func(group.Role) bool{
		func(r group.Role) bool { return r == group.Voter || r == group.Incoming },
		func(r group.Role) bool {
			return r == group.Voter || r == group.Outgoing || r == group.Demoting
		},
	}
	for _, votes := range halves {
		live, total := 0, 0
		for _, m := range leader.Members {
			if m.Node == b.node && m.Store == b.store.String() {
				b.because(rec, "replica %d was given to the newcomer's directory before", m.Replica)
				return
			}
			if !votes(roleFromString(m.Role)) {
				continue
			}
			total++
			if m.Node != b.node && !slices.Contains(leader.Ailing.Down, m.Node) &&
				(m.Node == leader.Leader || b.live[m.Node]) {
				live++
			}
		}
		if live <= total/2 {
			b.because(rec, "only %d of its %d voters live without it", live, total)
			return
		}
	}
}
