package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// clusterNamespace makes cluster ids out of cluster names (UUID version 5).
var clusterNamespace = uuid.MustParse("6f0b6a0e-7c1c-5d1f-9d0e-2f6b5b1c0a77")

// A Node is a member of many raft groups. Its methods may be called from any
// goroutine.
type Node struct {
	cfg        Config
	logger     *slog.Logger
	world      *surroundings
	cluster    uuid.UUID
	started    time.Time
	store      *storage.Store
	transport  world.Carrier
	committer  *committer
	appliers   *appliers
	unsaved    atomic.Int64 // bytes, see the type
	proposing  atomic.Int64 // bytes of proposals that wait in groups
	sender     *snapshotSender
	files      *background
	lifecycle  *lifecycle
	keeper     *keeper
	arrivals   *arrivals
	claims     *claims
	beginnings *beginnings
	registry   *registry.Registry // shows what the system group's replica has
	workers    []*worker
	metrics    counters
	hints      leaderHints
	watchers   watchers
	purges     purges
	notices    notices

	reread atomic.Bool   // somebody says that a group is deleted; see cleanStrays
	ups    atomic.Uint64 // connections that have come up
	disk   *disk
	slow   slowness
	// liveness is which nodes live.
	liveness liveness
	// conditions are those of the other nodes' disks.
	conditions conditions
	silenced   bool // used by watchSyncs alone

	missing     missingKinds
	stoodStill  atomic.Bool // a state machine has failed
	standstills standstills
	kinds       kindsOf
	wishes      chan stateWish
	unownedLog  limiter

	presents    transport.Identity // to others
	noted       noted
	foreignLog  limiter
	directories atomic.Pointer[directories]
	newcomers   newcomers
	witnesses   witnesses
	strangers   strangers
	underWay    underWay
	founding    founding

	systemReplica atomic.Uint64 // id of the latest replica of the system group

	// outside is why this node takes no part in the cluster, as far as it is known, and
	// shunned why none of the others talks to it any more since it did.
	outside, shunned atomic.Pointer[outsideError]

	letIn        atomic.Bool // the registry knows this node, though it may be no member yet
	announceNext time.Time   // used by housekeeping alone
	reading      *reading    // used by housekeeping alone; nil: none is under way
	waitsFor     atomic.Pointer[startWait]
	whereabouts  whereabouts

	mu       sync.RWMutex
	replicas map[raftyard.GroupID]*replica

	opened   chan struct{} // closed when all replicas are open: peers are heard from then on
	closing  chan struct{} // closed when Close begins: nothing new is taken
	stopped  chan struct{} // closed when everything has stopped
	failed   chan struct{} // closed when the log store has failed
	failOnce sync.Once
	failure  atomic.Pointer[error]

	closeOnce sync.Once
	closeErr  error
	procs     processes       // clock, housekeeping
	running   context.Context // ends when the node stops
	cancel    context.CancelFunc
	chunk     int64       // most bytes of entries in one write
	ready     atomic.Bool // the start-up gate was passed
}

// Open starts a node: it opens the data directory, brings every replica in it
// back, and connects to the peers. It returns when the node takes requests; it
// does not wait for other nodes.
func Open(ctx context.Context, cfg Config) (*Node, error) { return OpenIn(ctx, cfg, nil) }

// OpenIn is [Open] for a node in a world of the simulator's; nil is the real one.
func OpenIn(ctx context.Context, cfg Config, w *world.World) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if w != nil && w.FreeSpace != nil {
		cfg.diskFree = func(string) int64 { return w.FreeSpace() }
	}
	s := newSurroundings(w)
	n := &Node{
		cfg:      cfg,
		logger:   cfg.Logger,
		world:    s,
		cluster:  uuid.NewSHA1(clusterNamespace, []byte(cfg.Cluster)),
		started:  s.now(),
		replicas: make(map[raftyard.GroupID]*replica),
		wishes:   make(chan stateWish, maxWishes),
		opened:   make(chan struct{}),
		closing:  make(chan struct{}),
		stopped:  make(chan struct{}),
		failed:   make(chan struct{}),
	}
	s.files = vfs.Guard(s.files, n.fileFailed)
	n.running, n.cancel = context.WithCancel(context.Background())
	if err := n.start(ctx, w); err != nil {
		return nil, errors.Join(err, n.stop())
	}
	return n, nil
}

