// Package daemon makes one running node of its parts: the key-value store, the
// node, and the HTTP server in front of them.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/config"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/node/admin"
	"github.com/raftyard/raftyard/storage"
)

// Options say what to run.
type Options struct {
	Config  config.Config
	Version string
	Logger  *slog.Logger // default: discard

	// HTTP and Peer are used instead of Config.Listen when they are not nil. The
	// daemon closes them, also when it does not start.
	HTTP net.Listener
	Peer net.Listener
}

// A Daemon is a running node. Close stops it.
type Daemon struct {
	opts   Options
	logger *slog.Logger
	state  *stateStore
	node   *node.Node
	server *http.Server
	served chan error // what Serve has returned
	addr   net.Addr

	crowd *crowd // connections to the HTTP port
	admin admin.Config

	cancelRequests context.CancelFunc // ends every request that is under way

	// handler is replaced when the node is open.
	handler atomic.Pointer[http.Handler]
}

// Limits of a stop. Together they are less than what supervisors usually grant.
const (
	requestsLimit = 3 * time.Second        // for requests that are under way
	answersLimit  = 500 * time.Millisecond // for answers to those that have not ended by then
	nodeLimit     = 4 * time.Second        // for handing leaderships over
	// StopLimit is how long Close takes at most.
	StopLimit = 9 * time.Second
)

