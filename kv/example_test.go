package kv_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"      //nolint:depguard // the example is a program that embeds kv
	"github.com/raftyard/raftyard/transport" //nolint:depguard // the same
)

// withNode calls fn with a client of a cluster of one node that has a group of
// keys, 7.
func withNode(ctx context.Context, fn func(c *kv.Client) error) (err error) {
	dir, err := os.MkdirTemp("", "raftyard-kv-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The store is opened before the node and closed after it.
	store, err := kv.OpenStore(kv.StoreOptions{Dir: filepath.Join(dir, "state")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	n, err := node.Open(ctx, node.Config{
		ID: 1, Dir: dir, Cluster: "example",
		Peers:   []node.Peer{{ID: 1, Addr: transport.MemoryAddr(1)}},
		Network: transport.NewMemory(1), // a real node has an address instead
		Kinds:   map[string]group.Factory{"kv": store.Factory()},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(ctx)) }()
	_, err = n.CreateGroup(ctx, node.Spec{ID: 7, Kind: "kv", Voters: []raftyard.NodeID{1}})
	if err != nil {
		return err
	}
	return fn(kv.NewClient(n))
}

func ExampleClient() {
	ctx := context.Background()
	err := withNode(ctx, func(c *kv.Client) error {
		rev, created, err := c.Put(ctx, 7, []byte("greeting"), []byte("hello"), kv.Cond{})
		if err != nil {
			return err
		}
		fmt.Println("revision", rev, "created", created)

		v, err := c.Get(ctx, 7, []byte("greeting"), node.Linearizable)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", v.Data)

		_, _, err = c.Delete(ctx, 7, []byte("greeting"), kv.Cond{Revision: v.Revision + 1})
		fmt.Println(err)
		fmt.Println("certainly not deleted:", node.NotApplied(err))
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// revision 1 created true
	// hello
	// kv: precondition failed: the key is at revision 1
	// certainly not deleted: true
}

func ExampleClient_Txn() {
	ctx := context.Background()
	err := withNode(ctx, func(c *kv.Client) error {
		lock := kv.Txn{
			Compares: []kv.Compare{{
				Key: []byte("lock"), Target: kv.TargetRevision, Is: kv.Equal, // 0: no such key
			}},
			Then: []kv.Op{{Kind: kv.OpPut, Key: []byte("lock"), Value: []byte("worker 1")}},
			Else: []kv.Op{{Kind: kv.OpGet, Key: []byte("lock")}},
		}
		for range 2 {
			res, err := c.Txn(ctx, 7, lock)
			if err != nil {
				return err
			}
			if res.Succeeded {
				fmt.Println("locked")
			} else {
				fmt.Printf("held by %s\n", res.Results[0].Value.Data)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// locked
	// held by worker 1
}

func ExampleClient_List() {
	ctx := context.Background()
	err := withNode(ctx, func(c *kv.Client) error {
		for _, key := range []string{"a/1", "a/2", "a/3", "b/1"} {
			if _, _, err := c.Put(ctx, 7, []byte(key), nil, kv.Cond{}); err != nil {
				return err
			}
		}
		q := kv.ListRequest{Prefix: []byte("a/"), Limit: 2, KeysOnly: true}
		for {
			page, err := c.List(ctx, 7, q)
			if err != nil {
				return err
			}
			for _, item := range page.Items {
				fmt.Printf("%s\n", item.Key)
			}
			if page.Next == nil {
				return nil
			}
			fmt.Println("next page")
			q.Start = page.Next
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// a/1
	// a/2
	// next page
	// a/3
}
