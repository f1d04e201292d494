//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/load"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/internal/device"
)

// In [BenchmarkSnapshotUnderLoad] so many groups are written to, each by a client of its own,
// and the one that follows them is large.
const (
	lightGroups = 16
	heavyGroup  = raftyard.GroupID(lightGroups + 1)
)

// BenchmarkSnapshotUnderLoad measures small puts into 16 groups while another group, which is
// large, gets a member on a node that had none of it: a snapshot is sent, and restored, and the
// log behind it is caught up with. Each round has three phases: without that, with it, and
// without it again. p50-ratio and p99-ratio are those of the phase in the middle over the mean
// of the two around it, sending-ratio that of the p99 until the snapshot had come and its
// restoring began, and noise is the p99 of the third over that of the first.
func BenchmarkSnapshotUnderLoad(b *testing.B) {
	for _, t := range []struct {
		name  string
		bytes int
		rate  int64         // bytes a second; zero: the default
		quiet time.Duration // length of the phases without the transfer
	}{
		{name: "limit=128MiB/size=64MiB", bytes: 64 << 20, quiet: time.Second},
		{name: "limit=128MiB/size=1GiB", bytes: 1 << 30, quiet: 10 * time.Second},
		{name: "limit=50MB/size=1GiB", bytes: 1 << 30, rate: 50e6, quiet: 10 * time.Second},
	} {
		if t.bytes > 64<<20 && testing.Short() {
			continue
		}
		b.Run(t.name, func(b *testing.B) {
			h := newHaul(b, t.bytes, t.rate)
			for b.Loop() {
				h.round(b, t.quiet)
			}
		})
	}
}

// A haul is a cluster whose last node has no member of the large group yet.
type haul struct {
	*cluster
	bytes   int
	clients []*kv.Client // of each node
}

func newHaul(b *testing.B, bytes int, rate int64) *haul {
	b.Helper()
	h := &haul{cluster: openCluster(b, rate), bytes: bytes}
	for _, n := range h.nodes {
		h.clients = append(h.clients, kv.NewClient(n))
	}
	for g := range lightGroups {
		if err := h.create(b.Context(), kindKV, g); err != nil {
			b.Fatal(err)
		}
	}
	if err := h.fill(b.Context()); err != nil {
		b.Fatal(err)
	}
	return h
}

