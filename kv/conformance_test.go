package kv

import (
	"fmt"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/group/grouptest"
)

// restartNode is the Env.Dir by which a testNode is told to restart.
const restartNode = "restart"

// testNode is a node with a store whose process can be started again.
type testNode struct {
	dir   string
	store *Store
}

func (n *testNode) start(tb testing.TB) {
	tb.Helper()
	n.store = openTestStore(tb, n.dir)
	smallWriteSets(n.store)
}

func (n *testNode) factory(tb testing.TB) group.Factory {
	tb.Helper()
	return func(env group.Env) (group.StateMachine, error) {
		if env.Dir == restartNode {
			err := n.store.Close()
			n.start(tb)
			return nil, err
		}
		return n.store.Factory()(env)
	}
}

// conformanceCommand returns commands of all kinds, each of which changes the
// state.
func conformanceCommand(i int) []byte {
	key := fmt.Sprint("key", i%17)
	switch i % 4 {
	case 1:
		return encodePut(fmt.Append(nil, "new", i), []byte("v"), Cond{Absent: true})
	case 2:
		return del(fmt.Sprint("new", i-1))
	case 3:
		return encodeTxn(Txn{
			Compares: []Compare{{Key: []byte(key), Target: TargetRevision, Is: Greater}},
			Then:     []Op{{Kind: OpPut, Key: []byte(key), Value: fmt.Append(nil, i)}},
			Else:     []Op{{Kind: OpPut, Key: []byte("other"), Value: fmt.Append(nil, i)}},
		})
	default:
		return put(key, fmt.Sprint("value", i))
	}
}

func TestConformance(t *testing.T) {
	grouptest.Suite{
		Open: func(tb testing.TB) group.Factory {
			tb.Helper()
			n := &testNode{dir: tb.TempDir()}
			n.start(tb)
			return n.factory(tb)
		},
		Restart: func(tb testing.TB, f group.Factory) group.Factory {
			tb.Helper()
			if _, err := f(group.Env{Dir: restartNode}); err != nil {
				tb.Fatalf("restart: %v", err)
			}
			return f
		},
		Command: conformanceCommand,
		Queries: [][]byte{
			encodeGetQuery([]byte("key3")),
			encodeListQuery(ListRequest{}),
			encodeListQuery(ListRequest{Prefix: []byte("new"), KeysOnly: true}),
		},
	}.Run(t)
}
