package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/raftyard/raftyard/group"
)

// counter is a state machine in memory. The node keeps its snapshots in files
// and brings it back from there, and from the log, at each start.
type counter struct{ n atomic.Uint64 }

func newCounter(group.Env) (group.StateMachine, error) { return new(counter), nil }

func (c *counter) value() uint64 { return c.n.Load() }

// Apply adds the bytes of each command and answers with the sum so far.
func (c *counter) Apply(batch []group.Command) ([]group.Result, error) {
	results := make([]group.Result, len(batch))
	for i, cmd := range batch {
		for _, b := range cmd.Data {
			c.n.Add(uint64(b))
		}
		results[i].Data = binary.BigEndian.AppendUint64(nil, c.value())
	}
	return results, nil
}

// Snapshot returns the sum as it is now.
func (c *counter) Snapshot() (group.Snapshot, error) { return snapshot(c.value()), nil }

// Restore replaces the sum.
func (c *counter) Restore(r io.Reader) error {
	b, err := io.ReadAll(r) // to the end: only there it is certain that all has come
	if err != nil {
		return err
	}
	if len(b) != 8 {
		return fmt.Errorf("a counter's snapshot has 8 bytes, this one has %d", len(b))
	}
	c.n.Store(number(b))
	return nil
}

func (c *counter) Close() error { return nil }

type snapshot uint64

func (s snapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(binary.BigEndian.AppendUint64(nil, uint64(s)))
	return int64(n), err
}

func (s snapshot) Close() error { return nil }

func number(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