// start brings the parts up in the order in which they need each other.
func (n *Node) start(ctx context.Context, in *world.World) error {
	if err := n.checkOwnAddress(); err != nil {
		return err
	}
	store, err := openStore(storage.Options{
		Dir: n.cfg.Dir, Cluster: n.cluster, Node: n.cfg.ID,
		CacheBytes: n.cfg.CacheBytes, MemTableSize: n.cfg.MemTableSize, Logger: n.logger,
		ScrubRate: n.cfg.scrubRate(),
	}, in)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	n.store = store
	n.slow.limits = syncLimits{
		slow: n.cfg.SlowSync, stuck: n.cfg.StuckSync, fail: n.cfg.FailSync,
	}
	n.disk = newDisk(n.world.now, func() int64 { return n.cfg.diskFree(n.cfg.Dir) })
	n.disk.need = needToOpen(store.OpenSpace, n.cfg.StateUpkeep)
	n.disk.look()
	if err := n.checkLimits(); err != nil {
		return err
	}
	n.registry = registry.New(n.genesisNodes(), nil)
	n.lifecycle = newLifecycle(n)
	n.keeper = newKeeper(n)
	n.arrivals = newArrivals(n)
	n.claims, n.beginnings = newClaims(n), newBeginnings(n)
	n.files = newBackground(n.world)
	n.committer = newCommitter(n.world, store, n.fail, n.writeRefused)
	n.committer.slow = &n.slow
	n.committer.start()
	n.appliers = newAppliers(
		n.world, n.cfg.Bounds.ApplyBacklogBytes, n.stopReplica, n.machineFailed)
	n.appliers.start(n.cfg.Appliers)
	for range n.cfg.Workers {
		w := newWorker(n)
		n.workers = append(n.workers, w)
		w.proc = n.world.spawn("worker", w.run)
	}
	if err := n.foundSystemGroup(); err != nil {
		return err
	}
	if err := n.openTransport(in); err != nil {
		return err
	}
	n.sender = newSnapshotSender(n, n.cfg.SnapshotSends)
	if err := n.openReplicas(ctx); err != nil {
		return err
	}
	n.refreshDirectories()
	n.beginWitnesses()
	if in != nil && in.Opened != nil {
		in.Opened(n.Examine)
	}
	close(n.opened)
	n.lifecycle.start()
	n.lifecycle.poke()
	n.bootstrapElection()
	n.work(in != nil)
	return nil
}

// work starts what goes on for as long as the node does.
func (n *Node) work(simulated bool) {
	n.beside("clock", n.clock)
	for _, w := range n.workers {
		n.beside("tidings", w.watchTidings)
	}
	if n.cfg.sleeps() {
		n.beside("heartbeats", n.heartbeats)
	}
	n.beside("reconcile", n.lifecycle.pokeNowAndThen)
	n.beside("housekeeping", n.housekeeping)
	n.beside("keeper", n.keeper.run)
	n.beside("arrivals", n.arrivals.run)
	n.beside("claims", n.claims.run)
	n.beside("beginnings", n.beginnings.run)
	n.beside("drain", func() { n.world.every(n.running, handoffEvery, n.giveAway) })
	n.beside("keep", n.keeper.pokeNowAndThen)
	n.beside("founding", n.becomeKnown)
	n.beside("witnesses", n.askWitnesses)
	n.beside("newcomers", n.welcomeNewcomers)
	n.beside("disk", n.watchDisk)
	n.beside("conditions", n.askConditions)
	n.beside("syncs", n.watchSyncs)
	n.beside("probe", n.probeDisk)
	n.beside("kinds", n.learnKinds)
	for range n.cfg.SnapshotReceives {
		n.beside("states", n.askForStates)
	}
	if simulated {
		n.beside("store", n.keepStore)
		return // its databases have no files
	}
	n.beside("rot", n.watchRot)
}

