package kv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// First bytes of the keys in Badger.
const (
	storePrefix      = 'S' // S
	machinePrefix    = 'M' // M group incarnation replica
	generationPrefix = 'G' // G generation
	itemPrefix       = 'D' // D generation key
)

const (
	recordFormat  = 1
	recordHeader  = 1 + 4 // format, CRC
	itemKeyHeader = 1 + 8 // prefix, generation

	// recordOverhead is what is stored around the key and value of an item.
	recordOverhead = itemKeyHeader + recordHeader + 2*binary.MaxVarintLen64
)

// A generation is a range of item keys. The store gives each number out once.
type generation uint64

// Replica names a replica whose state a [Store] holds.
type Replica struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	ID          raftyard.ReplicaID
}

func (r Replica) String() string {
	return fmt.Sprintf("group %v replica %v (%v)", r.Group, r.ID, r.Incarnation)
}

// compare orders replicas as their keys do.
func (r Replica) compare(o Replica) int { return bytes.Compare(machineKey(r), machineKey(o)) }

func storeKey() []byte { return []byte{storePrefix} }

func machineKey(r Replica) []byte {
	k := make([]byte, 0, 1+8+16+8)
	k = append(k, machinePrefix)
	k = binary.BigEndian.AppendUint64(k, uint64(r.Group))
	k = append(k, r.Incarnation[:]...)
	return binary.BigEndian.AppendUint64(k, uint64(r.ID))
}

func parseMachineKey(k []byte) (r Replica, ok bool) {
	if len(k) != 1+8+16+8 || k[0] != machinePrefix {
		return Replica{}, false
	}
	r.Group = raftyard.GroupID(binary.BigEndian.Uint64(k[1:]))
	copy(r.Incarnation[:], k[9:])
	r.ID = raftyard.ReplicaID(binary.BigEndian.Uint64(k[25:]))
	return r, true
}

func generationKey(g generation) []byte {
	return binary.BigEndian.AppendUint64([]byte{generationPrefix}, uint64(g))
}

func parseGenerationKey(k []byte) (g generation, ok bool) {
	if len(k) != 1+8 || k[0] != generationPrefix {
		return 0, false
	}
	return generation(binary.BigEndian.Uint64(k[1:])), true
}

// itemKeyPrefix is what all item keys of g begin with.
func itemKeyPrefix(g generation) []byte {
	return binary.BigEndian.AppendUint64([]byte{itemPrefix}, uint64(g))
}

func itemKey(g generation, key []byte) []byte {
	k := make([]byte, 0, itemKeyHeader+len(key))
	k = append(k, itemPrefix)
	k = binary.BigEndian.AppendUint64(k, uint64(g))
	return append(k, key...)
}

// keyAfter returns the first key after key.
func keyAfter(key []byte) []byte {
	return append(append(make([]byte, 0, len(key)+1), key...), 0)
}

// newRecord returns the beginning of a record, with room for size more bytes.
// The caller appends the body and calls seal.
func newRecord(size int) []byte {
	b := make([]byte, recordHeader, recordHeader+size)
	b[0] = recordFormat
	return b
}

// seal fills in the CRC of a record.
func seal(group raftyard.GroupID, key, record []byte) []byte {
	binary.LittleEndian.PutUint32(record[1:], recordCRC(group, key, record))
	return record
}

func recordCRC(group raftyard.GroupID, key, record []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var head [9]byte
	binary.BigEndian.PutUint64(head[:], uint64(group))
	head[8] = record[0]
	crc := crc32.Update(0, table, head[:])
	crc = crc32.Update(crc, table, key)
	return crc32.Update(crc, table, record[recordHeader:])
}

// open checks a record and returns its body.
func open(group raftyard.GroupID, key, record []byte) ([]byte, error) {
	shown := key
	if len(key) > itemKeyHeader && key[0] == itemPrefix {
		shown = key[itemKeyHeader:]
	}
	switch {
	case len(record) < recordHeader:
		return nil, &DamageError{Key: shown, What: fmt.Sprintf("%d bytes long", len(record))}
	case binary.LittleEndian.Uint32(record[1:]) != recordCRC(group, key, record):
		return nil, &DamageError{Key: shown, What: "checksum does not match"}
	case record[0] != recordFormat:
		return nil, fmt.Errorf("%w: record of key %q has format %d", ErrFormat, shown, record[0])
	}
	return record[recordHeader:], nil
}

// malformed is the error of a record with a right checksum and a wrong body.
func malformed(key []byte, err error) error {
	return &DamageError{Key: key, What: err.Error()}
}

// An item is one key's state. The zero item is an absent key.
type item struct {
	create uint64 // revision at which the key came into being; zero: absent
	mod    uint64 // revision of the last write; mod >= create
	value  []byte
}

func (it item) present() bool { return it.create != 0 }

func encodeItem(group raftyard.GroupID, storedKey []byte, it item) []byte {
	b := newRecord(2*binary.MaxVarintLen64 + len(it.value))
	b = wire.AppendUvarint(b, it.create)
	b = wire.AppendUvarint(b, it.mod-it.create)
	return seal(group, storedKey, append(b, it.value...))
}

