// Command kv shows a program that embeds the built-in key-value store, on three
// nodes. The nodes would be three processes on three machines; here they share
// one, so that the example can be run by itself:
//
//	go run ./examples/kv
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
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// accounts is the group that the example uses. A real program has many, see
// examples/sharded.
const accounts raftyard.GroupID = 7

func main() {
	dir, err := os.MkdirTemp("", "raftyard-kv-")
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
	members, err := openAll(ctx, dir, 3)
	defer func() { err = errors.Join(err, closeAll(ctx, members)) }()
	if err != nil {
		return err
	}
	_, err = members[0].node.CreateGroup(ctx, node.Spec{
		ID: accounts, Kind: "kv", Voters: []raftyard.NodeID{1, 2, 3},
	})
	if err != nil {
		return err
	}
	// Any node takes writes and reads; reads see all that was acknowledged.
	if err = write(ctx, kv.NewClient(members[0].node)); err != nil {
		return err
	}
	return list(ctx, kv.NewClient(members[2].node))
}

func write(ctx context.Context, c *kv.Client) error {
	rev, _, err := c.Put(ctx, accounts, []byte("alice"), []byte("100"), kv.Cond{})
	if err != nil {
		return err
	}
	fmt.Printf("alice has 100, at revision %d\n", rev)

	// A condition makes a write safe against others, and safe to repeat.
	_, _, err = c.Put(ctx, accounts, []byte("alice"), []byte("1"), kv.Cond{Absent: true})
	if _, ok := errors.AsType[*kv.PreconditionError](err); !ok {
		return fmt.Errorf("alice was opened twice: %w", err)
	}
	fmt.Println("alice is not opened twice:", err)

	// A transaction compares and then does, all or nothing, in one group.
	res, err := c.Txn(ctx, accounts, kv.Txn{
		Compares: []kv.Compare{{
			Key: []byte("alice"), Target: kv.TargetRevision, Is: kv.Equal, Revision: rev,
		}},
		Then: []kv.Op{
			{Kind: kv.OpPut, Key: []byte("alice"), Value: []byte("70")},
			{Kind: kv.OpPut, Key: []byte("bob"), Value: []byte("30")},
		},
	})
	if err != nil {
		return err
	}
	fmt.Printf("30 moved to bob: %v, at revision %d\n", res.Succeeded, res.Revision)
	return nil
}

func list(ctx context.Context, c *kv.Client) error {
	_, err := c.Get(ctx, accounts, []byte("carol"), node.Linearizable)
	if !errors.Is(err, kv.ErrNotFound) {
		return fmt.Errorf("carol: %w", err)
	}
	all, err := c.List(ctx, accounts, kv.ListRequest{Consistency: node.Linearizable})
	if err != nil {
		return err
	}
	for _, item := range all.Items {
		fmt.Printf("%s has %s\n", item.Key, item.Data)
	}
	return nil
}

// A member is a node with the store of its key-value groups.
type member struct {
	store *kv.Store
	node  *node.Node
}

// open opens the store first, because the node asks it for the state of every
// replica while it opens. The store may lie in the node's directory.
func open(ctx context.Context, cfg node.Config) (m member, err error) {
	m.store, err = kv.OpenStore(kv.StoreOptions{Dir: filepath.Join(cfg.Dir, "state")})
	if err != nil {
		return m, err
	}
	cfg.Kinds = map[string]group.Factory{"kv": m.store.Factory()}
	if m.node, err = node.Open(ctx, cfg); err != nil {
		return m, errors.Join(err, m.store.Close())
	}
	return m, nil
}

// close closes the node first: until then it uses the store.
func (m member) close(ctx context.Context) error {
	return errors.Join(m.node.Close(ctx), m.store.Close())
}

// openAll opens count nodes that know each other, on free ports of this machine.
func openAll(ctx context.Context, dir string, count int) (members []member, err error) {
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
		m, oerr := open(ctx, node.Config{
			ID: p.ID, Dir: filepath.Join(dir, p.ID.String()), Cluster: "example",
			Peers: peers, Listener: listeners[i],
		})
		if oerr != nil {
			return members, oerr
		}
		members = append(members, m)
	}
	return members, nil
}

func closeAll(ctx context.Context, members []member) error {
	var errs []error
	for _, m := range members {
		errs = append(errs, m.close(ctx))
	}
	return errors.Join(errs...)
}