// checkLimits makes sure that whatever one step of a replica may hold fits into
// one write of the log store.
func (n *Node) checkLimits() error {
	if err := n.cfg.Limits.Validate(); err != nil {
		return fmt.Errorf("node: config: Limits: %w", err)
	}
	maxEntry := cmp.Or(n.cfg.Limits.MaxEntryBytes, defaultMaxEntry)
	have := n.store.Limits()
	n.chunk = min(have.MaxUpdateBytes, have.MaxBatchBytes/2) * 3 / 4
	if maxEntry > have.MaxEntryBytes {
		return fmt.Errorf(
			"node: config: Limits.MaxEntryBytes is %d, the log store takes %d at most",
			maxEntry, have.MaxEntryBytes)
	}
	return nil
}

// openTransport connects the node to the network.
func (n *Node) openTransport(in *world.World) error {
	id, err := n.store.Present(n.ownStart())
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	n.presents = transport.Identity{
		Cluster: n.cluster, Node: n.cfg.ID, Store: id.Store, Boot: id.Boot,
		Process: id.Starts.Last().Process, Lineage: id.Starts.Encode(),
	}
	cfg := transport.Config{
		Identity:        n.presents,
		Listener:        n.cfg.Listener,
		Listen:          n.cfg.Listen,
		Advertise:       n.cfg.self().Addr,
		Resolve:         n.resolve,
		Admit:           n.admit,
		Handler:         &handler{n},
		MaxSnapshotsOut: n.cfg.SnapshotSends, MaxSnapshotsIn: n.cfg.SnapshotReceives,
		MaxRequests: n.cfg.Bounds.PeerRequests, MaxRequestBytes: n.cfg.Bounds.PeerRequestBytes,
		MaxQueueBytes: n.cfg.Bounds.PeerQueueBytes,
		Logger:        n.logger,

		SnapshotBytesPerSecond: n.cfg.SnapshotRate,
	}
	t, err := listen(cfg, n.cfg.Network, in)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	n.transport = t
	return nil
}

// resolve says where a node may be: where it says itself, where the registry has it, where
// the configuration does, and where others have heard that it is. Each of them may be the
// only one that is right: when all nodes have moved at once, they must find each other
// before anything can be registered, and one that has joined or moved may call before this
// node has heard of that.
func (n *Node) resolve(id raftyard.NodeID, told string) []string {
	rec, _ := n.registry.Node(id)
	if rec.State == registry.NodeRemoved {
		return nil
	}
	configured, _ := n.cfg.peer(id)
	return []string{told, rec.Peer, configured.Addr, n.whereabouts.addr(id)}
}

func (n *Node) genesisNodes() []registry.Node {
	nodes := make([]registry.Node, 0, len(n.cfg.Peers))
	for _, p := range n.cfg.Peers {
		nodes = append(nodes, registry.Node{ID: p.ID, Peer: p.Addr, HTTP: p.HTTP, Labels: p.Labels})
	}
	return nodes
}

// uptime is how long the node has run.
func (n *Node) uptime() time.Duration { return n.world.now().Sub(n.started) }

// ticks is how long so many ticks take.
func (n *Node) ticks(count int) time.Duration {
	return time.Duration(count) * n.cfg.TickInterval
}

// clock ticks every worker. A worker that is late has its ticks bounded.
func (n *Node) clock() {
	n.world.every(n.running, n.cfg.TickInterval, func() {
		for _, w := range n.workers {
			w.box.tick()
		}
	})
}

// beside runs a part of the node that ends with n.running.
func (n *Node) beside(name string, fn func()) {
	n.procs = append(n.procs, n.world.spawn(name, fn))
}

// workerOf pins a group to a worker.
func (n *Node) workerOf(g raftyard.GroupID) *worker {
	// Fibonacci hashing spreads ids that follow one another.
	const golden = 0x9E3779B97F4A7C15
	return n.workers[(uint64(g)*golden>>32)%uint64(len(n.workers))]
}

// replica returns this node's replica of a group, serving or stopped, or nil.
func (n *Node) replica(g raftyard.GroupID) *replica {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.replicas[g]
}

// allReplicas returns every replica. In a simulation the order is that of groups,
// elsewhere there is none.
func (n *Node) allReplicas() []*replica {
	n.mu.RLock()
	defer n.mu.RUnlock()
	rs := make([]*replica, 0, len(n.replicas))
	for _, r := range n.replicas {
		rs = append(rs, r)
	}
	if n.world.turns != nil {
		slices.SortFunc(rs, byGroup)
	}
	return rs
}