// Start opens the node and serves it. While it opens, liveness is answered and
// everything else is refused as not ready.
func Start(ctx context.Context, o Options) (_ *Daemon, err error) {
	d := &Daemon{
		opts:   o,
		logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		served: make(chan error, 1),
	}
	defer func() { //nolint:contextcheck // ctx may have ended
		if err != nil {
			d.abandon()
		}
	}()
	if err := d.listen(ctx); err != nil {
		return nil, err
	}
	d.serve() //nolint:contextcheck // the server outlives ctx
	if err := d.open(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// serve starts the HTTP server. It ends when Close or abandon shuts it down.
func (d *Daemon) serve() {
	d.addr = d.opts.HTTP.Addr()
	base, cancel := context.WithCancel(context.Background())
	d.cancelRequests = cancel
	starting := admin.Starting()
	d.handler.Store(&starting)
	d.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if admin.IsCrowded(r.Context()) {
				w.Header().Set("Connection", "close")
			}
			(*d.handler.Load()).ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       connContext,
		ReadHeaderTimeout: 5 * time.Second,
		// The handler ends each body at the request's own deadline; this one is
		// for what is left unread.
		ReadTimeout:    6 * time.Minute,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(d.logger.Handler(), slog.LevelDebug),
	}
	d.crowd = newCrowd(d.opts.HTTP, d.opts.Config.Limits.HTTPConnections)
	go func() { d.served <- d.server.Serve(d.crowd) }()
}

func (d *Daemon) open(ctx context.Context) error {
	cfg := &d.opts.Config
	if err := os.MkdirAll(cfg.Node.DataDir, 0o750); err != nil {
		return fmt.Errorf("node.data_dir: %w", err)
	}
	// The node locks the directory, so the state is opened only when the node
	// asks for it: a second process on the directory touches nothing.
	d.state = &stateStore{options: kv.StoreOptions{
		Dir:    filepath.Join(cfg.Node.DataDir, "state"),
		Logger: d.logger.With(slog.String("part", "state")),

		ScrubRate:       cfg.Disk.ScrubRate,
		BlockCacheBytes: cfg.Limits.StateBlockCacheBytes,
		IndexCacheBytes: cfg.Limits.StateIndexCacheBytes,
	}}
	n, err := node.Open(ctx, d.nodeConfig())
	if errors.Is(err, storage.ErrLocked) {
		return d.lockedOut(err)
	}
	if err != nil {
		return err
	}
	d.node = n
	d.opts.Peer = nil // the node's now
	if _, err = d.state.open(); err != nil {
		return err
	}
	d.admin = admin.Config{
		Node:    n,
		KV:      kv.NewClient(n),
		Metrics: n.Metrics,
		Logger:  d.logger,

		MaxInFlight:    cfg.Limits.HTTPRequests,
		MaxBodyBytes:   cfg.Limits.HTTPBodyBytes,
		MaxAnswerBytes: cfg.Limits.HTTPAnswerBytes,

		Connections:     d.crowd.connections,
		ConnectionLimit: d.crowd.limit,

		CheckHost: isLoopback(d.addr),
		Hosts:     d.hosts(),
	}
	handler, err := admin.New(d.admin)
	if err != nil {
		return err
	}
	var serving http.Handler = handler
	d.handler.Store(&serving)
	return nil
}

// isLoopback reports whether only this machine can reach addr.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// hosts returns the names by which the configuration knows this node.
func (d *Daemon) hosts() []string {
	cfg := &d.opts.Config
	addrs := []string{cfg.Listen.HTTP, cfg.Advertise.HTTP}
	for _, p := range cfg.Nodes {
		if p.ID == cfg.Node.ID {
			addrs = append(addrs, p.HTTP)
		}
	}
	var hosts []string
	for _, addr := range addrs {
		if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// sleepTicks is the setting as a node takes it, for which zero is the default.
func sleepTicks(set int) int {
	if set == 0 {
		return -1
	}
	return set
}

// scrubRate is the setting as a node takes it, for which zero is the default.
func scrubRate(set int64) int64 {
	if set == 0 {
		return -1
	}
	return set
}

func (d *Daemon) nodeConfig() node.Config {
	cfg := &d.opts.Config
	nc := node.Config{
		ID:             cfg.Node.ID,
		Dir:            cfg.Node.DataDir,
		Cluster:        cfg.Cluster,
		Listener:       d.opts.Peer,
		Advertise:      node.Peer{Addr: cfg.Advertise.Peer, HTTP: cfg.Advertise.HTTP},
		Kinds:          map[string]group.Factory{"kv": d.state.factory},
		TickInterval:   cfg.Raft.Tick,
		ElectionTicks:  cfg.Raft.ElectionTicks,
		HeartbeatTicks: cfg.Raft.HeartbeatTicks,
		SleepTicks:     sleepTicks(cfg.Raft.SleepTicks),
		ScrubRate:      scrubRate(cfg.Disk.ScrubRate),
		SnapshotRate:   cfg.Disk.SnapshotRate,
		StateUpkeep:    d.state.upkeep,
		SlowSync:       cfg.Disk.SlowSync,
		StuckSync:      cfg.Disk.StuckSync,
		FailSync:       cfg.Disk.FailSync,
		Logger:         d.logger,
		Version:        d.opts.Version,
	}
	setLimits(&nc, &cfg.Limits)
	for _, p := range cfg.Nodes {
		nc.Peers = append(nc.Peers, node.Peer{
			ID: p.ID, Addr: p.Peer, HTTP: p.HTTP, Labels: p.Labels,
		})
	}
	for i := range cfg.Groups {
		g := &cfg.Groups[i]
		nc.Groups = append(nc.Groups, node.Spec{
			ID: g.ID, Kind: g.Kind, Voters: g.Voters, Learners: g.Learners,
			SnapshotEntries: g.SnapshotEntries, TrailingEntries: g.TrailingEntries,
		})
	}
	return nc
}

// setLimits takes over the limits that are the node's.
func setLimits(nc *node.Config, l *config.Limits) {
	nc.Bounds = node.Bounds{
		PeerRequests: l.PeerRequests, PeerRequestBytes: l.PeerRequestBytes,
		PeerQueueBytes: l.PeerQueueBytes, WorkerQueueBytes: l.WorkerQueueBytes,
		UnsavedBytes: l.UnsavedBytes, ApplyBacklogBytes: l.ApplyBacklogBytes,
	}
	nc.Limits.MaxQueuedBytes = l.ProposalBytes
	nc.CacheBytes = l.EntryCacheBytes
	nc.SnapshotSends, nc.SnapshotReceives = l.SnapshotSends, l.SnapshotReceives
}

// Node returns the node that runs.
func (d *Daemon) Node() *node.Node { return d.node }

// Addr returns the address of the HTTP server.
func (d *Daemon) Addr() net.Addr { return d.addr }

// Failed is closed when the node has stopped because its disk failed; Err of the
// node then says why.
func (d *Daemon) Failed() <-chan struct{} { return d.node.Failed() }

// DiskFailed reports whether a start has ended because something could not be written or
// synced.
func DiskFailed(err error) bool {
	return errors.Is(err, storage.ErrFailed) || errors.Is(err, kv.ErrFailed) ||
		errors.Is(err, syscall.EIO)
}

// Served receives the reason when the HTTP server ends by itself.
func (d *Daemon) Served() <-chan error { return d.served }

// Close stops serving, lets requests under way finish, hands leaderships over
// and closes the node, each within a limit; [StopLimit] is that of the whole.
// When it is over, Close returns an error and leaves the rest to the end of the
// process. When ctx has ended, nothing is waited for and nothing handed over.
func (d *Daemon) Close(ctx context.Context) error {
	limit := time.NewTimer(StopLimit)
	defer limit.Stop()
	done := make(chan error, 1)
	go func() { done <- d.close(ctx) }()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return fmt.Errorf("the node has not stopped within %v", StopLimit)
	}
}

func (d *Daemon) close(ctx context.Context) error {
	d.closeServer(ctx)
	d.cancelRequests()
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	return errors.Join(d.node.Close(ctx), d.state.close())
}

// closeServer takes no more requests and waits for those under way. One that does
// not end, because its group has no leader perhaps, is ended: its client still
// reads whether it may have had an effect.
func (d *Daemon) closeServer(ctx context.Context) {
	if d.shutdown(ctx, requestsLimit) == nil {
		return
	}
	d.cancelRequests()
	if err := d.shutdown(context.WithoutCancel(ctx), answersLimit); err != nil {
		d.logger.Warn("requests cut off", slog.Any("error", err))
		d.cut()
	}
}

func (d *Daemon) shutdown(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return d.server.Shutdown(ctx)
}

// CloseListeners stops serving at once, without waiting for anybody: nothing
// that is answered after the disk has failed can be vouched for.
func (d *Daemon) CloseListeners() { d.cut() }

func (d *Daemon) cut() {
	d.cancelRequests()
	if err := d.server.Close(); err != nil {
		d.logger.Debug("close server", slog.Any("error", err))
	}
}

// abandon undoes a start that has failed.
func (d *Daemon) abandon() {
	if d.server != nil {
		d.cut()
	}
	var errs []error
	if d.node != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // there is nothing to hand over
		errs = append(errs, d.node.Close(ctx))
	}
	if d.state != nil {
		errs = append(errs, d.state.close())
	}
	for _, ln := range []net.Listener{d.opts.HTTP, d.opts.Peer} {
		if ln != nil {
			errs = append(errs, closeListener(ln))
		}
	}
	if err := errors.Join(errs...); err != nil {
		d.logger.Warn("start undone with errors", slog.Any("error", err))
	}
}

// closeListener closes a listener that may be closed already.
func closeListener(ln net.Listener) error {
	if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
