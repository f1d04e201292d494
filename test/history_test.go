//go:build unix

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// operation is what a client asks of one key.
type operation struct {
	kind  string // get, put, create, delete, swap
	key   string
	old   string // swap: the value that must be there
	value string // put, create, swap
}

// observation is what the client was told. An unknown one says nothing.
type observation struct {
	unknown bool
	value   string // get: what is there; empty: nothing
	ok      bool   // create, swap: done. delete: there was something
}

// keyModel is one key as it ought to be: its value, which is never empty while
// the key is there.
func keyModel() porcupine.Model {
	return porcupine.Model{
		Partition: byKey,
		Init:      func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			now, isText := state.(string)
			op, isOp := input.(operation)
			out, isOut := output.(observation)
			if !isText || !isOp || !isOut {
				return false, state
			}
			return step(now, op, out)
		},
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v → %+v", input, output)
		},
	}
}

// step says whether an operation may have been observed so at a state, and what
// the state is afterwards.
func step(now string, op operation, out observation) (bool, string) {
	switch op.kind {
	case "get":
		return out.value == now, now
	case "put":
		return true, op.value
	case "create":
		if now != "" {
			return out.unknown || !out.ok, now
		}
		return out.unknown || out.ok, op.value
	case "delete":
		return out.unknown || out.ok == (now != ""), ""
	case "swap":
		if now != op.old {
			return out.unknown || !out.ok, now
		}
		return out.unknown || out.ok, op.value
	default:
		return false, now
	}
}

// byKey parts a history into those of the keys, which do not depend on each other.
func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	at := make(map[string]int)
	var parts [][]porcupine.Operation
	for _, o := range history {
		op, ok := o.Input.(operation)
		if !ok {
			continue
		}
		i, known := at[op.key]
		if !known {
			i = len(parts)
			at[op.key] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], o)
	}
	return parts
}

// A recorder has clients ask random things of a few keys, and writes down what
// they asked, when, and what they were told.
//
// An operation whose outcome is unknown goes on for ever, as far as anybody can
// tell, and the checker must consider it at every later point. So no key is used
// for long: a slot goes on to its next key after some operations.
type recorder struct {
	groups []raftyard.GroupID
	tally  *tally
	begun  time.Time
	ids    atomic.Int64 // of clients, as the checker knows them

	mu      sync.Mutex
	slots   []slot
	history []porcupine.Operation
}

// A slot is a key that is in use.
type slot struct {
	generation, operations, unknown int
}

const (
	operationsPerKey = 150
	unknownPerKey    = 5
)

func newRecorder(groups []raftyard.GroupID, slots int) *recorder {
	return &recorder{
		groups: groups, tally: newTally(), begun: time.Now(), slots: make([]slot, slots),
	}
}

// run is a client of one node, so that a node that does not answer holds up its
// own clients and no others. It ends with stop, after what it is doing.
func (r *recorder) run(ctx context.Context, n *cluster.Node, stop <-chan struct{}) {
	id := r.ids.Add(1)
	last := make(map[string]string) // of each key, a value that was seen
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		s := rand.N(len(r.slots))
		op := r.choose(s, last, fmt.Sprintf("%d.%d", id, i))
		switch r.ask(ctx, n, request{slot: s, client: int(id), op: op}, last) {
		case cluster.Unknown:
			id = r.ids.Add(1) // that client never hears again
		case cluster.NotApplied:
			pause(stop)
		case cluster.Applied:
		}
	}
}

// choose returns an operation on the slot's present key.
func (r *recorder) choose(s int, last map[string]string, value string) operation {
	r.mu.Lock()
	sl := &r.slots[s]
	if sl.operations >= operationsPerKey || sl.unknown >= unknownPerKey {
		*sl = slot{generation: sl.generation + 1}
	}
	sl.operations++
	op := operation{key: fmt.Sprintf("slot%d.%d", s, sl.generation), value: value}
	r.mu.Unlock()
	switch dice := rand.N(100); {
	case dice < 45:
		op.kind, op.value = "get", ""
	case dice < 65:
		op.kind = "put"
	case dice < 75:
		op.kind = "create"
	case dice < 83:
		op.kind, op.value = "delete", ""
	default:
		op.kind, op.old = "swap", last[op.key]
		if op.old == "" {
			op.kind = "put"
		}
	}
	return op
}

// request is an operation, who asks for it, and for which slot.
type request struct {
	slot, client int
	op           operation
}

