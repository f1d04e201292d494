package machine_test

import (
	"fmt"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/group/grouptest"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/test/linear"
	"github.com/raftyard/raftyard/test/sim/internal/check"
	"github.com/raftyard/raftyard/test/sim/internal/machine"
)

var _ machine.Observer = (*check.Checker)(nil)

func command(i int) []byte {
	key := fmt.Sprintf("key%d", i%7)
	switch i % 3 {
	case 0:
		return machine.Encode(linear.Op{Kind: linear.Put, Key: key, Value: fmt.Sprint(i)})
	case 1:
		return machine.Encode(linear.Op{Kind: linear.Append, Key: key, Value: fmt.Sprint(i)})
	default:
		fresh := fmt.Sprintf("key%d", i)
		return machine.Encode(linear.Op{Kind: linear.Create, Key: fresh, Value: "new"})
	}
}

func questions() [][]byte {
	return [][]byte{machine.Encode(linear.Op{Kind: linear.Get, Key: "key3"})}
}

func TestMemory(t *testing.T) {
	grouptest.Suite{
		Open:    func(testing.TB) group.Factory { return machine.Memory(machine.Config{}) },
		Command: command,
		Queries: questions(),
	}.Run(t)
}

func TestDurable(t *testing.T) {
	open := func(testing.TB) group.Factory {
		return machine.Durable(machine.Config{Files: vfs.OS{}})
	}
	grouptest.Suite{
		Open: open,
		Restart: func(tb testing.TB, _ group.Factory) group.Factory {
			tb.Helper()
			return open(tb)
		},
		Command: command,
		Queries: questions(),
	}.Run(t)
}
