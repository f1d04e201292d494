package storage

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// The inventory file is a list of frames, each
//
//	crc32c 4, little endian, of the rest | length of the body 4, big endian | body
//
// and a body is format 1 byte, kind 1 byte, and what the kind says. Later frames count more.
const (
	inventoryFormat = 3 // 1 has no tombstones, 2 has no floor
	frameFront      = crcSize + 4

	frameStore   = 1 // store, boot, floor: who keeps it; the first
	frameLive    = 2 // count, and so many of group, incarnation, replica, seq
	frameGone    = 3 // count, and so many groups: nothing is left, or in format 1 a tombstone
	frameNumbers = 4 // count, and so many of group, seq
	frameDead    = 5 // count, and so many of group, incarnation, replica, seq, tombstone

	// maxFrameItems bounds the items in a frame, and maxFrame its body.
	maxFrameItems = 4096
	maxFrame      = 1 << 18

	// inventoryCharge is about what an entry takes in the file, without a tombstone.
	inventoryCharge = 30
	// maxInventoryData bounds what it has of a tombstone's data: one with more is kept
	// without.
	maxInventoryData = maxFrame / 2
)

// inventoryEntry is what the inventory knows of a group.
type inventoryEntry struct {
	incarnation raftyard.Incarnation
	id          raftyard.ReplicaID
	seq         uint64     // of a record of its group that was durable
	dead        *Tombstone // nil: the replica is live
}

// isNoted reports whether the inventory shall know of the group: something of it can be
// read, and it was not forgotten before.
func (r *replica) isNoted() bool {
	return !r.live() || r.info.ID != 0 && !r.info.Forgotten
}

// entry is what the inventory shall know of a group.
func (r *replica) entry() inventoryEntry {
	return inventoryEntry{r.info.Incarnation, r.info.ID, r.seq, r.info.Tombstone}
}

func (e *inventoryEntry) isOf(r *Replica) bool {
	return e.id == r.ID && e.incarnation == r.Incarnation
}

func (e *inventoryEntry) charge() int64 {
	if e.dead == nil {
		return inventoryCharge
	}
	return 2*inventoryCharge + int64(len(e.dead.data()))
}

// data is what the inventory keeps of the tombstone's data.
func (t *Tombstone) data() []byte {
	if len(t.Data) > maxInventoryData {
		return nil
	}
	return t.Data
}

// becomes returns the kind of the frame with which an entry, or none, becomes what c says;
// zero: it is that already, or is further.
func (e *inventoryEntry) becomes(c *inventoryChange) byte {
	switch {
	case !c.there:
		return frameGone
	case c.seq <= e.seq: // or something was created since the change was gathered
		return 0
	case c.dead != nil:
		return frameDead
	case e.dead == nil && e.id == c.id && e.incarnation == c.incarnation:
		return frameNumbers
	default:
		return frameLive
	}
}

// inventoryChange is what became of a group.
type inventoryChange struct {
	group groupID
	there bool // otherwise nothing is left of it
	inventoryEntry
}

// appendFrame appends a frame with a body that fill appends to.
func appendFrame(b []byte, kind byte, fill func([]byte) []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, frameFront)...)
	b = fill(append(b, inventoryFormat, kind))
	frame := b[at:]
	binary.BigEndian.PutUint32(frame[crcSize:], uint32(len(frame)-frameFront))
	binary.LittleEndian.PutUint32(frame, frameSum(frame))
	return b
}

func frameSum(frame []byte) uint32 {
	return crc32.Checksum(frame[crcSize:], crc32.MakeTable(crc32.Castagnoli))
}

func appendStoreFrame(b []byte, store uuid.UUID, boot, floor uint64) []byte {
	return appendFrame(b, frameStore, func(b []byte) []byte {
		return wire.AppendUvarint(wire.AppendUvarint(wire.AppendID(b, store), boot), floor)
	})
}

// appendList appends changes, in as many frames of a kind as they need.
func appendList(b []byte, kind byte, changes []inventoryChange) []byte {
	for len(changes) > 0 {
		n, size := 1, changes[0].charge()
		for n < min(len(changes), maxFrameItems) && size+changes[n].charge() <= maxFrame/2 {
			size += changes[n].charge()
			n++
		}
		some := changes[:n]
		changes = changes[n:]
		b = appendFrame(b, kind, func(b []byte) []byte {
			b = wire.AppendUvarint(b, uint64(len(some)))
			for i := range some {
				b = some[i].append(b, kind)
			}
			return b
		})
	}
	return b
}

