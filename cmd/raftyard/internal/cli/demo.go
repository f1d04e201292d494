package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/cmd/raftyard/internal/daemon"
	"github.com/raftyard/raftyard/internal/config"
)

// demoOptions are the flags of the demo.
type demoOptions struct {
	nodes, groups, port int
	dir                 string
	log                 config.Log
}

const (
	defaultDemoPort  = 8700
	defaultDemoLevel = "warn"
	maxDemoNodes     = 9
	maxDemoGroups    = 1000
	demoPatience     = 30 * time.Second // for all leaders
)

func (a *app) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole cluster in this process, to try things out",
		Long: `Run a whole cluster in this process: real connections on loopback and real
directories, which are temporary unless --dir is given. Ctrl-C stops it.`,
		Example: `  raftyard demo
  raftyard demo --nodes 5 --groups 16 --dir ./demo
  raftyard demo --http-port 0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return usageError{err}
			}
			return a.demo(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.nodes, "nodes", 3, "number of nodes")
	flags.IntVar(&o.groups, "groups", 4, "number of groups")
	flags.StringVar(&o.dir, "dir", "", "keep the data here (default: a temporary directory)")
	flags.IntVar(&o.port, "http-port", defaultDemoPort,
		"HTTP port of node 1; the others follow at +10, peers at +1; 0: any free ones")
	flags.StringVar(&o.log.Level, "log-level", defaultDemoLevel,
		strings.Join(config.Levels(), ", "))
	return cmd
}

func (o *demoOptions) check() error {
	last := o.port + 10*(o.nodes-1) + 1
	switch {
	case o.nodes < 1 || o.nodes > maxDemoNodes:
		return fmt.Errorf("--nodes is %d, want 1 to %d", o.nodes, maxDemoNodes)
	case o.groups < 0 || o.groups > maxDemoGroups:
		return fmt.Errorf("--groups is %d, want 0 to %d", o.groups, maxDemoGroups)
	case o.port < 0 || last > 65535:
		return fmt.Errorf("--http-port is %d, want one from which all fit below 65536", o.port)
	case !slices.Contains(config.Levels(), o.log.Level):
		return fmt.Errorf("--log-level is %q, want one of %s",
			o.log.Level, strings.Join(config.Levels(), ", "))
	}
	return nil
}

// A demo is a cluster in this process.
type demo struct {
	app       *app
	options   demoOptions
	dir       string
	listeners []demoListeners
	daemons   []*daemon.Daemon
	log       quietable
}

// A quietable passes on what is written to it until it is quiet: what nodes have
// to say while all go away at once is nothing to worry about.
type quietable struct {
	to    io.Writer
	quiet atomic.Bool
}

// Write writes, or does nothing.
func (q *quietable) Write(b []byte) (int, error) {
	if q.quiet.Load() {
		return len(b), nil
	}
	return q.to.Write(b)
}

// demoListeners are those of one node.
type demoListeners struct {
	http, peer net.Listener
}

func (a *app) demo(ctx context.Context, o demoOptions) (err error) {
	begun := time.Now()
	daemon.TuneProcs(o.nodes)
	d := &demo{app: a, options: o, dir: o.dir, log: quietable{to: a.env.Stderr}}
	err = d.listen(ctx)
	if err != nil {
		return err
	}
	if d.dir == "" {
		if d.dir, err = os.MkdirTemp("", "raftyard-demo-"); err != nil {
			d.closeListeners()
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	}
	defer func() { //nolint:contextcheck // ctx may have ended
		err = errors.Join(err, d.close())
	}()
	if err := d.start(ctx); err != nil {
		return err
	}
	if err := d.awaitLeaders(ctx); err != nil {
		return err
	}
	if err := a.print(d.welcome(time.Since(begun))); err != nil {
		return err
	}
	return d.attend(ctx)
}

// listen binds every port before anything else happens.
func (d *demo) listen(ctx context.Context) error {
	for i := range d.options.nodes {
		var l demoListeners
		var err error
		http, peer := d.ports(i)
		if l.http, err = bindDemo(ctx, http); err == nil {
			l.peer, err = bindDemo(ctx, peer)
		}
		d.listeners = append(d.listeners, l)
		if err != nil {
			d.closeListeners()
			return err
		}
	}
	return nil
}

func (d *demo) ports(i int) (http, peer int) {
	if d.options.port == 0 {
		return 0, 0
	}
	http = d.options.port + 10*i
	return http, http + 1
}

func bindDemo(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d is taken, perhaps by another demo: "+
			"choose other ports with --http-port 8800, or any free ones with --http-port 0", port)
	}
	return ln, err
}

func (d *demo) closeListeners() {
	for _, l := range d.listeners {
		for _, ln := range []net.Listener{l.http, l.peer} {
			if ln != nil {
				_ = ln.Close()
			}
		}
	}
}

// start starts all nodes side by side, as machines would.
func (d *demo) start(ctx context.Context) error {
	d.daemons = make([]*daemon.Daemon, d.options.nodes)
	errs := make([]error, d.options.nodes)
	logger := daemon.NewLogger(&d.log, d.options.log)
	var wg sync.WaitGroup
	for i := range d.options.nodes {
		wg.Go(func() {
			cfg := d.config(i)
			d.daemons[i], errs[i] = daemon.Start(ctx, daemon.Options{
				Config:  cfg,
				Version: buildVersion().Version,
				Logger:  logger.With(slog.Uint64("node", uint64(cfg.Node.ID))),
				HTTP:    d.listeners[i].http,
				Peer:    d.listeners[i].peer,
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// config returns the configuration of a node. Raft's clock is faster than on
// real networks.
func (d *demo) config(i int) config.Config {
	cfg := config.Config{
		Cluster: "demo",
		Node: config.Node{
			ID: raftyard.NodeID(i + 1), DataDir: filepath.Join(d.dir, "n"+strconv.Itoa(i+1)),
		},
		Raft: config.Raft{Tick: 50 * time.Millisecond, ElectionTicks: 10, HeartbeatTicks: 2},
	}
	for j, l := range d.listeners {
		cfg.Nodes = append(cfg.Nodes, config.Peer{
			ID:   raftyard.NodeID(j + 1),
			Peer: l.peer.Addr().String(),
			HTTP: l.http.Addr().String(),
		})
	}
	for g := range d.options.groups {
		cfg.Groups = append(cfg.Groups, config.Group{
			ID: raftyard.GroupID(g + 1), Kind: "kv", Voters: d.voters(g),
		})
	}
	return cfg
}

// voters spreads the groups over the nodes, three to a group.
func (d *demo) voters(g int) []raftyard.NodeID {
	const most = 3
	ids := make([]raftyard.NodeID, 0, most)
	for i := range min(most, d.options.nodes) {
		ids = append(ids, raftyard.NodeID((g+i)%d.options.nodes+1))
	}
	return ids
}

// awaitLeaders waits until every group can be written.
func (d *demo) awaitLeaders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for g := 1; g <= d.options.groups; {
		if _, ok := d.leader(raftyard.GroupID(g)); ok {
			g++
			continue
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrInterrupted) {
				return ErrInterrupted
			}
			return fmt.Errorf("group %d has no leader after %v", g, demoPatience)
		}
	}
	return nil
}

// leader asks the nodes which of them leads a group.
func (d *demo) leader(g raftyard.GroupID) (raftyard.NodeID, bool) {
	for _, one := range d.daemons {
		if id, ok := one.Node().Leader(g); ok && id != 0 {
			return id, true
		}
	}
	return 0, false
}

// welcome says what runs where and what can be done with it.
func (d *demo) welcome(took time.Duration) string {
	var nodes, groups [][]string
	for i, l := range d.listeners {
		id := raftyard.NodeID(i + 1)
		leads := 0
		for g := range d.options.groups {
			if leader, ok := d.leader(raftyard.GroupID(g + 1)); ok && leader == id {
				leads++
			}
		}
		nodes = append(nodes, []string{
			id.String(), "http://" + l.http.Addr().String(), l.peer.Addr().String(),
			strconv.Itoa(leads), d.config(i).Node.DataDir,
		})
	}
	const most = 16
	for g := range min(d.options.groups, most) {
		id := raftyard.GroupID(g + 1)
		leader, _ := d.leader(id)
		groups = append(groups, []string{
			id.String(), "kv", join(d.voters(g)), dash(leader.String()),
		})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "A cluster of %d nodes with %d groups is ready, after %.2f s.\n\n",
		d.options.nodes, d.options.groups, took.Seconds())
	b.WriteString(table([]string{"NODE", "HTTP", "PEER", "LEADS", "DATA"}, nodes))
	if len(groups) > 0 {
		b.WriteString("\n" + table([]string{"GROUP", "KIND", "NODES", "LEADER"}, groups))
	}
	if more := d.options.groups - len(groups); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	b.WriteString(d.lines())
	kept := "removed"
	if d.options.dir != "" {
		kept = "kept in " + d.options.dir
	}
	fmt.Fprintf(&b, "\nCtrl-C stops it. The data is %s.\n", kept)
	return b.String()
}

// lines returns what to paste into another terminal.
func (d *demo) lines() string {
	base := "http://" + d.listeners[0].http.Addr().String()
	other := "http://" + d.listeners[len(d.listeners)-1].http.Addr().String()
	program := cmp.Or(d.app.env.Program, "raftyard")
	at := ""
	if base != defaultAddr {
		at = " --addr " + base
	}
	var b strings.Builder
	b.WriteString("\nTry, in another terminal:\n\n")
	if d.options.groups > 0 {
		fmt.Fprintf(&b, "  curl -X PUT --data-binary hello %s/v1/groups/1/kv/greeting\n", base)
		fmt.Fprintf(&b, "  curl %s/v1/groups/1/kv/greeting\n", other)
		fmt.Fprintf(&b, "  %s kv get 1 greeting%s\n", program, at)
	}
	fmt.Fprintf(&b, "  %s status%s\n", program, at)
	fmt.Fprintf(&b, "  %s group list%s\n", program, at)
	next := d.options.groups + 1
	fmt.Fprintf(&b, "  %s group create %d --voters %s%s\n", program, next, join(d.voters(0)), at)
	return b.String()
}

// attend waits for the end, whoever brings it.
func (d *demo) attend(ctx context.Context) error {
	failed := make(chan *daemon.Daemon, len(d.daemons))
	watch, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, one := range d.daemons {
		wg.Go(func() {
			select {
			case <-one.Failed():
				failed <- one
			case <-watch.Done():
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	select {
	case <-ctx.Done():
		d.app.say("stopping")
		d.log.quiet.Store(d.options.log.Level == defaultDemoLevel)
		return nil
	case one := <-failed:
		return fmt.Errorf("%w: %w", errDiskFailed, one.Node().Err())
	}
}

// close stops the nodes side by side. Nobody will be left to lead, so nothing is
// handed over.
func (d *demo) close() error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	errs := make([]error, len(d.daemons))
	var wg sync.WaitGroup
	for i, one := range d.daemons {
		if one != nil {
			wg.Go(func() { errs[i] = one.Close(ended) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}
