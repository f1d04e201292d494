package kv

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/internal/badgerdb"
)

// A Finding is something about one file of a store that is not as it should be.
type Finding = badgerdb.Finding

// A StoreImage is a store as it lies on disk, to be read without changing a byte. It is
// for one goroutine.
type StoreImage struct {
	image *badgerdb.Image
}

// A ReplicaImage is what a store holds of one replica, as its record says.
type ReplicaImage struct {
	Replica  Replica
	Applied  uint64
	Revision uint64
	Items    uint64
	Bytes    uint64 // of keys and values
	Hash     []byte

	// Damage is set if what is stored cannot be trusted; the rest is zero then if the
	// record itself cannot be read.
	Damage error

	state machineState
}

// OpenImage reads the store in dir. With a damaged file, which is a finding that is not
// harmless, there is no image and nothing to close. While the store is open elsewhere the
// error is [ErrLocked], and while there is an image nobody can open it.
func OpenImage(dir string) (*StoreImage, []Finding, error) {
	image, found, err := badgerdb.OpenImage(dir, badgerdb.State)
	switch {
	case errors.Is(err, badgerdb.ErrLocked):
		return nil, nil, fmt.Errorf("%w: %w", ErrLocked, err)
	case err != nil:
		return nil, nil, fmt.Errorf("kv: inspect: %w", err)
	case image == nil:
		return nil, found, nil
	}
	return &StoreImage{image: image}, found, nil
}

// Close lets go of the files.
func (s *StoreImage) Close() error { return s.image.Close() }

// Replicas returns what the store holds of each replica, by group.
func (s *StoreImage) Replicas() ([]ReplicaImage, error) {
	var all []ReplicaImage
	err := s.image.Scan([]byte{machinePrefix}, func(key, value []byte, _ uint64) error {
		r, ok := parseMachineKey(key)
		if !ok {
			return &DamageError{Key: key, What: "no replica has such a key"}
		}
		all = append(all, s.replica(r, value))
		return nil
	})
	return all, err
}

func (s *StoreImage) replica(r Replica, record []byte) ReplicaImage {
	ri := ReplicaImage{Replica: r}
	if ri.state, ri.Damage = decodeMachine(r, record); ri.Damage != nil {
		return ri
	}
	ri.Applied, ri.Revision = ri.state.position.applied(), ri.state.revision
	ri.Items, ri.Bytes = ri.state.content.count, ri.state.content.bytes
	ri.Hash = ri.state.content.hash(ri.Revision)
	ri.Damage = s.checkOwner(r, ri.state.generation)
	return ri
}

// checkOwner makes sure that a generation is the replica's.
func (s *StoreImage) checkOwner(r Replica, g generation) error {
	if g == 0 {
		return nil
	}
	key := generationKey(g)
	record, err := s.image.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return &DamageError{Key: key, What: "missing"}
	}
	if err != nil {
		return err
	}
	return checkGenerationRecord(r, g, record)
}

// Items calls fn with the items of a replica, by their keys, until fn returns an error,
// which it returns. At the end it compares all of them with what the replica's record says
// of them. What fn gets may be used until it returns.
func (s *StoreImage) Items(r *ReplicaImage, fn func(ListItem) error) error {
	if r.Damage != nil {
		return r.Damage
	}
	var seen content
	if r.state.generation != 0 {
		prefix := itemKeyPrefix(r.state.generation)
		err := s.image.Scan(prefix, func(key, value []byte, _ uint64) error {
			it, err := decodeItem(r.Replica.Group, key, value)
			if err != nil {
				return err
			}
			user := key[itemKeyHeader:]
			seen = seen.with(user, it)
			return fn(ListItem{Key: user, Value: it.asValue()})
		})
		if err != nil {
			return err
		}
	}
	if seen != r.state.content {
		return fmt.Errorf("%w: there are %d items of %d bytes with hash %x,"+
			" the replica's record says %d of %d with %x", ErrDamaged,
			seen.count, seen.bytes, seen.hash(r.Revision), r.Items, r.Bytes, r.Hash)
	}
	return nil
}

// Check reads the records that belong to no single replica. Damaged are those after which
// the store does not open; left is what belongs to nobody and is deleted after the next
// start, or never will be.
func (s *StoreImage) Check() (damaged, left []string, err error) {
	owned := make(map[generation]bool)
	known := make(map[generation]bool)
	replicas, err := s.Replicas()
	if err != nil {
		return []string{plain(err)}, nil, nil
	}
	for i := range replicas {
		owned[replicas[i].state.generation] = true
	}
	reserved, err := s.reserved(len(replicas) > 0)
	if err != nil {
		damaged = append(damaged, plain(err))
	}
	err = s.image.Scan([]byte{generationPrefix}, func(key, value []byte, _ uint64) error {
		g, ok := parseGenerationKey(key)
		if !ok || err == nil && g >= reserved {
			damaged = append(damaged, fmt.Sprintf("generation %x was never given out", key[1:]))
			return nil
		}
		known[g] = true
		rec, derr := decodeGeneration(g, value)
		switch {
		case derr != nil:
			damaged = append(damaged, plain(derr))
		case rec.state != live:
			left = append(left, fmt.Sprintf("generation %d of %v, which is being deleted",
				g, rec.owner))
		case !owned[g]:
			left = append(left, fmt.Sprintf("generation %d of %v, which no record names",
				g, rec.owner))
		}
		return nil
	})
	if err != nil {
		return damaged, left, err
	}
	strays, err := s.strays(known)
	return damaged, append(left, strays...), err
}

// reserved returns the number from which on none was given out.
func (s *StoreImage) reserved(used bool) (generation, error) {
	record, err := s.image.Get(storeKey())
	if errors.Is(err, badger.ErrKeyNotFound) {
		if used {
			return 0, &DamageError{Key: storeKey(), What: "missing, but there are replicas"}
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	rec, err := decodeStore(record)
	return rec.reserved, err
}

// strays tells of items in generations that there are not.
func (s *StoreImage) strays(known map[generation]bool) (left []string, err error) {
	counts := make(map[generation]int)
	var order []generation
	err = s.image.Scan([]byte{itemPrefix}, func(key, _ []byte, _ uint64) error {
		var g generation
		if len(key) >= itemKeyHeader {
			g, _ = parseGenerationKey(append([]byte{generationPrefix}, key[1:itemKeyHeader]...))
		}
		if known[g] {
			return nil
		}
		if counts[g]++; counts[g] == 1 {
			order = append(order, g)
		}
		return nil
	})
	for _, g := range order {
		left = append(left, fmt.Sprintf("%d items of generation %d, which there is not",
			counts[g], g))
	}
	return left, err
}

// plain returns what an error says, without the sentinel in front.
func plain(err error) string {
	return strings.TrimPrefix(err.Error(), ErrDamaged.Error()+": ")
}
