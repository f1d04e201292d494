//go:build unix

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
	"github.com/raftyard/raftyard/test/linear"
)

// A recorder has clients ask random things of a few keys, and writes down what
// they asked, when, and what they were told.
//
// An operation whose outcome is unknown goes on for ever, as far as anybody can
// tell, and the checker must consider it at every later point. So no key is used
// for long: a slot goes on to its next key after some operations.
type recorder struct {
	groups  []raftyard.GroupID
	prefix  string // of the names of keys
	tally   *tally
	begun   time.Time
	history linear.History
	clients atomic.Int64
	// apart counts what some nodes are asked in tallies of their own.
	apart map[raftyard.NodeID]*tally

	mu      sync.Mutex
	slots   []slot
	ended   map[linear.Kind]map[cluster.Outcome]int
	slowest map[raftyard.NodeID]time.Duration
}

// A slot is a key that is in use.
type slot struct {
	generation, operations, unknown int
}

const (
	operationsPerKey = 150
	unknownPerKey    = 5
	// operationTimeout bounds an operation at the node that is asked.
	operationTimeout = 4 * time.Second
)

func newRecorder(groups []raftyard.GroupID, slots int) *recorder {
	return &recorder{
		groups: groups, tally: newTally(), begun: time.Now(), slots: make([]slot, slots),
		ended:   make(map[linear.Kind]map[cluster.Outcome]int),
		slowest: make(map[raftyard.NodeID]time.Duration),
	}
}

// tallyOf returns what counts the answers of a node.
func (r *recorder) tallyOf(n *cluster.Node) *tally {
	if y := r.apart[n.ID()]; y != nil {
		return y
	}
	return r.tally
}

// now is the time of the history.
func (r *recorder) now() int64 { return int64(time.Since(r.begun)) }

// run is a client of one node, so that a node that does not answer holds up its
// own clients and no others. It ends with stop, after what it is doing.
func (r *recorder) run(
	ctx context.Context, n *cluster.Node, dice *rand.Rand, stop <-chan struct{},
) {
	c := &reader{
		recorder: r, node: n, id: int(r.clients.Add(1)), dice: dice, last: make(map[string]string),
	}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if c.ask(ctx, i) == cluster.NotApplied {
			cluster.Pause(stop, 5*pauseRefused) // of a node that is down nothing can be learnt
		}
	}
}

// A reader is one client of a recorder.
type reader struct {
	*recorder
	node *cluster.Node
	id   int
	dice *rand.Rand
	last map[string]string // of each key, a value that was seen
}

// keyOf returns the name of a slot's key, and where it is.
func (r *recorder) keyOf(s, generation int) (string, raftyard.GroupID) {
	return fmt.Sprintf("%sslot%d.%d", r.prefix, s, generation), r.groups[s%len(r.groups)]
}

// historyKey names a key of a group.
func historyKey(g raftyard.GroupID, key string) string { return g.String() + "/" + key }

// choose returns an operation on the slot's present key.
func (c *reader) choose(s int, value string) (linear.Op, raftyard.GroupID) {
	c.mu.Lock()
	sl := &c.slots[s]
	if sl.operations >= operationsPerKey || sl.unknown >= unknownPerKey {
		*sl = slot{generation: sl.generation + 1}
	}
	sl.operations++
	key, g := c.keyOf(s, sl.generation)
	c.mu.Unlock()
	op := linear.Op{Key: key, Value: value}
	switch dice := c.dice.IntN(100); {
	case dice < 45:
		op.Kind, op.Value = linear.Get, ""
	case dice < 65:
		op.Kind = linear.Put
	case dice < 75:
		op.Kind = linear.Create
	case dice < 83:
		op.Kind, op.Value = linear.Delete, ""
	default:
		op.Kind, op.Old = linear.Swap, c.last[key]
		if op.Old == "" {
			op.Kind = linear.Put
		}
	}
	return op, g
}

// ask sends an operation to the node once and records it.
func (c *reader) ask(ctx context.Context, i int) cluster.Outcome {
	s := c.dice.IntN(len(c.slots))
	op, g := c.choose(s, fmt.Sprintf("%d.%d", c.id, i))
	result, outcome := c.send(ctx, g, op)
	if outcome == cluster.Applied {
		c.remember(op, result)
	}
	c.count(s, op.Kind, outcome)
	return outcome
}

// send sends an operation to the node once, and records it.
func (c *reader) send(
	ctx context.Context, g raftyard.GroupID, op linear.Op,
) (linear.Result, cluster.Outcome) {
	recorded := op
	recorded.Key = historyKey(g, op.Key)
	begun := c.now()
	p := c.history.Begin(c.id, recorded, begun)
	p.Note("node " + c.node.ID().String())
	a := send(ctx, c.node, g, op)
	at := c.now()
	c.tallyOf(c.node).note(g, a)
	c.took(c.node, time.Duration(at-begun))

	result, told := observe(op, a)
	switch {
	case told:
		p.Done(at, result)
		return result, cluster.Applied
	case a.Outcome == cluster.NotApplied:
		p.Refused()
		return result, cluster.NotApplied
	default:
		p.Unknown()
		return result, cluster.Unknown
	}
}

// took notes how long a node has taken for an answer.
func (r *recorder) took(n *cluster.Node, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slowest[n.ID()] = max(r.slowest[n.ID()], d)
}

