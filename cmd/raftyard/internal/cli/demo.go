package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/cmd/raftyard/internal/daemon"
	"github.com/raftyard/raftyard/internal/config"
	"github.com/raftyard/raftyard/node"
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
)

func (a *app) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole cluster in this process, to try things out",
		Long: `Run a whole cluster in this process: real connections on loopback and real
directories, which are temporary unless --dir is given. Ctrl-C, SIGTERM or SIGHUP stops
it.`,
		Example: `  raftyard demo
  raftyard demo --nodes 5 --groups 16 --dir ./demo
  raftyard demo --http-port 0`,
		Args: wantArgs,
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
	completeWords(cmd, "log-level", config.Levels())
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
	phase     demoPhase
	groups    []node.GroupSummary // what runs, when it is ready
}

// demoListeners are those of one node.
type demoListeners struct {
	http, peer net.Listener
}

func (a *app) demo(ctx context.Context, o demoOptions) error {
	if err := o.checkDir(); err != nil {
		return usageError{err}
	}
	daemon.TuneProcs(o.nodes)
	daemon.TuneMemory(o.nodes, 0)
	d := &demo{app: a, options: o, dir: o.dir}
	// From the signal on, what nodes have to say about each other going away is
	// nothing to worry about.
	calm := context.AfterFunc(ctx, d.phase.stop)
	defer calm()
	if err := d.listen(ctx); err != nil {
		return err
	}
	if d.dir == "" {
		var err error
		if d.dir, err = os.MkdirTemp("", "raftyard-demo-"); err != nil {
			d.closeListeners()
			return err
		}
	}
	err := d.run(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrInterrupted) {
		err = ErrInterrupted // before it was ready
	}
	return errors.Join(err, d.end()) //nolint:contextcheck // ctx may have ended
}

// run starts the nodes, says what they are, and waits for the end.
func (d *demo) run(ctx context.Context) error {
	begun := time.Now()
	if err := d.start(ctx); err != nil {
		return err
	}
	if err := d.awaitGroups(ctx); err != nil {
		return err
	}
	d.phase.run()
	if err := d.app.print(d.welcome(time.Since(begun))); err != nil {
		return err
	}
	return d.attend(ctx)
}

// end stops the nodes, removes what is temporary, and says so.
func (d *demo) end() error {
	d.phase.stop()
	err := d.close()
	if d.options.dir == "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	if err == nil {
		d.app.say("stopped; the data is %s", d.kept())
	}
	return err
}

// kept says what becomes of the data.
func (d *demo) kept() string {
	if d.options.dir != "" {
		return "kept in " + d.options.dir
	}
	return "removed"
}

// checkDir refuses a directory that holds another number of nodes, before
// anything is made there.
func (o *demoOptions) checkDir() error {
	if o.dir == "" {
		return nil
	}
	info, err := os.Stat(o.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--dir: %w", err)
	case !info.IsDir():
		return fmt.Errorf("--dir is %s, which is no directory", o.dir)
	}
	held := 0
	for i := 1; i <= maxDemoNodes; i++ {
		if _, err := os.Stat(filepath.Join(o.dir, "n"+strconv.Itoa(i))); err == nil {
			held = i
		}
	}
	if held > 0 && held != o.nodes {
		return fmt.Errorf("the directory holds a demo of %s: use --nodes %d",
			count(held, "node"), held)
	}
	return nil
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
	logger := daemon.NewLogger(d.app.env.Stderr, d.options.log)
	if d.options.log.Level == defaultDemoLevel {
		logger = slog.New(calmHandler{Handler: logger.Handler(), phase: &d.phase})
	}
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
		Raft: config.Raft{
			Tick: 50 * time.Millisecond, ElectionTicks: 10, HeartbeatTicks: 2, SleepTicks: 30,
		},
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
	slices.Sort(ids)
	return ids
}

// Limits of the wait for the groups.
const (
	demoPatience = 30 * time.Second // for a leader of each
	demoMembers  = 5 * time.Second  // for the rest, which a kept directory may lack
)

// awaitGroups waits until every group can be written and has all of its members,
// whichever node is asked.
func (d *demo) awaitGroups(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for begun := time.Now(); ; {
		led, whole := d.look(ctx)
		if whole || led && time.Since(begun) > demoMembers {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("not every group has a leader after %v", demoPatience)
		}
	}
}

// look asks every node for the groups and notes them: whether all that shall be
// there have a leader, and whether all is well.
func (d *demo) look(ctx context.Context) (led, whole bool) {
	whole = true
	for _, one := range d.daemons {
		groups, err := allGroups(ctx, one.Node())
		if err != nil || len(groups) < d.options.groups {
			return false, false
		}
		for i := range groups {
			if groups[i].Leader == 0 {
				return false, false
			}
			whole = whole && len(groups[i].Problems) == 0
		}
		d.groups = groups
	}
	return true, whole
}

func allGroups(ctx context.Context, n *node.Node) ([]node.GroupSummary, error) {
	var all []node.GroupSummary
	var f node.GroupFilter
	for {
		page, next, err := n.Groups(ctx, f)
		all = append(all, page...)
		if err != nil || next == 0 {
			return all, err
		}
		f.After = next
	}
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
