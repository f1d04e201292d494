package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// A keyClient puts and gets keys of groups, by their numbers.
type keyClient interface {
	put(ctx context.Context, g int, key, value []byte) error
	get(ctx context.Context, g int, key []byte) (value []byte, err error)
}

// overHTTP asks the node that leads through its HTTP API, as other programs do.
type overHTTP struct{ hosts []*client.Client }

func newOverHTTP(b *testing.B, c *cluster) overHTTP {
	b.Helper()
	var o overHTTP
	for _, addr := range c.addrs {
		cl, err := client.New(client.Config{Addrs: []string{addr}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(cl.Close)
		o.hosts = append(o.hosts, cl)
	}
	return o
}

func (o overHTTP) put(ctx context.Context, g int, key, value []byte) error {
	_, err := o.hosts[g%hosts].Put(ctx, groupID(g), key, value, client.Cond{})
	return err
}

func (o overHTTP) get(ctx context.Context, g int, key []byte) ([]byte, error) {
	item, err := o.hosts[g%hosts].Get(ctx, groupID(g), key, client.Linearizable)
	if err != nil {
		return nil, err
	}
	return item.Value, nil
}

// embedded asks the node that leads as a program does that has it inside.
type embedded struct{ hosts []*kv.Client }

func newEmbedded(c *cluster) embedded {
	var e embedded
	for _, n := range c.nodes {
		e.hosts = append(e.hosts, kv.NewClient(n))
	}
	return e
}

func (e embedded) put(ctx context.Context, g int, key, value []byte) error {
	_, _, err := e.hosts[g%hosts].Put(ctx, groupID(g), key, value, kv.Cond{})
	return err
}

func (e embedded) get(ctx context.Context, g int, key []byte) ([]byte, error) {
	value, err := e.hosts[g%hosts].Get(ctx, groupID(g), key, node.Linearizable)
	return value.Data, err
}

// BenchmarkKV measures puts and gets of the key-value store: over HTTP, through package
// client, which is what a program sees that does not embed a node, and in the process of the
// node, through package kv. The difference is what HTTP costs. MB/s are of values, which do
// not compress.
func BenchmarkKV(b *testing.B) {
	const (
		groups  = 4
		clients = 16
		// What is written again and again is bounded by both, in each group.
		maxKeys  = 64
		maxBytes = 8 << 20
	)
	c := newCluster(b, kindKV, groups)
	vias := []struct {
		name string
		keyClient
	}{{"http", newOverHTTP(b, c)}, {"embedded", newEmbedded(c)}}
	for _, size := range []int{100, 1_000, 10_000, 100_000, 1_000_000} {
		if size > 10_000 && testing.Short() {
			continue
		}
		keys := uint64(min(maxKeys, max(1, maxBytes/size)))
		key := func(n uint64) []byte { return fmt.Appendf(nil, "key%02d", n/groups%keys) }
		value := noise(size)
		for _, via := range vias {
			b.Run(fmt.Sprintf("op=put/size=%d/via=%s", size, via.name), func(b *testing.B) {
				b.SetBytes(int64(size))
				parallel(b, clients, func(_ int, n uint64) error {
					return via.put(b.Context(), int(n%groups), key(n), value)
				})
			})
		}
		var fill errgroup.Group
		fill.SetLimit(clients)
		for n := range groups * keys {
			fill.Go(func() error {
				return vias[1].put(b.Context(), int(n%groups), key(n), value)
			})
		}
		if err := fill.Wait(); err != nil {
			b.Fatal(err)
		}
		for _, via := range vias {
			b.Run(fmt.Sprintf("op=get/size=%d/via=%s", size, via.name), func(b *testing.B) {
				b.SetBytes(int64(size))
				parallel(b, clients, func(_ int, n uint64) error {
					got, err := via.get(b.Context(), int(n%groups), key(n))
					if err == nil && len(got) != size {
						err = fmt.Errorf("a value of %d bytes, want %d", len(got), size)
					}
					return err
				})
			})
		}
	}
}

// noise returns bytes that do not compress, the same each time.
func noise(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // it never fails
	return b
}
