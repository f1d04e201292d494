// Command embed shows a program that replicates a state machine of its own: a
// counter, on three nodes. The nodes would be three processes on three machines;
// here they share one, so that the example can be run by itself:
//
//	go run ./examples/embed
package main

import (
	"context"
	"errors"
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
	err = errors.Join(run(context.Background(), dir), os.RemoveAll(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is all that an embedding program does: open, create, propose, view, close.
func run(ctx context.Context, dir string) (err error) {
	nodes, err := open(ctx, dir, 3)
	defer func() { err = errors.Join(err, closeAll(ctx, nodes)) }()
	if err != nil {
		return err
	}
	spec := node.Spec{ID: 7, Kind: "counter", Voters: []raftyard.NodeID{1, 2, 3}}
	if _, err = nodes[0].CreateGroup(ctx, spec); err != nil {
		return err
	}
	for i, n := range nodes { // any node may propose
		res, perr := n.Propose(ctx, 7, []byte{byte(i + 1)})
		if perr != nil {
			return perr
		}
		fmt.Printf("node %d added %d: the counter is at %d\n", n.ID(), i+1, number(res.Data))
	}
	return node.View(ctx, nodes[2], 7, node.Linearizable, func(c *counter) error {
		fmt.Printf("node %d reads %d\n", nodes[2].ID(), c.value())
		return nil
	})
}

// open opens count nodes that know each other, on free ports of this machine.
func open(ctx context.Context, dir string, count int) (nodes []*node.Node, err error) {
	var peers []node.Peer
	var listeners []net.Listener
	for i := range count {
		l, lerr := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if lerr != nil {
			return nil, lerr
		}
		listeners = append(listeners, l)
		peers = append(peers, node.Peer{ID: raftyard.NodeID(i + 1), Addr: l.Addr().String()})
	}
	for i, p := range peers {
		n, oerr := node.Open(ctx, node.Config{
			ID: p.ID, Dir: filepath.Join(dir, p.ID.String()), Cluster: "example",
			Peers: peers, Listener: listeners[i],
			Kinds: map[string]group.Factory{"counter": newCounter},
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
