package badgerdb

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/dgraph-io/badger/v4"
)

// broken is what Badger's goroutines could not write or sync. Badger would go on after it:
// it tries a flush again, and a compaction with other tables, while the MANIFEST may have
// on the disk, or not, what it was told. A second try that succeeds would hide how the first
// one has ended. So a goroutine that has failed goes no further. It ends with the process,
// whose owner learns of it by the next commit, or by whatever waits for that goroutine.
type broken struct {
	first  atomic.Pointer[error]
	once   sync.Once
	halted chan struct{} // closed when a goroutine of Badger's goes no further
}

func newBroken() *broken {
	return &broken{halted: make(chan struct{})}
}

func (b *broken) note(err error) {
	err = fmt.Errorf("badgerdb: %w: %w", ErrFailed, err)
	b.first.CompareAndSwap(nil, &err)
}

// err returns the first failure, or nil.
func (b *broken) err() error {
	if p := b.first.Load(); p != nil {
		return *p
	}
	return nil
}

// halt stops the goroutine that calls it, after a failure was noted.
func (b *broken) halt() {
	b.stop()
	select {}
}

// stop has nobody wait for Badger any more.
func (b *broken) stop() { b.once.Do(func() { close(b.halted) }) }

// do runs what may wait for a goroutine of Badger's that has failed, and ends then without it.
func (b *broken) do(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return b.wait(done)
}

// wait returns how something has ended, or the failure if there was one: then nothing else
// counts.
func (b *broken) wait(done <-chan error) (err error) {
	select {
	case err = <-done:
	case <-b.halted:
	}
	select {
	case <-b.halted:
		return b.err()
	default:
		return err
	}
}

// open turns what Badger panics with, on its goroutine, into an error. When the disk could
// not do what was asked, Badger says so in the text alone: it drops the cause.
func (b *broken) open(o badger.Options) (*badger.DB, error) {
	var db *badger.DB
	err := b.do(func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%w: badger: %v", ErrDamaged, p)
			}
		}()
		db, err = badger.OpenManaged(o)
		if err != nil && strings.Contains(err.Error(), syscall.EIO.Error()) {
			err = fmt.Errorf("%w: %w", ErrFailed, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return db, nil
}

// close closes a database, or leaves it as a process that is killed does.
func (b *broken) close(db *badger.DB) error {
	return b.do(func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("badger: %v", p)
			}
		}()
		return db.Close()
	})
}

// commit writes a transaction. It does not wait for a memtable that will not be free again,
// because its flush has failed.
func (b *broken) commit(txn *badger.Txn, ts uint64) error {
	done := make(chan error, 1)
	if err := txn.CommitAt(ts, func(err error) { done <- err }); err != nil {
		return err
	}
	return b.wait(done)
}
