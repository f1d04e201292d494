//go:build unix

package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/transport"
)

const (
	childEnv = "RAFTYARD_CRASH_CHILD" // orders, in the child

	childTick = 10 * time.Millisecond
	// showLimit is how long the groups may take to answer after a start.
	showLimit = 30 * time.Second
	// callLimit ends each call of the work.
	callLimit = 2 * time.Second
)

// orders are what a child is told.
type orders struct {
	Dir    string
	Life   int // counts from 1
	Seed   uint64
	Nodes  int
	Groups int
	Aim    aim
	// Run are the nodes of this child, if it has not all of them; it then works
	// only on groups that these are members of.
	Run []raftyard.NodeID
	// Follow has the child do nothing but be there, once its replicas have caught up.
	Follow bool
	// Peers are the addresses at which the nodes reach each other over TCP; each
	// listens at some other, which it tells. Empty: they are connected in memory.
	Peers []string
	// Check has the child show what there is, close its nodes and exit.
	Check bool
	// Calm has groups only written and their logs cut.
	Calm bool
	Lie  lie
}

// An aim is the moment at which the parent kills.
type aim struct {
	Phase string // empty: some time after the start
	Nth   int    // the how manieth
	Early bool   // counted from the start, and not from when the child is ready
	Hold  bool   // the replica stays in the phase until it is killed

	Delay time.Duration // after the phase, or after the start
}

func (a aim) String() string {
	text := a.Phase
	if text == "" {
		return fmt.Sprintf("%v after the start", a.Delay.Round(time.Millisecond))
	}
	if a.Hold {
		text = "within " + text
	}
	text += " " + strconv.Itoa(a.Nth)
	if a.Early {
		text += " of the start"
	}
	return text + " + " + a.Delay.Round(time.Millisecond).String()
}

// A child is the process that is killed.
type child struct {
	orders
	speaker

	network *transport.Memory // nil: TCP
	members []*member
	groups  []*workGroup
	numbers atomic.Uint64 // of calls and tokens

	opened, ready atomic.Bool
	aimed         atomic.Int64 // how often the phase that is aimed at has come
}

// A member is one node of the child.
type member struct {
	id    raftyard.NodeID
	node  *node.Node
	store *kv.Store
	kv    *kv.Client
}

// childMain runs a child and returns its exit code.
func childMain(text string) int {
	c := &child{speaker: speaker{out: os.Stdout}}
	err := json.Unmarshal([]byte(text), &c.orders)
	if err == nil {
		err = c.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the child gives up:", err)
		return 1
	}
	return 0
}

func (c *child) run(ctx context.Context) error {
	if len(c.Peers) == 0 {
		c.network = transport.NewMemory(c.Seed)
	}
	if err := c.open(ctx); err != nil {
		return err
	}
	c.opened.Store(true)
	c.say(sayOpened)
	for i := range c.Groups {
		c.groups = append(c.groups, newWorkGroup(raftyard.GroupID(i+1)))
	}
	show := c.show
	if c.Follow {
		show = c.follow
	}
	if err := show(ctx); err != nil {
		return err
	}
	c.ready.Store(true)
	c.say(sayReady)
	if c.Follow {
		<-ctx.Done() // for ever
	}
	if c.Check {
		return errors.Join(c.noLeftovers(ctx), c.close(ctx))
	}
	c.work(ctx) // for ever
	return errors.New("the work has ended")
}

// open opens all nodes of this child at the same time.
func (c *child) open(ctx context.Context) error {
	run := c.Run
	for i := 0; len(run) < c.Nodes && len(c.Run) == 0; i++ {
		run = append(run, raftyard.NodeID(i+1))
	}
	c.members = make([]*member, len(run))
	errs := make([]error, len(run))
	var wg sync.WaitGroup
	for i, id := range run {
		wg.Go(func() { c.members[i], errs[i] = c.openNode(ctx, id) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *child) openNode(ctx context.Context, id raftyard.NodeID) (*member, error) {
	dir := filepath.Join(c.Dir, "n"+id.String())
	logger := slog.New(&alarm{speaker: &c.speaker, node: id})
	store, err := kv.OpenStore(kv.StoreOptions{Dir: filepath.Join(dir, "state"), Logger: logger})
	if err != nil {
		return nil, err
	}
	cfg := node.Config{
		ID: id, Dir: dir, Cluster: "crash", Logger: logger,
		Kinds: map[string]group.Factory{
			kindList: newList(c.phase), kindKV: newWatched(store, c.phase),
		},
		TickInterval: childTick, MemTableSize: 2 << 20,
		Limits: group.Limits{MaxEntryBytes: 64 << 10},
	}
	for i := range c.Nodes {
		peer := node.Peer{ID: raftyard.NodeID(i + 1)}
		peer.Addr = transport.MemoryAddr(peer.ID)
		if c.network == nil {
			peer.Addr = c.Peers[i]
		}
		cfg.Peers = append(cfg.Peers, peer)
	}
	if c.network != nil {
		cfg.Network = c.network
	} else {
		cfg.Listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		c.say(sayListen, id, cfg.Listener.Addr())
	}
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("node %d: %w", id, err)
	}
	return &member{id: id, node: n, store: store, kv: kv.NewClient(n)}, nil
}

// close closes all nodes, as a program that ends does.
func (c *child) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = errors.Join(m.node.Close(ctx), m.store.Close()) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// phase is the hook of all state machines: it tells, and stays if that is aimed at.
func (c *child) phase(name string, env group.Env) {
	if name == phaseOpen && c.opened.Load() {
		name = phaseFound
	}
	c.say(sayPhase, name, env.Group, env.Node)
	counts := c.Aim.Early || c.ready.Load()
	if name != c.Aim.Phase || !counts || c.aimed.Add(1) < int64(c.Aim.Nth) || !c.Aim.Hold {
		return
	}
	c.say(sayHeld, name)
	select {}
}

// dice returns random numbers that depend on the seed, the life and the user.
func (c *child) dice(user uint64) *rand.Rand {
	return rand.New(rand.NewPCG(c.Seed+uint64(c.Life)<<32, user))
}

// An alarm is a log handler that tells the parent of errors.
type alarm struct {
	speaker *speaker
	node    raftyard.NodeID
	text    string
}

// Enabled picks errors.
func (*alarm) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

// Handle says the record.
func (a *alarm) Handle(_ context.Context, r slog.Record) error {
	text := fmt.Sprintf("node %d: %s%s", a.node, r.Message, a.text)
	r.Attrs(func(attr slog.Attr) bool {
		text += " " + attr.String()
		return true
	})
	a.speaker.say(sayFault, strconv.Quote(text))
	return nil
}

// WithAttrs remembers attributes.
func (a *alarm) WithAttrs(attrs []slog.Attr) slog.Handler {
	b := *a
	for _, attr := range attrs {
		b.text += " " + attr.String()
	}
	return &b
}

// WithGroup forgets that there is a group: this is for people.
func (a *alarm) WithGroup(string) slog.Handler { return a }
