package grouptest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

// A disk is what the lists of one node keep, by directory.
type disk struct {
	mu    sync.Mutex
	lists map[string]list
}

// A list is the state of the reference machine: every command, in order.
type list struct {
	index uint64
	items [][]byte
}

func (l list) encode() []byte {
	b := wire.AppendUvarint(nil, l.index)
	b = wire.AppendUvarint(b, uint64(len(l.items)))
	for _, item := range l.items {
		b = wire.AppendBytes(b, item)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func decodeList(b []byte) (list, error) {
	if len(b) < sha256.Size {
		return list{}, io.ErrUnexpectedEOF
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return list{}, fmt.Errorf("checksum %x, want %x", got, sum)
	}
	r := wire.NewReader(body)
	l := list{index: r.Uvarint()}
	for range r.Count(1) {
		l.items = append(l.items, bytes.Clone(r.Bytes()))
	}
	return l, r.Close()
}

// machineList is a state machine that keeps every promise, unless a fault says which
// one it breaks.
type machineList struct {
	fault string
	disk  *disk
	dir   string

	mu sync.RWMutex
	list
}

// opener returns factories of machines with a fault.
func opener(fault string) func(testing.TB) group.Factory {
	return func(testing.TB) group.Factory {
		d := &disk{lists: make(map[string]list)}
		return func(env group.Env) (group.StateMachine, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			m := &machineList{fault: fault, disk: d, dir: env.Dir, list: d.lists[env.Dir]}
			m.items = slices.Clone(m.items)
			return m, nil
		}
	}
}

func (m *machineList) save() {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	saved := list{index: m.index, items: slices.Clone(m.items)}
	switch m.fault {
	case "loses data":
		saved.items = saved.items[:max(len(saved.items)-1, 0)]
	case "loses the index":
		saved.index = 1
	}
	m.disk.lists[m.dir] = saved
}

func (m *machineList) Apply(batch []group.Command) ([]group.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var results []group.Result
	for i, c := range batch {
		item := bytes.Clone(c.Data)
		switch {
		case m.fault == "keeps data":
			item = c.Data
		case m.fault == "modifies data" && len(c.Data) > 0:
			c.Data[0] = 'x'
		case m.fault == "depends on batches":
			item = append(item, byte(i))
		case m.fault == "differs" && len(m.items) > 3:
			item = fmt.Appendf(nil, "%p", m)
		}
		m.items = append(m.items, item)
		m.index = c.Index
		r := group.Result{Data: fmt.Appendf(nil, "%d", len(m.items))}
		if m.fault == "fills in the index" {
			r.Index = c.Index
		}
		results = append(results, r)
	}
	if m.fault == "forgets a result" {
		results = results[1:]
	}
	m.save()
	return results, nil
}

type listSnapshot struct {
	m    *machineList
	data []byte
}

func (m *machineList) Snapshot() (group.Snapshot, error) {
	return &listSnapshot{m: m, data: m.encode()}, nil
}

func (s *listSnapshot) WriteTo(w io.Writer) (int64, error) {
	switch s.m.fault {
	case "snapshot moves":
		s.m.mu.RLock()
		s.data = s.m.encode()
		s.m.mu.RUnlock()
	case "counts wrong":
		_, err := w.Write(s.data)
		return 0, err
	}
	n, err := w.Write(s.data)
	return int64(n), err
}

func (s *listSnapshot) Close() error { return nil }

func (m *machineList) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if m.fault == "ignores a failed reader" {
		err = nil
	}
	if m.fault == "empties before restoring" {
		m.list = list{}
	}
	if err != nil {
		return err
	}
	l, err := decodeList(b)
	if err != nil {
		return err
	}
	if m.fault == "merges" && len(m.items) > len(l.items) {
		l.items = append(l.items, m.items[len(l.items):]...)
	}
	m.list = l
	if m.fault != "restores in memory" {
		m.save()
	}
	return nil
}

func (m *machineList) Close() error {
	if m.fault == "fails to close" {
		return io.ErrClosedPipe
	}
	return nil
}

func (m *machineList) Applied() (uint64, error) {
	if m.fault == "runs ahead" {
		return m.index + 1, nil
	}
	return m.index, nil
}

func (m *machineList) Hash() ([]byte, error) {
	if m.fault == "has one hash" {
		return []byte{1}, nil
	}
	sum := sha256.Sum256(m.encode())
	return sum[:], nil
}

func (m *machineList) Query(query []byte) ([]byte, error) {
	if m.fault != "races" {
		m.mu.RLock()
		defer m.mu.RUnlock()
	}
	switch string(query) {
	case "len":
		return fmt.Appendf(nil, "%d", len(m.items)), nil
	default:
		return nil, fmt.Errorf("no question: %q", query)
	}
}

func (m *machineList) Destroy() error {
	if m.fault != "destroys nothing" {
		m.disk.mu.Lock()
		defer m.disk.mu.Unlock()
		delete(m.disk.lists, m.dir)
	}
	return nil
}