// decodeItem returns the item of a record. Its value is a part of record.
func decodeItem(group raftyard.GroupID, storedKey, record []byte) (item, error) {
	body, err := open(group, storedKey, record)
	if err != nil {
		return item{}, err
	}
	r := wire.NewReader(body)
	var it item
	it.create = r.Uvarint()
	it.mod = it.create + r.Uvarint()
	it.value = r.Raw(uint64(r.Len()))
	if err := r.Close(); err != nil {
		return item{}, malformed(storedKey[itemKeyHeader:], err)
	}
	if it.create == 0 || it.mod < it.create {
		return item{}, &DamageError{Key: storedKey[itemKeyHeader:], What: "revisions out of range"}
	}
	return it, nil
}

// A position is how far the log is applied.
type position struct {
	index  uint64
	offset uint64 // of the last command applied at index
	// partial: more commands of the entry at index follow.
	partial bool
}

// covers reports whether the command at (index, offset) is applied at p.
func (p position) covers(index, offset uint64) bool {
	return index < p.index || index == p.index && offset <= p.offset
}

// applied is the newest index of which all commands are applied.
func (p position) applied() uint64 {
	if p.partial {
		return p.index - 1
	}
	return p.index
}

// machineState is what a machine's record holds. The zero value is a machine
// that never applied anything and has no record.
type machineState struct {
	generation generation // zero: none yet
	position   position
	revision   uint64
	content    content
}

func encodeMachine(r Replica, s machineState) []byte {
	b := newRecord(8*binary.MaxVarintLen64 + sumSize)
	b = wire.AppendUvarint(b, uint64(s.generation))
	b = appendPosition(b, s.position)
	b = wire.AppendUvarint(b, s.revision)
	return seal(r.Group, machineKey(r), appendContent(b, s.content))
}

func decodeMachine(r Replica, record []byte) (machineState, error) {
	key := machineKey(r)
	body, err := open(r.Group, key, record)
	if err != nil {
		return machineState{}, err
	}
	rd := wire.NewReader(body)
	s := machineState{generation: generation(rd.Uvarint())}
	s.position = readPosition(rd)
	s.revision = rd.Uvarint()
	s.content = readContent(rd)
	if err := rd.Close(); err != nil {
		return machineState{}, malformed(key, err)
	}
	return s, nil
}

func appendPosition(b []byte, p position) []byte {
	b = wire.AppendUvarint(b, p.index)
	b = wire.AppendUvarint(b, p.offset)
	return wire.AppendBool(b, p.partial)
}

func readPosition(r *wire.Reader) position {
	p := position{index: r.Uvarint(), offset: r.Uvarint(), partial: r.Bool()}
	if p.partial && p.index == 0 {
		r.Fail("a part of entry 0 is applied")
	}
	return p
}

// generationState says what a generation is for.
type generationState uint8

const (
	filling  generationState = 1 // a restore writes it
	live     generationState = 2 // its machine's record points at it
	dropping generationState = 3 // being deleted
)

// generationRecord is what the store remembers of a generation.
type generationRecord struct {
	state generationState
	owner Replica
}

func encodeGeneration(g generation, rec generationRecord) []byte {
	b := newRecord(1 + 2*binary.MaxVarintLen64 + 16)
	b = append(b, byte(rec.state))
	b = wire.AppendUvarint(b, uint64(rec.owner.Group))
	b = wire.AppendID(b, rec.owner.Incarnation)
	b = wire.AppendUvarint(b, uint64(rec.owner.ID))
	return seal(0, generationKey(g), b)
}

func decodeGeneration(g generation, record []byte) (generationRecord, error) {
	key := generationKey(g)
	body, err := open(0, key, record)
	if err != nil {
		return generationRecord{}, err
	}
	r := wire.NewReader(body)
	rec := generationRecord{state: generationState(r.Byte())}
	rec.owner.Group = raftyard.GroupID(r.Uvarint())
	rec.owner.Incarnation = r.ID()
	rec.owner.ID = raftyard.ReplicaID(r.Uvarint())
	if rec.state < filling || rec.state > dropping {
		r.Fail("generation state %d", rec.state)
	}
	if err := r.Close(); err != nil {
		return generationRecord{}, malformed(key, err)
	}
	return rec, nil
}

// storeRecord holds the bound below which generation numbers are given out.
type storeRecord struct{ reserved generation }

func encodeStore(s storeRecord) []byte {
	b := wire.AppendUvarint(newRecord(binary.MaxVarintLen64), uint64(s.reserved))
	return seal(0, storeKey(), b)
}

func decodeStore(record []byte) (storeRecord, error) {
	body, err := open(0, storeKey(), record)
	if err != nil {
		return storeRecord{}, err
	}
	r := wire.NewReader(body)
	s := storeRecord{reserved: generation(r.Uvarint())}
	if err := r.Close(); err != nil {
		return storeRecord{}, malformed(storeKey(), err)
	}
	return s, nil
}