func (c *inventoryChange) append(b []byte, kind byte) []byte {
	b = wire.AppendUvarint(b, uint64(c.group))
	switch kind {
	case frameLive:
		b = c.appendReplica(b)
	case frameNumbers:
		b = wire.AppendUvarint(b, c.seq)
	case frameDead:
		b = c.appendReplica(b)
		b = wire.AppendUvarint(b, uint64(c.dead.NextReplica))
		b = wire.AppendUvarint(b, c.dead.Epoch)
		b = wire.AppendBytes(b, c.dead.data())
	}
	return b
}

func (e *inventoryEntry) appendReplica(b []byte) []byte {
	b = wire.AppendID(b, e.incarnation)
	b = wire.AppendUvarint(b, uint64(e.id))
	return wire.AppendUvarint(b, e.seq)
}

// readInventory is what a file says.
type readInventory struct {
	store   uuid.UUID // of its last store frame, zero: there is none
	boot    uint64
	whole   bool // it is of a format that has tombstones
	floored bool // it is of a format that has a floor
	floor   uint64
	entries map[groupID]inventoryEntry
	size    int // of what can be read, from the beginning
}

// decodeInventory reads frames up to the end, or to the first that cannot be read.
func decodeInventory(b []byte) readInventory {
	in := readInventory{entries: make(map[groupID]inventoryEntry)}
	for {
		frame, ok := cutFrame(b[in.size:])
		if !ok || !in.take(frame[frameFront:]) {
			return in
		}
		in.size += len(frame)
	}
}

// isForeign reports whether the file is another store's.
func (in *readInventory) isForeign(id Identity) bool {
	return in.store != id.Store && in.store != uuid.Nil
}

// isUsable reports whether the file can be believed: it can be read, and every start of the
// store has known of it.
func (in *readInventory) isUsable(id Identity) bool {
	return in.store == id.Store && in.boot >= id.Boot
}

func cutFrame(b []byte) (frame []byte, ok bool) {
	if len(b) < frameFront {
		return nil, false
	}
	n := binary.BigEndian.Uint32(b[crcSize:])
	if n > maxFrame || uint64(len(b)-frameFront) < uint64(n) {
		return nil, false
	}
	frame = b[:frameFront+int(n)]
	return frame, binary.LittleEndian.Uint32(frame) == frameSum(frame)
}

// take takes in a frame, and reports whether it can be understood.
func (in *readInventory) take(body []byte) bool {
	r := wire.NewReader(body)
	format := r.Byte()
	if format == 0 || format > inventoryFormat {
		return false
	}
	switch r.Byte() {
	case frameStore:
		in.store, in.boot = r.ID(), r.Uvarint()
		in.whole, in.floored = format > 1, format > 2
		if in.floored {
			in.floor = r.Uvarint()
		}
	case frameLive:
		for range r.Count(19) {
			g := raftyard.GroupID(r.Uvarint())
			in.entries[g] = readEntry(r)
		}
	case frameGone:
		for range r.Count(1) {
			delete(in.entries, raftyard.GroupID(r.Uvarint()))
		}
	case frameNumbers:
		for range r.Count(2) {
			g, seq := raftyard.GroupID(r.Uvarint()), r.Uvarint()
			if e, ok := in.entries[g]; ok {
				e.seq = max(e.seq, seq)
				in.entries[g] = e
			}
		}
	case frameDead:
		for range r.Count(22) {
			g := raftyard.GroupID(r.Uvarint())
			e := readEntry(r)
			e.dead = &Tombstone{
				NextReplica: raftyard.ReplicaID(r.Uvarint()), Epoch: r.Uvarint(),
				Data: slices.Clone(r.Bytes()),
			}
			in.entries[g] = e
		}
	default:
		return false
	}
	return r.Close() == nil
}

func readEntry(r *wire.Reader) inventoryEntry {
	return inventoryEntry{
		incarnation: r.ID(), id: raftyard.ReplicaID(r.Uvarint()), seq: r.Uvarint(),
	}
}

// encodeInventory returns the shortest file that says the same.
func encodeInventory(
	store uuid.UUID, boot, floor uint64, entries map[groupID]inventoryEntry,
) []byte {
	var live, dead []inventoryChange
	size := int64(64)
	for _, g := range slices.Sorted(maps.Keys(entries)) {
		c := inventoryChange{g, true, entries[g]}
		if size += c.charge() + c.charge()/2; c.dead == nil {
			live = append(live, c)
		} else {
			dead = append(dead, c)
		}
	}
	b := appendStoreFrame(make([]byte, 0, size), store, boot, floor)
	return appendList(appendList(b, frameLive, live), frameDead, dead)
}
