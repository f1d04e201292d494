package machine

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/test/linear"
)

// A register is what a key holds. The version counts the writes since the key was
// made, so that a write done twice shows even where it writes the same value.
type register struct {
	value   string
	version uint64
}

// registers are a state: keys, and the index of the last command.
type registers struct {
	keys  map[string]register
	index uint64
	// writes counts all that was ever written: what is deleted leaves a trace.
	writes uint64
	// sum is the sum of the hashes of all keys, which does not depend on their order.
	sum   uint64
	bytes int64
}

func newRegisters() *registers { return &registers{keys: make(map[string]register)} }

// apply applies one command and returns the answer.
func (s *registers) apply(c *group.Command) []byte {
	s.index = c.Index
	op, err := decodeOp(c.Data)
	if err != nil {
		return []byte{answerRefused}
	}
	return appendResult(nil, s.do(op))
}

func (s *registers) do(op linear.Op) linear.Result {
	now, there := s.keys[op.Key]
	switch op.Kind {
	case linear.Put:
		s.set(op.Key, op.Value)
		return linear.Result{OK: true}
	case linear.Append:
		s.set(op.Key, now.value+op.Value)
		return linear.Result{OK: true}
	case linear.Create:
		if !there {
			s.set(op.Key, op.Value)
		}
		return linear.Result{OK: !there}
	case linear.Swap:
		holds := there && now.value == op.Old
		if holds {
			s.set(op.Key, op.Value)
		}
		return linear.Result{OK: holds}
	case linear.Delete:
		s.remove(op.Key)
		return linear.Result{OK: there}
	default: // Get; decodeOp admits no other
		return linear.Result{Found: there, Value: now.value}
	}
}

func (s *registers) set(key, value string) {
	version := s.keys[key].version
	s.remove(key)
	s.put(key, register{value: value, version: version + 1})
}

func (s *registers) put(key string, r register) {
	s.keys[key] = r
	s.sum += hashKey(key, r)
	s.bytes += int64(len(key) + len(r.value))
	s.writes++
}

func (s *registers) remove(key string) {
	r, there := s.keys[key]
	if !there {
		return
	}
	delete(s.keys, key)
	s.sum -= hashKey(key, r)
	s.bytes -= int64(len(key) + len(r.value))
	s.writes++
}

// hash returns the hash of the content.
func (s *registers) hash() uint64 {
	return mix(s.sum ^ mix(s.writes) ^ uint64(len(s.keys)))
}

func hashKey(key string, r register) uint64 {
	h := fnvAdd(fnvStart, key)
	h = fnvAdd(h^0xff, r.value)
	return mix(h ^ mix(r.version))
}

// FNV-1a, of 64 bits.
const (
	fnvStart = 14695981039346656037
	fnvPrime = 1099511628211
)

func fnvAdd[T string | []byte](h uint64, data T) uint64 {
	for i := range len(data) {
		h = (h ^ uint64(data[i])) * fnvPrime
	}
	return h
}

// mix spreads every bit of x over all of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

const (
	snapshotVersion = 1
	checksumSize    = 8
)

// encode returns the state as a snapshot: the same bytes for the same state.
func (s *registers) encode() []byte {
	b := []byte{snapshotVersion}
	b = wire.AppendUvarint(b, s.index)
	b = wire.AppendUvarint(b, s.writes)
	b = wire.AppendUvarint(b, uint64(len(s.keys)))
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		r := s.keys[key]
		b = wire.AppendString(b, key)
		b = wire.AppendString(b, r.value)
		b = wire.AppendUvarint(b, r.version)
	}
	return appendChecksum(b)
}

func appendChecksum(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, mix(fnvAdd(fnvStart, b)))
}

// cutChecksum returns what is before the checksum, if it holds.
func cutChecksum(b []byte) ([]byte, bool) {
	n := len(b) - checksumSize
	if n < 0 || binary.BigEndian.Uint64(b[n:]) != mix(fnvAdd(fnvStart, b[:n])) {
		return nil, false
	}
	return b[:n], true
}

// decodeRegisters reads what encode has written.
func decodeRegisters(b []byte) (*registers, error) {
	body, ok := cutChecksum(b)
	if !ok {
		return nil, fmt.Errorf("%w: snapshot of %d bytes has a wrong checksum",
			wire.ErrMalformed, len(b))
	}
	const smallest = 3 // of an encoded key
	r := wire.NewReader(body)
	if version := r.Byte(); version != snapshotVersion {
		r.Fail("snapshot of version %d", version)
	}
	s := newRegisters()
	s.index = r.Uvarint()
	writes := r.Uvarint()
	before := ""
	for i := range r.Count(smallest) {
		key := r.String()
		if i > 0 && key <= before {
			r.Fail("key %q comes after %q", key, before)
			break
		}
		before = key
		s.put(key, register{value: r.String(), version: r.Uvarint()})
	}
	s.writes = writes
	if err := r.Close(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}