// ask sends an operation to a node and records it, unless it certainly had no
// effect and told nothing.
func (r *recorder) ask(
	ctx context.Context, n *cluster.Node, req request, last map[string]string,
) cluster.Outcome {
	op := req.op
	g := r.groups[req.slot%len(r.groups)]
	call := time.Since(r.begun)
	a := send(ctx, n, g, op)
	done := time.Since(r.begun)
	r.tally.note(g, a)

	out, told := observe(op, a)
	if !told && !out.unknown {
		return a.Outcome
	}
	switch {
	case op.kind == "get":
		last[op.key] = out.value
	case out.unknown:
		done = math.MaxInt64
	case out.ok, op.kind == "put":
		last[op.key] = op.value
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if out.unknown {
		r.slots[req.slot].unknown++
	}
	r.history = append(r.history, porcupine.Operation{
		ClientId: req.client - 1, Input: op, Output: out, Call: int64(call), Return: int64(done),
		Metadata: fmt.Sprintf("node %d, group %d: %v", n.ID(), g, a.Outcome),
	})
	if told {
		return cluster.Applied
	}
	return cluster.Unknown
}

// send sends an operation once.
func send(ctx context.Context, n *cluster.Node, g raftyard.GroupID, op operation) cluster.Answer {
	const timeout = 4 * time.Second
	req := cluster.Request{Path: cluster.KeyPath(g, op.key), Timeout: timeout}
	switch op.kind {
	case "get":
		req.Method = http.MethodGet
	case "delete":
		req.Method = http.MethodDelete
	case "swap":
		return n.Txn(ctx, g, client.Txn{
			Compare: []client.Compare{{Key: &op.key, Value: &op.old}},
			Then:    []client.Op{{Op: client.OpPut, Key: &op.key, Value: &op.value}},
		}, timeout)
	default:
		req.Method, req.Body = http.MethodPut, []byte(op.value)
		if op.kind == "create" {
			req.Header = http.Header{"If-None-Match": {"*"}}
		}
	}
	return n.Do(ctx, req)
}

// observe reads what an answer tells about the key. Told is false when it tells
// nothing: the operation had no effect, or nobody knows.
func observe(op operation, a cluster.Answer) (out observation, told bool) {
	switch a.Outcome {
	case cluster.Applied:
	case cluster.Unknown:
		return observation{unknown: true}, false
	case cluster.NotApplied:
		absent := op.kind == "get" && a.Why == client.CodeKeyNotFound
		exists := op.kind == "create" && a.Why == client.CodePrecondition
		return observation{}, absent || exists
	}
	switch op.kind {
	case "get":
		return observation{value: string(a.Body)}, true
	case "delete":
		var res client.DeleteResult
		err := json.Unmarshal(a.Body, &res)
		return observation{ok: res.Deleted, unknown: err != nil}, true
	case "swap":
		var res client.TxnResult
		err := json.Unmarshal(a.Body, &res)
		return observation{ok: res.Succeeded, unknown: err != nil}, true
	default:
		return observation{ok: true}, true
	}
}

// checkLimit bounds how long the checker may think.
const checkLimit = 2 * time.Minute

// check fails the test if the history is not linearizable, and draws it.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	begun := time.Now()
	model := keyModel()
	res, info := porcupine.CheckOperationsVerbose(model, r.history, checkLimit)
	keys := 0
	for i := range r.slots {
		keys += r.slots[i].generation + 1
	}
	t.Logf("%d operations on %d keys are checked in %.1fs: %s",
		len(r.history), keys, time.Since(begun).Seconds(), res)
	if res == porcupine.Ok {
		return
	}
	path := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		t.Errorf("draw the history: %v", err)
	}
	if res == porcupine.Unknown {
		t.Fatalf("the checker has not come to a result within %v; the history is in %s "+
			"(kept with -artifacts)", checkLimit, path)
	}
	r.explain(t, model)
	t.Fatalf("the history is not linearizable; it is drawn in %s (kept with -artifacts)", path)
}

// explain prints the history of the first key that is not linearizable.
func (r *recorder) explain(t *testing.T, model porcupine.Model) {
	t.Helper()
	for _, part := range byKey(r.history) {
		if porcupine.CheckOperationsTimeout(model, part, checkLimit) != porcupine.Illegal {
			continue
		}
		for _, o := range part {
			t.Logf("%10.4f … %10.4f client %d %+v → %+v (%v)",
				time.Duration(o.Call).Seconds(), time.Duration(o.Return).Seconds(),
				o.ClientId, o.Input, o.Output, o.Metadata)
		}
		return
	}
}
