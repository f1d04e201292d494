//go:build unix

package test

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
	"github.com/raftyard/raftyard/test/linear"
)

// An oldLeader is a leader that does not know yet that there is another one, and
// what is asked of it.
type oldLeader struct {
	*parted
	group   raftyard.GroupID
	begun   time.Time
	history linear.History
	mu      sync.Mutex
	clients int
	ended   map[string]int // reads of the old leader
}

// client returns the number of a new client.
func (o *oldLeader) client() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clients++
	return o.clients
}

// put writes the key through a node, which must do it.
func (o *oldLeader) put(t *testing.T, n *cluster.Node, key, value string) {
	t.Helper()
	op := linear.Op{Kind: linear.Put, Key: key, Value: value}
	p := o.history.Begin(o.client(), op, int64(time.Since(o.begun)))
	if err := put(t, n, o.group, key, []byte(value)); err != nil {
		t.Fatal(err)
	}
	p.Done(int64(time.Since(o.begun)), linear.Result{})
}

// read reads the key of a node, and writes down what it is told.
func (o *oldLeader) read(t *testing.T, n *cluster.Node, key string, timeout time.Duration) {
	t.Helper()
	op := linear.Op{Kind: linear.Get, Key: key}
	p := o.history.Begin(o.client(), op, int64(time.Since(o.begun)))
	a := n.Do(t.Context(), cluster.Request{
		Method: http.MethodGet, Path: cluster.KeyPath(o.group, key), Timeout: timeout,
	})
	at := int64(time.Since(o.begun))
	result, told := observe(op, a)
	how := "refused " + a.Why
	if told {
		how = "read " + result.Value
		p.Done(at, result)
	} else {
		p.Refused()
	}
	if a.Malformed {
		t.Errorf("a read of node %d: %v", n.ID(), a.Err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended[how]++
}

// readMany begins several reads of a node.
func (o *oldLeader) readMany(
	t *testing.T, wg *sync.WaitGroup, n *cluster.Node, key string, timeout time.Duration,
) {
	t.Helper()
	const many = 20
	for range many {
		wg.Go(func() { o.read(t, n, key, timeout) })
	}
}

// TestPausedLeaderReads freezes a leader, or cuts it off, and has another one elected
// and the key overwritten. Reads that the old leader is asked meanwhile, and those
// that wait at it while it is frozen, must not be answered from what it still has;
// only one that asks for that is, and is told so.
func TestPausedLeaderReads(t *testing.T) {
	o := &oldLeader{parted: newParted(t, 1), begun: time.Now(), ended: make(map[string]int)}
	o.group = o.groups[0]
	rounds := cluster.Sized(3, 30)
	if testing.Short() {
		rounds = 1
	}
	for i := range rounds {
		o.freezeRound(t, fmt.Sprintf("frozen%d", i))
		o.cutRound(t, fmt.Sprintf("cut%d", i))
	}
	t.Logf("reads of an old leader: %v", o.ended)
	linear.Require(t, &o.history, 20*time.Second)
	verifyHashes(t, o.Nodes(), o.groups)
}

func (o *oldLeader) freezeRound(t *testing.T, key string) {
	t.Helper()
	leader, others := o.roles(t, o.group)
	before := raftOf(t, others[0], o.group)
	o.put(t, leader, key, "first")
	var reads sync.WaitGroup
	o.readMany(t, &reads, leader, key, 10*time.Second) // some are under way when it stops
	leader.Freeze()
	awaitOtherLeader(t, others[0], o.group, before)
	o.put(t, others[0], key, "second")
	o.readMany(t, &reads, leader, key, 10*time.Second) // these wait in its sockets
	o.put(t, others[1], key, "third")
	o.readMany(t, &reads, leader, key, 10*time.Second)
	lapse(t, 0, 500*time.Millisecond)
	leader.Thaw()
	o.readMany(t, &reads, leader, key, 10*time.Second)
	reads.Wait()
}

func (o *oldLeader) cutRound(t *testing.T, key string) {
	t.Helper()
	leader, others := o.roles(t, o.group)
	before := raftOf(t, others[0], o.group)
	o.put(t, leader, key, "first")
	var reads sync.WaitGroup
	o.Network().Set(cluster.Condition{Cut: true},
		cluster.Between(ids([]*cluster.Node{leader}), ids(others))...)
	o.readMany(t, &reads, leader, key, 2*time.Second) // it still believes that it leads
	awaitOtherLeader(t, others[0], o.group, before)
	o.put(t, others[0], key, "second")
	o.readMany(t, &reads, leader, key, 2*time.Second)
	a := leader.Do(t.Context(), cluster.Request{
		Method: http.MethodGet, Path: cluster.KeyPath(o.group, key),
		Query: url.Values{"consistency": {string(client.Stale)}},
	})
	how := a.Header.Get("Raftyard-Consistency")
	if string(a.Body) != "first" || how != string(client.Stale) {
		t.Errorf("a stale read of the old leader: %v, consistency %q, want what it has, and "+
			"that it says so", a, how)
	}
	reads.Wait()
	o.Network().Heal()
	// What it does not know any more it learns at once.
	o.read(t, leader, key, 10*time.Second)
}
