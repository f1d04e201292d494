package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard/internal/vfs"
)

// sequenceNote is the file that remembers, outside of Badger, the number of a
// batch that was durable. When Badger comes back without that batch, it has lost
// its tail, which it does not notice itself.
//
// The file has two places, 512 bytes apart, that are written in turn, so that a
// write that is cut off leaves the one before it:
//
//	crc32c 4, little endian, of the rest | format 1 | store 16 | sequence 8, big endian
type sequenceNote struct {
	file  vfs.File
	store uuid.UUID
	noted uint64
	turn  int64
}

const (
	notePlace = 512
	noteSize  = 4 + 1 + 16 + 8

	noteFormat = 1
)

func encodeNote(store uuid.UUID, sequence uint64) []byte {
	b := make([]byte, crcSize, noteSize)
	b = append(b, noteFormat)
	b = append(b, store[:]...)
	b = binary.BigEndian.AppendUint64(b, sequence)
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[crcSize:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func decodeNote(b []byte) (store uuid.UUID, sequence uint64, ok bool) {
	if len(b) != noteSize || b[crcSize] != noteFormat {
		return store, 0, false
	}
	sum := crc32.Checksum(b[crcSize:], crc32.MakeTable(crc32.Castagnoli))
	if sum != binary.LittleEndian.Uint32(b) {
		return store, 0, false
	}
	copy(store[:], b[crcSize+1:])
	return store, binary.BigEndian.Uint64(b[crcSize+17:]), true
}

// openSequenceNote opens the note of a store, or makes it for a new one.
func openSequenceNote(files vfs.FS, path string, id Identity) (*sequenceNote, error) {
	open := files.OpenWrite
	if id.Boot == 0 {
		open = files.Create
	}
	f, err := open(path)
	if err != nil {
		return nil, unreadable(err)
	}
	n := &sequenceNote{file: f, store: id.Store}
	if id.Boot == 0 {
		err = errors.Join(n.write(0), n.write(0), files.SyncDir(filepath.Dir(path)))
	} else {
		err = n.readAgain()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return n, nil
}

// readAgain reads the note, and makes what it has read durable: after a sync that failed,
// the next process may find what the disk does not have, and a note in the other place,
// cut off by a power failure, would leave none.
func (n *sequenceNote) readAgain() error {
	if err := n.read(); err != nil {
		return err
	}
	n.turn = 1 - n.turn // the place that counts
	return n.write(n.noted)
}

func (n *sequenceNote) read() error {
	b := make([]byte, notePlace+noteSize)
	if _, err := n.file.ReadAt(b, 0); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	found := false
	for place, b := range [][]byte{b[:noteSize], b[notePlace:]} {
		store, sequence, ok := decodeNote(b)
		if !ok {
			continue
		}
		if store != n.store {
			return fmt.Errorf("%w: belongs to store %s, not to %s: directories were mixed up",
				ErrDamaged, store, n.store)
		}
		if !found || sequence > n.noted {
			n.noted, n.turn = sequence, int64(1-place)
		}
		found = true
	}
	if !found {
		return fmt.Errorf("%w: no readable note", ErrDamaged)
	}
	return nil
}

// write notes a sequence and syncs it.
func (n *sequenceNote) write(sequence uint64) error {
	if _, err := n.file.WriteAt(encodeNote(n.store, sequence), n.turn*notePlace); err != nil {
		return err
	}
	if err := n.file.Sync(); err != nil {
		return err
	}
	n.noted, n.turn = sequence, 1-n.turn
	return nil
}

func (n *sequenceNote) close() error { return n.file.Close() }
