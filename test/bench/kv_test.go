package bench

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard/client"
)

// BenchmarkKV measures puts and gets of the key-value store over HTTP, through package
// client: what a program that does not embed a node sees. MB/s are of values.
func BenchmarkKV(b *testing.B) {
	const (
		groups  = 4
		clients = 16
		// What is written again and again is bounded by both, in each group.
		maxKeys  = 64
		maxBytes = 8 << 20
	)
	c := newCluster(b, kindKV, groups)
	var clientsOf []*client.Client
	for _, addr := range c.addrs {
		cl, err := client.New(client.Config{Addrs: []string{addr}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(cl.Close)
		clientsOf = append(clientsOf, cl)
	}
	for _, size := range []int{100, 1_000, 10_000, 100_000, 1_000_000} {
		if size > 10_000 && testing.Short() {
			continue
		}
		keys := uint64(min(maxKeys, max(1, maxBytes/size)))
		key := func(n uint64) []byte { return fmt.Appendf(nil, "key%02d", n/groups%keys) }
		value := bytes.Repeat([]byte{1}, size)
		put := func(_ int, n uint64) error {
			g := int(n % groups)
			_, err := clientsOf[g%hosts].Put(b.Context(), groupID(g), key(n), value, client.Cond{})
			return err
		}
		b.Run(fmt.Sprintf("op=put/size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			parallel(b, clients, put)
		})
		var fill errgroup.Group
		fill.SetLimit(clients)
		for n := range groups * keys {
			fill.Go(func() error { return put(0, n) })
		}
		if err := fill.Wait(); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("op=get/size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			parallel(b, clients, func(_ int, n uint64) error {
				g := int(n % groups)
				item, err := clientsOf[g%hosts].Get(b.Context(), groupID(g), key(n),
					client.Linearizable)
				if err == nil && len(item.Value) != size {
					err = fmt.Errorf("a value of %d bytes, want %d", len(item.Value), size)
				}
				return err
			})
		})
	}
}
