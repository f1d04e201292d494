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
func scanGenerations(txn *badger.Txn) (reserved generation, left []generation, err error) {
	record, err := get(txn, storeKey())
	if err != nil {
		return 0, nil, err
	}
	if record != nil {
		var s storeRecord
		if s, err = decodeStore(record); err != nil {
			return 0, nil, err
		}
		reserved = s.reserved
	} else if err = checkEmpty(txn); err != nil {
		return 0, nil, err
	}
	err = eachKey(txn, []byte{generationPrefix}, func(item *badger.Item) error {
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
func checkEmpty(txn *badger.Txn) error {
	for _, prefix := range []byte{machinePrefix, generationPrefix, itemPrefix} {
		err := eachKey(txn, []byte{prefix}, func(item *badger.Item) error {
			what := fmt.Sprintf("missing, but there is %x", item.Key())
			return &DamageError{Key: storeKey(), What: what}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loadMachine returns the state of r's machine at txn; the zero state if it has
// none.
func loadMachine(txn *badger.Txn, r Replica) (machineState, error) {
	record, err := get(txn, machineKey(r))
	if err != nil || record == nil {
		return machineState{}, err
	}
	return decodeMachine(r, record)
}

// checkGeneration makes sure that r's record and its generation's record agree.
func checkGeneration(txn *badger.Txn, r Replica, s machineState) error {
	if s.generation == 0 {
		return nil
	}
	key := generationKey(s.generation)
	record, err := get(txn, key)
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
func view(db *badgerdb.DB, fn func(*badger.Txn) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v", ErrDamaged, p)
		}
	}()
	return db.View(fn)
}

// get returns a copy of the value of key, or nil when there is none.
func get(txn *badger.Txn, key []byte) ([]byte, error) {
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kv: read: %w", err)
	}
	value, err := item.ValueCopy(nil)
	if err != nil {
		return nil, fmt.Errorf("kv: read: %w", err)
	}
	if value == nil {
		value = []byte{} // present, although no record of ours is empty
	}
	return value, nil
}

// eachKey calls fn for every key with a prefix, in order.
func eachKey(txn *badger.Txn, prefix []byte, fn func(*badger.Item) error) error {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	for it.Seek(prefix); it.Valid(); it.Next() {
		if err := fn(it.Item()); err != nil {
			return err
		}
	}
	return nil
}