// askAll asks a node for one thing with the present key of every slot, all at the
// same time, and returns when all have ended.
func (r *recorder) askAll(ctx context.Context, n *cluster.Node, kind linear.Kind) {
	var asked sync.WaitGroup
	for s := range r.slots {
		c := &reader{recorder: r, node: n, id: int(r.clients.Add(1))}
		r.mu.Lock()
		key, g := r.keyOf(s, r.slots[s].generation)
		r.mu.Unlock()
		op := linear.Op{Kind: kind, Key: key}
		if kind != linear.Get {
			op.Value = fmt.Sprintf("%d.all", c.id)
		}
		asked.Go(func() {
			_, outcome := c.send(ctx, g, op)
			c.count(s, kind, outcome)
		})
	}
	asked.Wait()
}

// remember keeps a value that the key had, for a swap.
func (c *reader) remember(op linear.Op, result linear.Result) {
	switch {
	case op.Kind == linear.Get:
		c.last[op.Key] = result.Value
	case op.Kind == linear.Put, op.Kind != linear.Delete && result.OK:
		c.last[op.Key] = op.Value
	}
}

func (r *recorder) count(s int, kind linear.Kind, outcome cluster.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if outcome == cluster.Unknown && kind != linear.Get {
		r.slots[s].unknown++
	}
	if r.ended[kind] == nil {
		r.ended[kind] = make(map[cluster.Outcome]int)
	}
	r.ended[kind][outcome]++
}

// keys returns how many keys have been used.
func (r *recorder) keys() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for i := range r.slots {
		n += r.slots[i].generation + 1
	}
	return n
}

// send sends an operation once.
func send(
	ctx context.Context, n *cluster.Node, g raftyard.GroupID, op linear.Op,
) cluster.Answer {
	req := cluster.Request{Path: cluster.KeyPath(g, op.Key), Timeout: operationTimeout}
	switch op.Kind {
	case linear.Get:
		req.Method = http.MethodGet
	case linear.Delete:
		req.Method = http.MethodDelete
	case linear.Swap:
		return n.Txn(ctx, g, client.Txn{
			Compare: []client.Compare{{Key: &op.Key, Value: &op.Old}},
			Then:    []client.Op{{Op: client.OpPut, Key: &op.Key, Value: &op.Value}},
		}, operationTimeout)
	default:
		req.Method, req.Body = http.MethodPut, []byte(op.Value)
		if op.Kind == linear.Create {
			req.Header = http.Header{"If-None-Match": {"*"}}
		}
	}
	return n.Do(ctx, req)
}

// observe reads what an answer tells about the key. Told is false when it tells
// nothing: the operation had no effect, or nobody knows.
func observe(op linear.Op, a cluster.Answer) (result linear.Result, told bool) {
	switch a.Outcome {
	case cluster.Applied:
	case cluster.Unknown:
		return result, false
	case cluster.NotApplied:
		absent := op.Kind == linear.Get && a.Why == client.CodeKeyNotFound
		exists := op.Kind == linear.Create && a.Why == client.CodePrecondition
		return result, absent || exists
	}
	switch op.Kind {
	case linear.Get:
		return linear.Result{Found: true, Value: string(a.Body)}, true
	case linear.Delete:
		var res client.DeleteResult
		err := json.Unmarshal(a.Body, &res)
		return linear.Result{OK: res.Deleted}, err == nil
	case linear.Swap:
		var res client.TxnResult
		err := json.Unmarshal(a.Body, &res)
		return linear.Result{OK: res.Succeeded}, err == nil
	default:
		return linear.Result{OK: true}, true
	}
}

// readAll reads every key that was ever used through each of the nodes, in lists,
// as a part of the history: whatever was acknowledged must be there in the end.
// The clients must have ended.
func (r *recorder) readAll(t *testing.T, nodes []*cluster.Node) {
	t.Helper()
	for _, n := range nodes {
		id := int(r.clients.Add(1))
		for _, g := range r.groups {
			var reads []linear.Pending
			for s := range r.slots {
				for gen := range r.slots[s].generation + 1 {
					key, at := r.keyOf(s, gen)
					if at != g {
						continue
					}
					op := linear.Op{Kind: linear.Get, Key: historyKey(g, key)}
					p := r.history.Begin(id, op, r.now())
					p.Note("list of node " + n.ID().String())
					reads = append(reads, p)
				}
			}
			r.readGroup(t, n, g, reads)
		}
	}
}

// readGroup ends the reads of a group's keys with a list of all of them.
func (r *recorder) readGroup(
	t *testing.T, n *cluster.Node, g raftyard.GroupID, reads []linear.Pending,
) {
	t.Helper()
	values := make(map[string]string)
	err := n.List(t.Context(), g, client.Linearizable, func(item client.Item) {
		values[historyKey(g, string(item.Key))] = string(item.Value)
	})
	if err != nil {
		t.Fatal(err)
	}
	at := r.now()
	for _, p := range reads {
		value, there := values[p.Key()]
		p.Done(at, linear.Result{Found: there, Value: value})
	}
}

// check fails the test if the history is not linearizable, and draws it.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	linear.Require(t, &r.history, cluster.Sized(2*time.Minute, 10*time.Minute))
}

// table is how operations have ended, by kind.
func (r *recorder) table() []row {
	r.mu.Lock()
	defer r.mu.Unlock()
	kinds := []linear.Kind{linear.Get, linear.Put, linear.Create, linear.Swap, linear.Delete}
	var rows []row
	for _, k := range kinds {
		by := r.ended[k]
		rows = append(rows, row{k.String(), fmt.Sprintf("%d told, %d refused, %d unknown",
			by[cluster.Applied], by[cluster.NotApplied], by[cluster.Unknown])})
	}
	return slices.Clip(rows)
}
