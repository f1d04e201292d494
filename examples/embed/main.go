// Command embed shows a program that replicates a state machine of its own: a
// counter, on three nodes. The nodes would be three processes on three machines;
// here they share one, so that the example can be run by itself:
//
//	go run ./examples/embed
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
)

func main() {
	dir, err := os.MkdirTemp("", "raftyard-embed-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	err = run(context.Background(), dir)
	if rerr := os.RemoveAll(dir); err == nil {
		err = rerr
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is all that an embedding program does: open, create, propose, view, close.
func run(ctx context.Context, dir string) error {
	nodes, err := open(ctx, dir, 3)
	if err != nil {
		return err
	}
	spec := node.Spec{ID: 7, Kind: "counter", Voters: []raftyard.NodeID{1, 2, 3}}
	if _, err := nodes[0].CreateGroup(ctx, spec); err != nil {
		return err
	}
	for i, n := range nodes { // any node may propose
		res, err := n.Propose(ctx, 7, []byte{byte(i + 1)})
		if err != nil {
			return err
		}
		fmt.Printf("node %d added %d: the counter is at %d\n", n.ID(), i+1, number(res.Data))
	}
	err = node.View(ctx, nodes[2], 7, node.Linearizable, func(c *counter) error {
		fmt.Printf("node %d reads %d\n", nodes[2].ID(), c.value())
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := n.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open opens count nodes that know each other.
func open(ctx context.Context, dir string, count int) ([]*node.Node, error) {
	var peers []node.Peer
	var listeners []net.Listener
	for i := range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
		peers = append(peers, node.Peer{ID: raftyard.NodeID(i + 1), Addr: l.Addr().String()})
	}
	var nodes []*node.Node
	for i, p := range peers {
		n, err := node.Open(ctx, node.Config{
			ID: p.ID, Dir: filepath.Join(dir, p.ID.String()), Cluster: "example",
			Peers: peers, Listener: listeners[i],
			Kinds: map[string]group.Factory{"counter": newCounter},
		})
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}
