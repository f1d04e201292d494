// Command witness shows a group with one full copy and two witnesses: nodes that keep its
// log and have no state machine for it. The full copy is lost, and another node gets
// everything back from the witnesses. The nodes would be processes on machines of their
// own; here they share one, so that the example can be run by itself:
//
//	go run ./examples/witness
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/transport"
)

// stock is the group that the example uses.
const stock raftyard.GroupID = 7

// full reports whether a node has a state machine for it: one copy, and one in reserve.
func full(id raftyard.NodeID) bool { return id == 1 || id == 4 }

func main() {
	dir, err := os.MkdirTemp("", "raftyard-witness-")
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

func run(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	members, err := openAll(ctx, dir, 5)
	defer func() { err = errors.Join(err, closeAll(ctx, members)) }()
	if err != nil {
		return err
	}
	_, err = members[0].node.CreateGroup(ctx, node.Spec{
		ID: stock, Kind: "kv", Voters: []raftyard.NodeID{1, 2, 3}, SnapshotEntries: 10,
	})
	if err != nil {
		return err
	}
	// Whoever is asked, the answer comes from the node that has the state.
	witness := kv.NewClient(members[1].node)
	for i := range 50 {
		apples := fmt.Appendf(nil, "%d", 100-i)
		if _, _, err = witness.Put(ctx, stock, []byte("apples"), apples, kv.Cond{}); err != nil {
			return err
		}
	}
	if err = show(ctx, members[1].node); err != nil {
		return err
	}
	if err = closeAll(ctx, members[:1]); err != nil { // for good
		return err
	}
	members = members[1:]
	short, cancelShort := context.WithTimeout(ctx, time.Second)
	defer cancelShort()
	_, _, err = witness.Put(short, stock, []byte("apples"), []byte("0"), kv.Cond{})
	fmt.Println("without the full copy nothing is done:", node.NotApplied(err))

	// The witnesses are a majority, and hold the state in a file and the log after it.
	_, err = members[0].node.SetMembers(ctx, stock, node.Members{
		Voters: []raftyard.NodeID{2, 3, 4},
	}, true)
	if err != nil {
		return err
	}
	fmt.Println("node 4 has taken the place of node 1")
	return show(ctx, members[0].node)
}

func show(ctx context.Context, n *node.Node) error {
	v, err := kv.NewClient(n).Get(ctx, stock, []byte("apples"), node.Linearizable)
	if err != nil {
		return err
	}
	st, err := n.RaftStatus(ctx, stock)
	fmt.Printf("node %d says: %s apples, log only: %v\n", n.ID(), v.Data, st.LogOnly)
	return err
}

// A member is a node, with the store of its key-value groups if it has any.
type member struct {
	store *kv.Store
	node  *node.Node
}

// openAll opens nodes on a network in memory. Those that have a state machine get it in
// Kinds; that is all that makes a node a full one or a witness.
func openAll(ctx context.Context, dir string, count int) (members []*member, err error) {
	network := transport.NewMemory(1)
	var peers []node.Peer
	for i := range count {
		id := raftyard.NodeID(i + 1)
		peers = append(peers, node.Peer{ID: id, Addr: transport.MemoryAddr(id)})
	}
	for _, p := range peers {
		m, kinds := &member{}, map[string]group.Factory{}
		own := filepath.Join(dir, p.ID.String())
		if full(p.ID) {
			m.store, err = kv.OpenStore(kv.StoreOptions{Dir: filepath.Join(own, "state")})
			if err != nil {
				return members, err
			}
			kinds["kv"] = m.store.Factory()
		}
		members = append(members, m)
		m.node, err = node.Open(ctx, node.Config{
			ID: p.ID, Dir: own, Cluster: "example", Peers: peers, Network: network, Kinds: kinds,
			TickInterval: 50 * time.Millisecond,
		})
		if err != nil {
			return members, err
		}
	}
	return members, nil
}

func closeAll(ctx context.Context, members []*member) error {
	var errs []error
	for _, m := range members {
		if m.node != nil {
			errs = append(errs, m.node.Close(ctx))
		}
		if m.store != nil {
			errs = append(errs, m.store.Close())
		}
	}
	return errors.Join(errs...)
}
