//go:build linux

package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// A load writes over the same keys again and again, from many clients, as fast as it
// goes, and counts how that ends.
type load struct {
	nodes   []*cluster.Node
	groups  []raftyard.GroupID
	clients int
	keys    int               // of each group
	size    func(key int) int // of a value
	timeout time.Duration     // of a request; zero: the default

	passed atomic.Int64 // bytes of values that were acknowledged

	mu  sync.Mutex
	how map[string]int // answers by the code of the problem; "" is success
	bad []string       // answers that nobody may get

	stop chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

// newLoad lets the clients go.
func newLoad(t *testing.T, l *load) *load {
	t.Helper()
	l.how, l.stop = make(map[string]int), make(chan struct{})
	longest := 0
	for k := range l.keys {
		longest = max(longest, l.size(k))
	}
	for i := range l.clients {
		l.wg.Go(func() { l.run(t.Context(), i, noise(longest+4096)) })
	}
	t.Cleanup(l.end)
	return l
}

// noise is bytes that do not shrink when they are compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.N(256))
	}
	return b
}

func (l *load) run(ctx context.Context, client int, from []byte) {
	for n := client; ; n += l.clients {
		select {
		case <-l.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		key := n / len(l.groups) % l.keys
		size := l.size(key)
		at := rand.N(len(from) - size)
		a := l.nodes[rand.N(len(l.nodes))].Do(ctx, cluster.Request{
			Method:  http.MethodPut,
			Path:    cluster.KeyPath(l.groups[n%len(l.groups)], fmt.Sprintf("key-%04d", key)),
			Body:    from[at : at+size],
			Timeout: l.timeout,
		})
		if !l.note(a, size) {
			pause(l.stop)
		}
	}
}

// note counts an answer and reports whether it is one of success.
func (l *load) note(a cluster.Answer, size int) bool {
	ok := a.Error() == nil
	if ok {
		l.passed.Add(int64(size))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.how[a.Why]++
	full := a.Why == client.CodeOverloaded
	if (a.Malformed || full && a.Outcome != cluster.NotApplied) && len(l.bad) < 10 {
		l.bad = append(l.bad, a.String())
	}
	return ok
}

// pause keeps a client that was refused from asking again at once.
func pause(stop <-chan struct{}) { cluster.Pause(stop, 20*time.Millisecond) }

// end waits until every client has its last answer. It may be called again.
func (l *load) end() {
	l.once.Do(func() { close(l.stop) })
	l.wg.Wait()
}

// ended ends the load, prints how requests ended and fails the test for those that
// ended as none may.
func (l *load) ended(t *testing.T) {
	t.Helper()
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%d MiB written; answers: %v", l.passed.Load()/mib, l.how)
	for _, b := range l.bad {
		t.Errorf("an answer that nobody may get: %s", b)
	}
}

// answers returns how many requests have ended with a code.
func (l *load) answers(code string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.how[code]
}

// createGroups creates groups with three voters and waits until each takes a write.
func createGroups(t *testing.T, c *cluster.Cluster, count int) []raftyard.GroupID {
	t.Helper()
	spec := client.Spec{Kind: "kv"}
	for _, n := range c.Nodes() {
		if len(spec.Voters) < 3 {
			spec.Voters = append(spec.Voters, n.ID())
		}
	}
	groups := make([]raftyard.GroupID, count)
	for i := range groups {
		groups[i] = raftyard.GroupID(i + 1)
		n := c.Nodes()[i%len(c.Nodes())]
		if err := n.Create(t.Context(), groups[i], spec).Error(); err != nil {
			t.Fatal(err)
		}
		a := n.Do(t.Context(), cluster.Request{
			Method: http.MethodPut, Path: cluster.KeyPath(groups[i], "first"),
		})
		if err := a.Error(); err != nil {
			t.Fatal(err)
		}
	}
	return groups
}
