package badgerdb

import (
	"fmt"
	"sync"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// TestReaderBesideCompactions: keys are set and deleted, memtables become tables, and tables are
// merged, while others read. Nothing of that looks like damage, or like an older value.
func TestReaderBesideCompactions(t *testing.T) {
	o := testOptions(t)
	o.Profile, o.IndexCacheSize = State, 8<<10
	f := new(findings)
	o.Damaged = f.damaged
	db := openByHand(t, o)
	defer mustClose(t, db)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := db.Read(readRound); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	defer func() {
		close(stop)
		readers.Wait()
		if got := f.list(); len(got) != 0 {
			t.Errorf("found %v", got)
		}
	}()
	for round := range 12 {
		change(t, db, 200, 20, func(txn *Txn, key []byte) error {
			if round%3 == 2 {
				return txn.Delete(key)
			}
			return txn.Set(key, append(fmt.Appendf(nil, "%03d", round), make([]byte, 4000)...))
		})
		if round%4 == 3 {
			if err := db.Reclaim(); err != nil {
				t.Error(err)
			}
		}
	}
}

// readRound compares what a Reader says of single keys with a scan at the same commit.
func readRound(r Reader) error {
	seen := make(map[string]string)
	err := r.Scan([]byte("burst"), nil, func(item *badger.Item) (bool, error) {
		return true, item.Value(func(v []byte) error {
			seen[string(item.Key())] = string(v[:3])
			return nil
		})
	})
	for k := 0; k < 200 && err == nil; k += 7 {
		key := fmt.Appendf(nil, "burst-%04d", k)
		var value []byte
		if value, err = r.Get(key); err != nil {
			break
		}
		round, there := seen[string(key)]
		if there != (value != nil) || there && string(value[:3]) != round {
			err = fmt.Errorf("%s is of round %.3q, and scanned %q", key, value, round)
		}
	}
	return err
}
