package kv

import (
	"errors"
	"fmt"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/internal/badgerdb"
)

// reserveGenerations is how many numbers are reserved at a time. A restart skips
// the rest of them.
const reserveGenerations = 1024

// generations gives out the numbers of generations, each once in the life of the
// store.
type generations struct {
	commit func(writeSet) error

	mu       sync.Mutex
	next     generation // next <= reserved
	reserved generation // numbers below it may be given out; durable
}

// allocate returns a number that was never given out before. It may wait for a
// transaction.
func (g *generations) allocate() (generation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next >= g.reserved {
		reserved := g.next + reserveGenerations
		var set writeSet
		set.set(storeKey(), encodeStore(storeRecord{reserved: reserved}))
		// The lock is held across a commit on purpose: once in a thousand times
		// the others must wait for it anyway.
		if err := g.commit(set); err != nil {
			return 0, err
		}
		g.reserved = reserved
	}
	n := g.next
	g.next++
	return n, nil
}

// scanGenerations returns the first number that was never given out, and the
// generations that no machine points at.
func scanGenerations(at badgerdb.Reader) (reserved generation, left []generation, err error) {
	record, err := get(at, storeKey())
	if err != nil {
		return 0, nil, err
	}
	if record != nil {
		var s storeRecord
		if s, err = decodeStore(record); err != nil {
			return 0, nil, err
		}
		reserved = s.reserved
	} else if err = checkEmpty(at); err != nil {
		return 0, nil, err
	}
	err = eachKey(at, []byte{generationPrefix}, func(item *badger.Item) error {
		key := item.KeyCopy(nil)
		g, ok := parseGenerationKey(key)
		if !ok || g >= reserved {
			return &DamageError{Key: key, What: "a generation that was never given out"}
		}
		return item.Value(func(record []byte) error {
			rec, damage := decodeGeneration(g, record)
			// A restore that was filling it ended with its process.
			if damage == nil && rec.state != live {
				left = append(left, g)
			}
			return damage
		})
	})
	return reserved, left, err
}

// checkEmpty refuses a store that has something but not its own record: its
// generations would be numbered from the beginning again.
func checkEmpty(at badgerdb.Reader) error {
	for _, prefix := range []byte{machinePrefix, generationPrefix, itemPrefix} {
		err := eachKey(at, []byte{prefix}, func(item *badger.Item) error {
			what := fmt.Sprintf("missing, but there is %x", item.Key())
			return &DamageError{Key: storeKey(), What: what}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loadMachine returns the present state of r's machine; the zero state if it has
// none.
func loadMachine(at badgerdb.Reader, r Replica) (machineState, error) {
	record, err := get(at, machineKey(r))
	if err != nil || record == nil {
		return machineState{}, err
	}
	return decodeMachine(r, record)
}

// checkGeneration makes sure that r's record and its generation's record agree.
func checkGeneration(at badgerdb.Reader, r Replica, s machineState) error {
	if s.generation == 0 {
		return nil
	}
	key := generationKey(s.generation)
	record, err := get(at, key)
	if err != nil {
		return err
	}
	if record == nil {
		return &DamageError{Key: key, What: "missing"}
	}
	return checkGenerationRecord(r, s.generation, record)
}

// checkGenerationRecord makes sure that g's record says that it is r's.
func checkGenerationRecord(r Replica, g generation, record []byte) error {
	rec, err := decodeGeneration(g, record)
	if err != nil {
		return err
	}
	if rec.state != live || rec.owner != r {
		return &DamageError{
			Key:  generationKey(g),
			What: fmt.Sprintf("state %d of %v, want live of %v", rec.state, rec.owner, r),
		}
	}
	return nil
}

// view runs fn at the newest commit. Badger panics on some kinds of damage; of a
// read that is an error, since its goroutine may be anybody's.
func view(db *badgerdb.DB, fn func(badgerdb.Reader) error) error {
	return guard(func() error { return db.Read(fn) })
}

// guard runs what reads the database, as [view] does.
func guard(fn func() error) error { return ours(badgerdb.Guard(fn)) }

// ours makes damage to the database [ErrDamaged].
func ours(err error) error {
	if errors.Is(err, badgerdb.ErrDamaged) && !errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// get returns a copy of the value of key, or nil when there is none.
func get(at badgerdb.Reader, key []byte) ([]byte, error) {
	value, err := at.Get(key)
	if err != nil {
		return nil, fmt.Errorf("kv: read: %w", err)
	}
	return value, nil
}

// eachKey calls fn for every key with a prefix, in order.
func eachKey(at badgerdb.Reader, prefix []byte, fn func(*badger.Item) error) error {
	return at.Scan(prefix, nil, func(item *badger.Item) (bool, error) { return true, fn(item) })
}