// fill makes the large group, which the first node leads, and cuts its log, so that a new member
// needs a snapshot.
func (h *haul) fill(ctx context.Context) error {
	first := h.nodes[0]
	err := again(ctx, func() error {
		_, err := first.CreateGroup(ctx, node.Spec{
			ID: heavyGroup, Kind: kindKV, Voters: []raftyard.NodeID{1, 2}, TrailingEntries: 1,
		})
		return err
	})
	if err != nil {
		return err
	}
	err = again(ctx, func() error { return first.TransferLeader(ctx, heavyGroup, first.ID()) })
	if err != nil {
		return err
	}
	const valueBytes = 64 << 10
	random := rand.NewChaCha8([32]byte{})
	var all errgroup.Group
	all.SetLimit(lightGroups)
	for n := range h.bytes / valueBytes {
		value := make([]byte, valueBytes)
		_, _ = random.Read(value) // it never fails
		all.Go(func() error {
			_, _, err := h.clients[0].Put(ctx, heavyGroup, fmt.Appendf(nil, "key%06d", n), value,
				kv.Cond{})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	for _, n := range h.nodes[:hosts-1] {
		if _, err := n.TakeSnapshot(ctx, heavyGroup); err != nil {
			return err
		}
	}
	return nil
}

// round measures once, and leaves all as it was.
func (h *haul) round(b *testing.B, quiet time.Duration) {
	b.Helper()
	pause := func(ctx context.Context) error {
		select {
		case <-time.After(quiet):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	h.rest(b)
	h.phase(b, pause)    // to have all warm
	debug.FreeOSMemory() // what filling the group has needed
	before := h.phase(b, pause)
	with := h.phase(b, func(ctx context.Context) error { return h.setMembers(ctx, 1, 2, 3) })
	h.rest(b)
	after := h.phase(b, pause)
	h.report(b, before, with, after)

	if err := h.setMembers(b.Context(), 1, 2); err != nil {
		b.Fatal(err)
	}
	h.rest(b)
}

// setMembers has the large group have other members, and waits until it has them.
func (h *haul) setMembers(ctx context.Context, voters ...raftyard.NodeID) error {
	const patience = 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := h.nodes[0].SetMembers(ctx, heavyGroup, node.Members{Voters: voters}, true)
	return err
}

// rest waits until nothing that was deleted is left to be cleaned up, and the databases have
// merged what they have to.
func (h *haul) rest(b *testing.B) {
	b.Helper()
	most := 120 * time.Second
	if testing.Short() {
		most = 5 * time.Second // others may use the disk for ever
	}
	awaitCalm(b, most, func() bool {
		dropping := 0
		for _, s := range h.stores {
			dropping += s.Stats().Dropping
		}
		return dropping > 0
	})
}

// awaitCalm waits until the disk has taken little, and nobody has been busy, for two seconds.
func awaitCalm(b *testing.B, most time.Duration, busy func() bool) {
	b.Helper()
	const (
		every  = time.Second
		little = 2 << 20
	)
	dir := b.TempDir()
	var last uint64
	calm := 0
	for range most / every {
		taken, err := device.Taken(dir)
		if err != nil {
			b.Fatal(err)
		}
		if calm++; busy() || taken > last+little {
			calm = 0
		}
		if last = taken; calm == 2 {
			return
		}
		pause(b, every)
	}
	b.Logf("the disk has not come to rest within %v", most)
}

// A span is what came of one phase.
type span struct {
	latency load.Histogram // of puts into the other groups
	sending load.Histogram // of those before a snapshot had come
	took    time.Duration
	seen    []sample
}

// phase has all groups be written to while something else is done.
func (h *haul) phase(b *testing.B, do func(context.Context) error) *span {
	b.Helper()
	s, began := &span{}, time.Now()
	watching := watch(h.nodes[hosts-1])
	var over atomic.Bool
	var own, sending [lightGroups + 1]load.Histogram
	all, ctx := errgroup.WithContext(b.Context())
	for g := range own {
		all.Go(func() error {
			for n := 0; !over.Load(); n++ {
				begin := time.Now()
				if err := h.put(ctx, g, n); err != nil {
					return err
				}
				took := time.Since(begin)
				if own[g].Add(took); !watching.got.Load() {
					sending[g].Add(took)
				}
			}
			return nil
		})
	}
	all.Go(func() error {
		defer over.Store(true)
		return do(ctx)
	})
	if err := errors.Join(all.Wait(), watching.stop()); err != nil {
		b.Fatal(err)
	}
	s.took, s.seen = time.Since(began), watching.seen
	for g := range lightGroups {
		s.latency.Merge(&own[g])
		s.sending.Merge(&sending[g])
	}
	return s
}

// put writes to a group, at the node that leads it.
func (h *haul) put(ctx context.Context, g, n int) error {
	const keys = 64
	client := h.clients[g%hosts]
	if groupID(g) == heavyGroup {
		client = h.clients[0]
	}
	_, _, err := client.Put(ctx, groupID(g), fmt.Appendf(nil, "light%02d", n%keys),
		make([]byte, payload), kv.Cond{})
	return err
}

func (s *span) at(q float64) float64 { return float64(s.latency.Quantile(q).Microseconds()) }

// most is the highest that was seen of something.
func (s *span) most(of func(*sample) int64) (most int64) {
	for i := range s.seen {
		most = max(most, of(&s.seen[i]))
	}
	return most
}

// last is the last second of a phase.
func (s *span) last() *span {
	return &span{seen: s.seen[max(0, len(s.seen)-int(time.Second/sampleEvery)-1):]}
}

// rate returns how many bytes of a snapshot came in a second, from the first to the last of
// them, and the most that came within any second.
func (s *span) rate() (mean, most float64) {
	const second = int(time.Second / sampleEvery)
	first, last := 0, 0
	for i := 1; i < len(s.seen); i++ {
		switch got := s.seen[i].received - s.seen[i-1].received; {
		case got == 0:
			continue
		case last == 0:
			first = i - 1
		}
		last = i
	}
	between := func(i, k int) float64 {
		from, to := &s.seen[i], &s.seen[k]
		return float64(to.received-from.received) / to.at.Sub(from.at).Seconds()
	}
	if last == 0 {
		return 0, 0
	}
	for i := first; i+second <= last; i++ {
		most = max(most, between(i, i+second))
	}
	return between(first, last), most
}

func (h *haul) report(b *testing.B, before, with, after *span) {
	b.Helper()
	const (
		mb  = 1e6
		mib = 1 << 20
	)
	got := with.seen[len(with.seen)-1].received - with.seen[0].received
	if got < int64(h.bytes) {
		b.Fatalf("a snapshot of %d bytes was sent, want one of %d", got, h.bytes)
	}
	mean := func(q float64) float64 { return (before.at(q) + after.at(q)) / 2 }
	rate, most := with.rate()
	sending := float64(with.sending.Quantile(0.99).Microseconds())
	for _, p := range []struct {
		name string
		*span
	}{{"without", before}, {"with", with}, {"without", after}} {
		b.Logf("%s the transfer: %d puts in %v; p50 %.0f us, p99 %.0f us, the longest %v; "+
			"at most %d MiB of the heap in use, %d alive, %d without builders, %d of own memory",
			p.name,
			p.latency.Count(), p.took.Round(time.Millisecond), p.at(0.5), p.at(0.99),
			p.latency.Max().Round(time.Microsecond), p.most(heapUsed)/mib, p.most(heapAlive)/mib,
			p.most(heapKept)/mib, p.most(ownMemory)/mib)
	}
	extra := func(of func(*sample) int64) float64 {
		return float64(with.most(of)-before.last().most(of)) / mib
	}
	for name, v := range map[string]float64{
		"p50-ratio":      with.at(0.5) / mean(0.5),
		"p99-ratio":      with.at(0.99) / mean(0.99),
		"sending-ratio":  sending / mean(0.99),
		"noise":          after.at(0.99) / before.at(0.99),
		"p99-us":         with.at(0.99),
		"transfer-s":     with.took.Seconds(),
		"snapshot-MB/s":  rate / mb,
		"most-MB/s":      most / mb,
		"limit-MB/s":     float64(h.limit()) / mb,
		"extra-heap-MiB": extra(heapUsed),
		"extra-live-MiB": extra(heapAlive),
		"extra-kept-MiB": extra(heapKept),
		"extra-own-MiB":  extra(ownMemory),
	} {
		b.ReportMetric(v, name)
	}
}

// limit is how many bytes of snapshots a node takes in a second.
func (h *haul) limit() int64 {
	const normally = 128 << 20
	if h.snapshotRate == 0 {
		return normally
	}
	return h.snapshotRate
}
