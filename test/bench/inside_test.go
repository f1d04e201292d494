package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/load"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/test/internal/counter"
)

// Of the groups of [BenchmarkFaultsStayInside] these two come to harm; the others follow.
const (
	poisonedGroup  = raftyard.GroupID(1)
	truncatedGroup = raftyard.GroupID(2)
	firstSound     = raftyard.GroupID(3)
)

// poison is the command that a fragile state machine panics at.
const poison = "poison"

// fragile counts commands until it is given the poison.
type fragile struct{ *counter.Machine }

func newFragile(group.Env) (group.StateMachine, error) {
	return fragile{new(counter.Machine)}, nil
}

func (f fragile) Apply(batch []group.Command) ([]group.Result, error) {
	for _, cmd := range batch {
		if string(cmd.Data) == poison {
			panic("a command that it cannot take")
		}
	}
	return f.Machine.Apply(batch)
}

// BenchmarkFaultsStayInside measures writes to groups that are well while two others are not:
// the state machines of one panic on all nodes, and the log of another was truncated on one
// node and is replaced. Each round has three phases of b.N writes: all sound, with the faults,
// all sound again. Each begins when that node has been started once more, so that they differ
// in the faults alone. No write may fail. p50-ratio and p99-ratio are those of the phase in the
// middle over the mean of the two around it, and p50-noise and p99-noise those of the third over
// the first: medians of the rounds.
func BenchmarkFaultsStayInside(b *testing.B) {
	groups, rounds, writers := 1000, 5, []int{8, 32}
	if testing.Short() {
		groups, rounds, writers = 50, 1, writers[:1]
	}
	b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
		w := newWard(b, groups)
		for _, n := range writers {
			b.Run(fmt.Sprintf("writers=%d", n), func(b *testing.B) {
				b.StopTimer()
				b.ResetTimer()
				if b.N == 1 {
					w.rounds(b, 1, n) // to see that it runs
					return
				}
				w.rounds(b, rounds, n)
			})
		}
	})
}

// A ward is three nodes in this process. The first two lead all groups; the third one is
// started again and again.
type ward struct {
	dir    string
	peers  []node.Peer
	nodes  []*node.Node
	groups raftyard.GroupID // 1 to this one
}

