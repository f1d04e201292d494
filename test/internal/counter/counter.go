// Package counter has the state machine of measurements: it does as little as one can, so
// that what is measured is the way to it.
package counter

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/raftyard/raftyard/group"
)

// A Machine is a [group.StateMachine] in memory that counts commands, whatever they are. The
// result of each is the count after it, as [Value] reads it.
type Machine struct{ n atomic.Uint64 }

// New is a [group.Factory].
func New(group.Env) (group.StateMachine, error) { return &Machine{}, nil }

// Count returns how many commands were applied.
func (m *Machine) Count() uint64 { return m.n.Load() }

// Value returns the count in the result of a command.
func Value(result group.Result) (uint64, error) { return decode(result.Data) }

// Apply implements [group.StateMachine].
func (m *Machine) Apply(batch []group.Command) ([]group.Result, error) {
	results := make([]group.Result, len(batch))
	counts := make([]byte, 0, size*len(batch))
	for i := range results {
		counts = binary.BigEndian.AppendUint64(counts, m.n.Add(1))
		results[i].Data = counts[size*i : size*(i+1) : size*(i+1)]
	}
	return results, nil
}

// Snapshot implements [group.StateMachine].
func (m *Machine) Snapshot() (group.Snapshot, error) { return count(m.n.Load()), nil }

// Restore implements [group.StateMachine].
func (m *Machine) Restore(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	n, err := decode(data)
	if err != nil {
		return err
	}
	m.n.Store(n)
	return nil
}

// Close implements [group.StateMachine].
func (m *Machine) Close() error { return nil }

// size is that of a count in bytes.
const size = 8

func decode(data []byte) (uint64, error) {
	if len(data) != size {
		return 0, fmt.Errorf("a count of %d bytes, want %d", len(data), size)
	}
	return binary.BigEndian.Uint64(data), nil
}

// A count is a snapshot of a [Machine].
type count uint64

// WriteTo implements [group.Snapshot].
func (c count) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(binary.BigEndian.AppendUint64(nil, uint64(c)))
	return int64(n), err
}

// Close implements [group.Snapshot].
func (c count) Close() error { return nil }
