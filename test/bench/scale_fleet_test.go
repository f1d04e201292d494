//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/internal/counter"
)

// A fleet is three nodes in this process that can be killed and started again. Their groups
// have a state machine in memory, and their settings are the defaults.
type fleet struct {
	dir   string
	peers []node.Peer
	nodes [hosts]*node.Node // nil: it does not run
}

// openFleet opens a fleet that is closed when the benchmark ends.
func openFleet(b *testing.B) *fleet {
	b.Helper()
	f := &fleet{dir: b.TempDir()}
	b.Cleanup(func() {
		var all errgroup.Group
		for _, n := range f.nodes {
			if n != nil {
				all.Go(func() error { return n.Close(context.Background()) })
			}
		}
		if err := all.Wait(); err != nil {
			b.Error(err)
		}
	})
	var listeners []net.Listener
	for i := range hosts {
		l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		listeners = append(listeners, l)
		f.peers = append(f.peers, node.Peer{
			ID: raftyard.NodeID(i + 1), Addr: l.Addr().String(),
		})
	}
	for i, l := range listeners {
		if err := f.open(b.Context(), i, l); err != nil {
			b.Fatal(err)
		}
	}
	f.await(b, "all are ready", func() bool {
		for _, n := range f.nodes {
			if ready, _ := n.Ready(); !ready {
				return false
			}
		}
		return true
	})
	return f
}

// open opens a node. Without a listener it listens where it did before.
func (f *fleet) open(ctx context.Context, i int, l net.Listener) (err error) {
	f.nodes[i], err = node.Open(ctx, node.Config{
		ID: f.peers[i].ID, Dir: filepath.Join(f.dir, f.peers[i].ID.String()),
		Cluster: "bench", Peers: f.peers, Listener: l,
		Logger: slog.New(slog.NewJSONHandler(io.Discard, nil)), //nolint:sloglint // as a daemon's
		Kinds:  map[string]group.Factory{kindCounter: counter.New},
	})
	return err
}

// kill ends a node that hands nothing over, and says when that is done.
func (f *fleet) kill(i int) (done func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n := f.nodes[i]
	f.nodes[i] = nil
	var end errgroup.Group
	end.Go(func() error { return n.Close(ctx) })
	return end.Wait
}

// patience is how long anything may take before the benchmark gives up: on a machine that
// does other things as well all takes many times as long as it should.
const patience = 8 * time.Minute

// await waits until something is so.
func (f *fleet) await(b *testing.B, what string, so func() bool) {
	b.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for limit := time.Now().Add(patience); !so(); {
		if time.Now().After(limit) {
			b.Fatalf("after %v it is not so that %s", patience, what)
		}
		<-poll.C
	}
}

// create makes the groups from, to, several at once. What fails is tried again.
func (f *fleet) create(b *testing.B, from, to int) {
	b.Helper()
	const atOnce = 64
	limit, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	all, ctx := errgroup.WithContext(limit)
	all.SetLimit(atOnce)
	for g := from; g < to; g++ {
		all.Go(func() (err error) {
			for ctx.Err() == nil {
				_, err = f.nodes[g%hosts].CreateGroup(ctx, node.Spec{
					ID: groupID(g), Kind: kindCounter, Voters: []raftyard.NodeID{1, 2, 3},
				})
				if err == nil {
					return nil
				}
			}
			return errors.Join(context.Cause(ctx), err)
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

// awaitSleep waits until so many replicas sleep.
func (f *fleet) awaitSleep(b *testing.B, replicas int) {
	b.Helper()
	f.await(b, fmt.Sprintf("%d replicas sleep", replicas), func() bool {
		left := replicas
		for _, n := range f.nodes {
			if n != nil {
				left -= n.Metrics().Asleep
			}
		}
		return left == 0
	})
}

// leaders are the nodes that lead groups, with their terms, as a node knows them.
func (f *fleet) leaders(b *testing.B, at *node.Node, groups int) []leading {
	b.Helper()
	all := make([]leading, groups)
	for g := range all {
		st, err := at.RaftStatus(b.Context(), groupID(g))
		if err != nil {
			b.Fatal(err)
		}
		all[g].term = st.Term
		for _, m := range st.Members {
			if m.Replica == st.Leader {
				all[g].node = m.Node
			}
		}
	}
	return all
}

// leading is who leads a group, and in which term.
type leading struct {
	node raftyard.NodeID
	term uint64
}

// asked counts how often running nodes have asked each other whether one would vote for
// another: who stands for election asks each that can be reached.
func (f *fleet) asked() (count uint64) {
	for _, n := range f.nodes {
		if n != nil {
			count += n.Metrics().Transport.Sent["MsgPreVote"]
		}
	}
	return count
}

// appended counts the bytes that running nodes have written to their log stores.
func (f *fleet) appended() (bytes int64) {
	for _, n := range f.nodes {
		if n != nil {
			bytes += n.Metrics().Store.Bytes
		}
	}
	return bytes
}

// heap is what is alive in the heap.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what has waited in a pool goes with the second one
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpu is the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