func newWard(b *testing.B, groups int) *ward {
	b.Helper()
	w := &ward{dir: b.TempDir(), nodes: make([]*node.Node, hosts)}
	w.groups = raftyard.GroupID(groups)
	var listeners []net.Listener
	for i := range hosts {
		l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		listeners = append(listeners, l)
		w.peers = append(w.peers, node.Peer{ID: raftyard.NodeID(i + 1), Addr: l.Addr().String()})
	}
	b.Cleanup(func() {
		for i := range w.nodes {
			if err := w.close(i); err != nil {
				b.Error(err)
			}
		}
	})
	for i, l := range listeners {
		if err := w.open(b.Context(), i, l); err != nil {
			b.Fatal(err)
		}
	}
	const atOnce = 64
	all, ctx := errgroup.WithContext(b.Context())
	all.SetLimit(atOnce)
	for g := range w.groups {
		all.Go(func() error { return w.create(ctx, g+1) })
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
	return w
}

func (w *ward) open(ctx context.Context, i int, l net.Listener) error {
	n, err := node.Open(ctx, node.Config{
		ID: w.peers[i].ID, Dir: w.dirOf(i), Cluster: "bench", Peers: w.peers, Listener: l,
		Kinds: map[string]group.Factory{"fragile": newFragile},
	})
	if err == nil {
		w.nodes[i] = n
	}
	return err
}

// close closes a node, if it is open.
func (w *ward) close(i int) error {
	n := w.nodes[i]
	if n == nil {
		return nil
	}
	w.nodes[i] = nil
	return n.Close(context.Background())
}

func (w *ward) dirOf(i int) string { return filepath.Join(w.dir, w.peers[i].ID.String()) }

// home is the node that leads a group.
func (w *ward) home(g raftyard.GroupID) *node.Node { return w.nodes[g%2] }

// create makes a group, with more in its log than is going to be taken from it.
func (w *ward) create(ctx context.Context, g raftyard.GroupID) error {
	err := again(ctx, func() error {
		_, err := w.home(g).CreateGroup(ctx, node.Spec{
			ID: g, Kind: "fragile", Voters: []raftyard.NodeID{1, 2, 3},
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := w.lead(ctx, g); err != nil {
		return err
	}
	for range 5 {
		if _, err := w.home(g).Propose(ctx, g, make([]byte, payload)); err != nil {
			return err
		}
	}
	return nil
}

// lead has a group be led at home.
func (w *ward) lead(ctx context.Context, g raftyard.GroupID) error {
	home := w.home(g)
	return again(ctx, func() error {
		if at, ok := home.Leader(g); ok && at == home.ID() {
			return nil
		}
		return home.TransferLeader(ctx, g, home.ID())
	})
}

// A phase is what came of b.N writes.
type phase struct {
	latency load.Histogram
	took    time.Duration
	faults  time.Duration // until the one was found and the other mended; zero: there were none
}

func (p *phase) at(q float64) float64 { return float64(p.latency.Quantile(q).Microseconds()) }

// rounds measures.
func (w *ward) rounds(b *testing.B, rounds, writers int) {
	b.Helper()
	figures := make(map[string][]float64)
	note := func(name string, v float64) { figures[name] = append(figures[name], v) }
	for i := range rounds {
		before, during, after := w.phase(b, writers, false), w.phase(b, writers, true),
			w.phase(b, writers, false)
		for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
			note(name+"-us", during.at(q))
			note(name+"-ratio", 2*during.at(q)/(before.at(q)+after.at(q)))
			note(name+"-noise", after.at(q)/before.at(q))
		}
		note("faults-ms", float64(during.faults.Milliseconds()))
		b.Logf("round %d of %d writes: p50 %.0f, %.0f, %.0f us; p99 %.0f, %.0f, %.0f us; "+
			"with the faults %v, which were done with after %v", i+1, b.N,
			before.at(0.5), during.at(0.5), after.at(0.5),
			before.at(0.99), during.at(0.99), after.at(0.99),
			during.took.Round(time.Millisecond), during.faults.Round(time.Millisecond))
	}
	for name, all := range figures {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
	}
}

// phase starts the third node again and measures writes from then on.
func (w *ward) phase(b *testing.B, writers int, faults bool) *phase {
	b.Helper()
	ctx := b.Context()
	if err := w.lead(ctx, raftyard.SystemGroup); err != nil {
		b.Fatal(err)
	}
	for g := range w.groups {
		if err := w.lead(ctx, g+1); err != nil {
			b.Fatal(err)
		}
	}
	third := hosts - 1
	old := w.replica(b)
	if err := w.close(third); err != nil {
		b.Fatal(err)
	}
	if faults {
		if err := w.truncate(third); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.open(ctx, third, nil); err != nil {
		b.Fatal(err)
	}
	p := &phase{}
	var all errgroup.Group
	if faults {
		all.Go(func() (err error) {
			p.faults, err = w.harm(ctx, old)
			return err
		})
	}
	err := w.write(b, writers, p)
	if err = errors.Join(err, all.Wait()); err != nil {
		b.Fatal(err)
	}
	if faults {
		if err := w.heal(ctx); err != nil {
			b.Fatal(err)
		}
	}
	w.awaitWell(b)
	return p
}

// write does b.N writes to the sound groups, each at the node that leads.
func (w *ward) write(b *testing.B, writers int, p *phase) error {
	b.Helper()
	command := make([]byte, payload)
	sound := uint64(w.groups - firstSound + 1)
	var next atomic.Uint64
	var mu sync.Mutex
	all, ctx := errgroup.WithContext(b.Context())
	began := time.Now()
	b.StartTimer()
	for range writers {
		all.Go(func() error {
			var own load.Histogram
			for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
				g := firstSound + raftyard.GroupID(n%sound)
				begin := time.Now()
				if _, err := w.home(g).Propose(ctx, g, command); err != nil {
					return fmt.Errorf("group %d: %w; %s", g, err, w.describe(g))
				}
				own.Add(time.Since(begin))
			}
			mu.Lock()
			defer mu.Unlock()
			p.latency.Merge(&own)
			return nil
		})
	}
	err := all.Wait()
	b.StopTimer()
	p.took = time.Since(began)
	return err
}

// describe tells what may be the reason that a write has failed: who leads, and how the disk is.
func (w *ward) describe(g raftyard.GroupID) string {
	var s strings.Builder
	for _, n := range w.nodes {
		m := n.Metrics()
		leader, _ := n.Leader(g)
		fmt.Fprintf(&s, "node %d: led by node %d, syncs take %v, the longest %v, one for %v; ",
			n.ID(), leader, m.SyncAverage, m.SyncWorst, m.SyncInFlight)
	}
	return s.String()
}

// harm has one group be poisoned, and waits until that is known and the truncated log is
// replaced.
func (w *ward) harm(ctx context.Context, old raftyard.ReplicaID) (time.Duration, error) {
	began := time.Now()
	if _, err := w.home(poisonedGroup).Propose(ctx, poisonedGroup, []byte(poison)); err == nil {
		return 0, errors.New("the poisoned group takes what breaks it")
	}
	err := again(ctx, func() error {
		st, err := w.nodes[0].Group(ctx, poisonedGroup)
		if err == nil && st.Poison == nil {
			err = fmt.Errorf("group %d has the problems %q", poisonedGroup, st.Problems)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	err = again(ctx, func() error {
		st, wrong := w.nodes[0].Group(ctx, truncatedGroup)
		if wrong != nil {
			return wrong
		}
		if len(st.Problems) > 0 || newest(st) <= old {
			return fmt.Errorf("group %d: problems %q, replicas %+v", truncatedGroup, st.Problems,
				st.Replicas)
		}
		return nil
	})
	return time.Since(began), err
}

// heal has another group in the place of the poisoned one.
func (w *ward) heal(ctx context.Context) error {
	if err := w.nodes[0].DeleteGroup(ctx, poisonedGroup); err != nil {
		return err
	}
	return w.create(ctx, poisonedGroup)
}

// awaitWell waits until no group has a problem.
func (w *ward) awaitWell(b *testing.B) {
	b.Helper()
	err := again(b.Context(), func() error {
		ill, _, err := w.nodes[0].Groups(b.Context(), node.GroupFilter{Problem: "any"})
		if err == nil && len(ill) > 0 {
			err = fmt.Errorf("%d groups are ill, such as group %d: %q", len(ill), ill[0].ID,
				ill[0].Problems)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

// replica returns the newest replica of the group that is truncated.
func (w *ward) replica(b *testing.B) raftyard.ReplicaID {
	b.Helper()
	st, err := w.nodes[0].Group(b.Context(), truncatedGroup)
	if err != nil {
		b.Fatal(err)
	}
	return newest(st)
}

func newest(st node.GroupStatus) raftyard.ReplicaID {
	var id raftyard.ReplicaID
	for i := range st.Replicas {
		id = max(id, st.Replicas[i].Replica)
	}
	return id
}

// truncate cuts the log of a replica off on a node that is down, below what it has committed.
func (w *ward) truncate(i int) error {
	text, err := os.ReadFile(filepath.Join(w.dirOf(i), storage.IdentityName))
	if err != nil {
		return err
	}
	id := regexp.MustCompile(`(?m)^cluster +(\S+)$`).FindSubmatch(text)
	if id == nil {
		return fmt.Errorf("no cluster in %s", strings.TrimSpace(string(text)))
	}
	cluster, err := uuid.ParseBytes(id[1])
	if err != nil {
		return err
	}
	s, err := storage.Open(storage.Options{
		Dir: w.dirOf(i), Cluster: cluster, Node: w.peers[i].ID,
	})
	if err != nil {
		return err
	}
	return errors.Join(truncateLog(s, truncatedGroup), s.Close())
}

func truncateLog(s *storage.Store, g raftyard.GroupID) error {
	first, last := s.Log(g).Bounds()
	if first+2 > last {
		return fmt.Errorf("the log of group %d is %d to %d, want more of it", g, first, last)
	}
	e, err := s.Log(g).Entries(first, first+1, 1)
	if err != nil {
		return err
	}
	b := s.NewBatch()
	b.Update(g, storage.Update{
		Entries: e,
		HardState: &raftpb.HardState{
			Term: new(s.Log(g).HardState().GetTerm()), Commit: new(e[0].GetIndex()),
		},
	})
	return b.Commit()
}
