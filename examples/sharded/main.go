// Command sharded shows a program that spreads its keys over many groups: 64
// shards on three nodes, concurrent writers, and a fourth node that takes its
// share of the shards over while the others go on.
//
//	go run ./examples/sharded
//
// The router (router.go) and the state machine (stock.go) are the program's own.
// Real nodes are processes with addresses; these four share one process and a
// network in memory.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/transport"
)

const (
	writers = 16
	orders  = 100 // of each writer, in each round
)

func main() {
	dir, err := os.MkdirTemp("", "raftyard-sharded-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	err = errors.Join(run(context.Background(), os.Stdout, dir), os.RemoveAll(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run creates the shards on three nodes, writes, moves shards to the fourth node
// while it writes again, and counts.
func run(ctx context.Context, out io.Writer, dir string) (err error) {
	nodes, err := open(ctx, dir, 4)
	defer func() { err = errors.Join(err, closeAll(ctx, nodes)) }()
	if err != nil {
		return err
	}
	if err = create(ctx, nodes[0], []raftyard.NodeID{1, 2, 3}); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d shards on nodes 1 to 3\n", shards)
	if err = write(ctx, nodes); err != nil {
		return err
	}
	spread(ctx, out, nodes[0])

	moved := 0
	both, bctx := errgroup.WithContext(ctx)
	both.Go(func() error { return write(bctx, nodes) })
	both.Go(func() (err error) {
		moved, err = rebalance(bctx, nodes[0], []raftyard.NodeID{1, 2, 3, 4})
		return err
	})
	if err = both.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d shards moved to node 4, while %d orders came in\n", moved, writers*orders)
	spread(ctx, out, nodes[0])

	sum, err := count(ctx, nodes)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %d orders are in stock\n", sum, 2*writers*orders)
	return nil
}

// create makes the groups, several at a time. It can be repeated: a group that is
// there as wanted is no error.
func create(ctx context.Context, n *node.Node, on []raftyard.NodeID) error {
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(16)
	for g := raftyard.GroupID(1); g <= shards; g++ {
		eg.Go(func() error {
			_, err := n.CreateGroup(ctx, node.Spec{ID: g, Kind: "stock", Voters: place(g, on)})
			return err
		})
	}
	return eg.Wait()
}

// write has writers place orders through all nodes, each for articles of all shards.
func write(ctx context.Context, nodes []*node.Node) error {
	eg, ctx := errgroup.WithContext(ctx)
	for w := range writers {
		n := nodes[w%len(nodes)]
		eg.Go(func() error {
			for i := range orders {
				if err := order(ctx, n, fmt.Sprint("article-", w*7+i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return eg.Wait()
}

// order has an article counted in its shard. When a queue is full, nothing was
// queued, and it is tried again; for a leader, where one lacks, Propose waits itself.
// An unknown outcome is not for trying again: the article might be counted twice.
func order(ctx context.Context, n *node.Node, article string) error {
	return retry(ctx, node.ErrOverloaded, func() error {
		_, err := n.Propose(ctx, groupOf(article), []byte(article))
		return err
	})
}

// retry calls try until it ends otherwise than with an error of one kind, for
// about two seconds.
func retry(ctx context.Context, kind error, try func() error) error {
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		err := try()
		if !errors.Is(err, kind) || wait > time.Second {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// rebalance places the shards on a new set of nodes, a few at a time: it changes
// the members of those that have another place now, and hands the leadership to
// where it shall be. It can be repeated, too.
func rebalance(ctx context.Context, n *node.Node, on []raftyard.NodeID) (moved int, err error) {
	list, _, err := n.Groups(ctx, node.GroupFilter{})
	if err != nil {
		return 0, err
	}
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(8)
	for i := range list {
		g := &list[i]
		voters := place(g.ID, on)
		leave := !slices.Equal(slices.Sorted(slices.Values(g.Voters)),
			slices.Sorted(slices.Values(voters)))
		if leave {
			moved++
		}
		eg.Go(func() error {
			if leave {
				m := node.Members{Voters: voters, ExpectEpoch: g.Epoch}
				if _, err := n.SetMembers(ctx, g.ID, m, true); err != nil {
					return err
				}
			}
			// The new leader must be in touch with the old one, and have its log.
			return retry(ctx, node.ErrTransfer, func() error {
				return n.TransferLeader(ctx, g.ID, voters[0])
			})
		})
	}
	return moved, eg.Wait()
}

// spread prints what each node carries.
func spread(ctx context.Context, out io.Writer, n *node.Node) {
	list := n.Nodes(ctx)
	for i := range list {
		st := &list[i]
		fmt.Fprintf(out, "  node %d: %2d replicas, leads %2d\n", st.ID, st.Replicas, st.Leaders)
	}
}

// count adds the shards up. A view needs a replica of the shard, but not the leader;
// a program that reads from any node implements group.Querier instead.
func count(ctx context.Context, nodes []*node.Node) (sum int, err error) {
	for g := raftyard.GroupID(1); g <= shards; g++ {
		var total int
		for _, n := range nodes {
			err = node.View(ctx, n, g, node.Linearizable, func(s *stock) error {
				total = s.total()
				return nil
			})
			if !errors.Is(err, node.ErrNoReplica) {
				break
			}
		}
		if err != nil {
			return 0, err
		}
		sum += total
	}
	return sum, nil
}

// open opens count nodes that know each other. All are in the list that founds the
// cluster; the fourth has no shards at first.
func open(ctx context.Context, dir string, count int) (nodes []*node.Node, err error) {
	network := transport.NewMemory(1)
	var peers []node.Peer
	for id := raftyard.NodeID(1); int(id) <= count; id++ {
		peers = append(peers, node.Peer{ID: id, Addr: transport.MemoryAddr(id)})
	}
	for _, p := range peers {
		n, oerr := node.Open(ctx, node.Config{
			ID: p.ID, Dir: filepath.Join(dir, p.ID.String()), Cluster: "shop",
			Peers: peers, Network: network,
			Kinds: map[string]group.Factory{"stock": newStock},
		})
		if oerr != nil {
			return nodes, oerr
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func closeAll(ctx context.Context, nodes []*node.Node) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Close(ctx))
	}
	return errors.Join(errs...)
}
