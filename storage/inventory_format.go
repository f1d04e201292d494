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
// and a body is format 1, kind 1, and what the kind says. Later frames count more.
const (
	inventoryFormat = 1
	frameFront      = crcSize + 4

	frameStore   = 1 // store, boot: who keeps it; the first, and one for each start
	frameLive    = 2 // count, and so many of group, incarnation, replica, seq
	frameGone    = 3 // count, and so many groups
	frameNumbers = 4 // count, and so many of group, seq

	// maxFrameItems bounds the items in a frame, and maxFrame its body.
	maxFrameItems = 4096
	maxFrame      = 1 << 18
)

// inventoryEntry is what the inventory knows of a live replica.
type inventoryEntry struct {
	incarnation raftyard.Incarnation
	id          raftyard.ReplicaID
	seq         uint64 // of a record of its group that was durable
}

// inventoryChange is what became of a group.
type inventoryChange struct {
	group groupID
	live  bool // otherwise it has no live replica
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

func appendStoreFrame(b []byte, store uuid.UUID, boot uint64) []byte {
	return appendFrame(b, frameStore, func(b []byte) []byte {
		return wire.AppendUvarint(wire.AppendID(b, store), boot)
	})
}

// appendList appends items, in as many frames as they need.
func appendList[T any](b []byte, kind byte, items []T, item func([]byte, *T) []byte) []byte {
	for some := range slices.Chunk(items, maxFrameItems) {
		b = appendFrame(b, kind, func(b []byte) []byte {
			b = wire.AppendUvarint(b, uint64(len(some)))
			for i := range some {
				b = item(b, &some[i])
			}
			return b
		})
	}
	return b
}

func appendLive(b []byte, c *inventoryChange) []byte {
	b = wire.AppendUvarint(b, uint64(c.group))
	b = wire.AppendID(b, c.incarnation)
	b = wire.AppendUvarint(b, uint64(c.id))
	return wire.AppendUvarint(b, c.seq)
}

func appendGone(b []byte, c *inventoryChange) []byte {
	return wire.AppendUvarint(b, uint64(c.group))
}

func appendNumber(b []byte, c *inventoryChange) []byte {
	return wire.AppendUvarint(wire.AppendUvarint(b, uint64(c.group)), c.seq)
}

// readInventory is what a file says.
type readInventory struct {
	store   uuid.UUID // of its last store frame, zero: there is none
	boot    uint64
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
	if r.Byte() != inventoryFormat {
		return false
	}
	switch r.Byte() {
	case frameStore:
		in.store, in.boot = r.ID(), r.Uvarint()
	case frameLive:
		for range r.Count(19) {
			g := raftyard.GroupID(r.Uvarint())
			in.entries[g] = inventoryEntry{
				incarnation: r.ID(), id: raftyard.ReplicaID(r.Uvarint()), seq: r.Uvarint(),
			}
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
	default:
		return false
	}
	return r.Close() == nil
}

// encodeInventory returns the shortest file that says the same.
func encodeInventory(store uuid.UUID, boot uint64, entries map[groupID]inventoryEntry) []byte {
	all := make([]inventoryChange, 0, len(entries))
	for _, g := range slices.Sorted(maps.Keys(entries)) {
		all = append(all, inventoryChange{group: g, live: true, inventoryEntry: entries[g]})
	}
	b := appendStoreFrame(make([]byte, 0, 64+40*len(all)), store, boot)
	return appendList(b, frameLive, all, appendLive)
}
