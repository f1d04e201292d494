package grouptest_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/group/grouptest"
)

// counter adds up the bytes of its commands.
type counter struct{ sum atomic.Uint64 }

func newCounter(group.Env) (group.StateMachine, error) { return new(counter), nil }

func (c *counter) Apply(batch []group.Command) ([]group.Result, error) {
	results := make([]group.Result, len(batch))
	for i, cmd := range batch {
		for _, b := range cmd.Data {
			c.sum.Add(uint64(b))
		}
		results[i].Data = binary.BigEndian.AppendUint64(nil, c.sum.Load())
	}
	return results, nil
}

func (c *counter) Snapshot() (group.Snapshot, error) { return snapshot(c.sum.Load()), nil }

func (c *counter) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(b) != 8 {
		return fmt.Errorf("a snapshot has 8 bytes, this one has %d", len(b))
	}
	c.sum.Store(binary.BigEndian.Uint64(b))
	return nil
}

func (c *counter) Close() error { return nil }

type snapshot uint64

func (s snapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(binary.BigEndian.AppendUint64(nil, uint64(s)))
	return int64(n), err
}

func (s snapshot) Close() error { return nil }

// The body of a test of a machine that takes any bytes for a command.
func ExampleTestStateMachine() {
	_ = func(t *testing.T) { // func TestCounter(t *testing.T) {
		grouptest.TestStateMachine(t, func(testing.TB) group.Factory { return newCounter })
	}
	// Output:
}

// The body of a test of a machine whose commands have a form of their own.
func ExampleSuite() {
	_ = func(t *testing.T) { // func TestCounter(t *testing.T) {
		grouptest.Suite{
			Open:    func(testing.TB) group.Factory { return newCounter },
			Command: func(i int) []byte { return binary.AppendUvarint(nil, uint64(i)+1) },
		}.Run(t)
	}
	// Output:
}

// The examples' machine passes.
func TestExamples(t *testing.T) {
	grouptest.TestStateMachine(t, func(testing.TB) group.Factory { return newCounter })
	grouptest.Suite{
		Open:    func(testing.TB) group.Factory { return newCounter },
		Command: func(i int) []byte { return binary.AppendUvarint(nil, uint64(i)+1) },
	}.Run(t)
}