// stopReplica stops a replica that cannot go on. It stays on disk and in view.
func (n *Node) stopReplica(r *replica, reason error) {
	if errors.Is(reason, group.ErrFatal) {
		n.fail(reason)
	}
	if !r.serving() {
		return
	}
	n.logger.Error("replica stopped; the rest of the node goes on",
		groupAttr(r.group), replicaAttr(r.id), errAttr(reason))
	if p, ok := errors.AsType[*panicError](reason); ok {
		n.logger.Error("where it was", groupAttr(r.group), stackAttr(p.stack))
	}
	n.metrics.replicasStopped.Add(1)
	r.events.fault(n.world.now(), reason)
	r.stopServing(reason)
	n.liveness.turn.Add(1) // others may sleep in the belief that it is there
	r.worker.box.control(func() { r.worker.retire(r, reason) })
	n.noteChange()
}

// fail is called when the log store, or a store that state machines share, cannot
// write any more. What is on its disk
// is unknown; only a restart can learn it. Nothing is vouched for from here on.
func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.failure.Store(&err)
		n.logger.Error("a store has failed; this node vouches for nothing any more "+
			"and must be restarted", errAttr(err))
		close(n.failed)
	})
}

// fileFailed is called when a file of the node's own could not be written or synced.
func (n *Node) fileFailed(err error) { n.fail(fmt.Errorf("a file of the node: %w", err)) }

// writeRefused stops a replica whose write makes no sense to the log store.
func (n *Node) writeRefused(g raftyard.GroupID, err error) {
	if r := n.replica(g); r != nil {
		n.stopReplica(r, faulty(RefusedWrite, fmt.Errorf("log store: %w", err)))
	}
}

// Failed is closed when the log store has failed, or a store that state machines
// share ([group.ErrFatal]). A program must watch it, stop
// listening and exit; a restart finds out what was kept.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err returns why the node failed, or nil.
func (n *Node) Err() error {
	if p := n.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// ID returns the node's id.
func (n *Node) ID() raftyard.NodeID { return n.cfg.ID }

// withDeadline gives ctx the default timeout if it has no deadline, and ends it when the
// node closes.
func (n *Node) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return n.withLimit(ctx, n.limitOf(ctx))
}

// limitOf returns how long a request may take: zero if ctx says so.
func (n *Node) limitOf(ctx context.Context) time.Duration {
	if _, ok := ctx.Deadline(); ok {
		return 0
	}
	return n.cfg.DefaultTimeout
}

// withLimit is withDeadline with a timeout, zero for none.
func (n *Node) withLimit(
	ctx context.Context, limit time.Duration,
) (context.Context, context.CancelFunc) {
	stop := func() {}
	if limit > 0 {
		ctx, stop = n.world.withTimeout(ctx, limit)
	}
	ctx, end := context.WithCancelCause(ctx)
	over := n.underWay.begin(end)
	return ctx, func() {
		over()
		end(context.Canceled)
		stop()
	}
}

func groupAttr(g raftyard.GroupID) slog.Attr     { return slog.Uint64("group", uint64(g)) }
func replicaAttr(r raftyard.ReplicaID) slog.Attr { return slog.Uint64("replica", uint64(r)) }
func nodeAttr(id raftyard.NodeID) slog.Attr      { return slog.Uint64("node", uint64(id)) }
func errAttr(err error) slog.Attr                { return slog.Any("error", err) }
func countAttr(c int) slog.Attr                  { return slog.Int("count", c) }
func stepAttr(what string) slog.Attr             { return slog.String("what", what) }
func slogIDs(key string, ids []raftyard.NodeID) slog.Attr {
	return slog.String(key, fmt.Sprint(ids))
}
func bytesAttr(key string, v int64) slog.Attr { return slog.Int64(key+"_bytes", v) }
func stackAttr(stack []byte) slog.Attr        { return slog.String("stack", string(stack)) }

// compile-time checks of what embedders rely on.
var _ group.StateMachine = (*registry.Registry)(nil)
