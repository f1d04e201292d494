package cli

import (
	"context"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/load"
)

// The kinds of operations of a [workload].
const (
	kindPut = iota
	kindGet
	kinds
)

// Bounds of a transaction that a node takes.
const (
	maxTxnOps   = 128
	maxTxnBytes = 512 << 10 // half of what is taken: the rest is for keys
)

// A workload is what raftyard bench does with keys of groups.
type workload struct {
	flags   benchFlags
	clients []*client.Client // one for each address
	groups  []raftyard.GroupID
	prefix  string // of all keys
	noise   []byte // values are pieces of it
}

func newWorkload(
	f benchFlags, clients []*client.Client, groups []raftyard.GroupID,
) *workload {
	w := &workload{
		flags: f, clients: clients, groups: groups,
		prefix: fmt.Sprintf("raftyard-bench/%016x/", rand.Uint64()),
		noise:  make([]byte, f.valueSize+4096),
	}
	for i := range w.noise { // nothing on the way can make it smaller
		w.noise[i] = byte(rand.Uint32())
	}
	return w
}

// mix returns a number in which each bit of n counts for each bit, so that what is made
// of one has nothing to do with what is made of the next.
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// kind tells what operation n is.
func (w *workload) kind(n uint64) int {
	if mix(n)%100 < uint64(w.flags.readPercent) {
		return kindGet
	}
	return kindPut
}

// keyOf returns which key operation n is about.
func (w *workload) keyOf(n uint64) uint64 { return mix(^n) % uint64(w.flags.keys) }

func (w *workload) key(i uint64) string { return fmt.Sprintf("%s%06d", w.prefix, i) }

// value returns a value that differs from the next ones.
func (w *workload) value(n uint64) []byte {
	at := int(n % uint64(len(w.noise)-w.flags.valueSize))
	return w.noise[at : at+w.flags.valueSize]
}

// do does operation n. Groups take turns, keys are random.
func (w *workload) do(ctx context.Context, id int, n uint64) (load.Outcome, error) {
	c := w.clients[id%len(w.clients)]
	group := w.groups[n%uint64(len(w.groups))]
	key := []byte(w.key(w.keyOf(n)))
	if w.kind(n) == kindGet {
		_, err := c.Get(ctx, group, key, client.Linearizable)
		if err == nil || client.IsCode(err, client.CodeKeyNotFound) {
			return load.Applied, nil
		}
		return load.NotApplied, err // it changes nothing
	}
	_, err := c.Put(ctx, group, key, w.value(n), client.Cond{})
	switch {
	case err == nil:
		return load.Applied, nil
	case client.NotApplied(err):
		return load.NotApplied, err
	default:
		return load.Unknown, err
	}
}

// fill writes every key, so that reads find one.
func (w *workload) fill(ctx context.Context) error {
	err := w.each(ctx, min(maxTxnOps, max(1, maxTxnBytes/max(w.flags.valueSize, 1))),
		func(i uint64, key string) client.Op {
			value := w.value(i)
			return client.Op{Op: client.OpPut, Key: &key, ValueBase64: &value}
		})
	if err != nil {
		return fmt.Errorf("write what will be read: %w", err)
	}
	return nil
}

// remove deletes every key.
func (w *workload) remove(ctx context.Context) error {
	return w.each(ctx, maxTxnOps, func(_ uint64, key string) client.Op {
		return client.Op{Op: client.OpDelete, Key: &key}
	})
}

// each does something with every key of every group, with so many in a transaction at most.
func (w *workload) each(
	ctx context.Context, batch int, op func(i uint64, key string) client.Op,
) error {
	const atOnce = 16
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(min(atOnce, w.flags.clients))
	for g, group := range w.groups {
		all.Go(func() error {
			c := w.clients[g%len(w.clients)]
			for from := 0; from < w.flags.keys; from += batch {
				var txn client.Txn
				for i := from; i < min(from+batch, w.flags.keys); i++ {
					txn.Then = append(txn.Then, op(uint64(i), w.key(uint64(i))))
				}
				if _, err := c.Txn(ctx, group, txn); err != nil {
					return fmt.Errorf("group %s: %w", group, err)
				}
			}
			return nil
		})
	}
	return all.Wait()
}
