package storage

import (
	"sync"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/vfs"
)

// Backing is what a store stands on. Only a simulation has another than [Real].
type Backing struct {
	Files  vfs.FS
	OpenDB kv.Opener

	// UUID makes the id of a new store.
	UUID func() uuid.UUID

	// Until, if it is not nil, returns when ready returns true, and the store starts
	// no goroutine: its owner calls [Store.Keep]. A commit may wait for the simulated
	// disk while others want to commit; those wait here, not for a lock.
	Until func(ready func() bool)
}

// Real returns the backing of production: the operating system's files, and Badger.
func Real() Backing {
	return Backing{Files: vfs.OS{}, OpenDB: kv.OpenBadger, UUID: uuid.New}
}

// lock takes a lock that others hold while they wait for the disk.
func (b *Backing) lock(mu *sync.Mutex) {
	if b.Until != nil {
		b.Until(func() bool {
			free := mu.TryLock()
			if free {
				mu.Unlock()
			}
			return free
		})
	}
	mu.Lock()
}

// lockCommits makes the caller the committer.
func (s *Store) lockCommits() { s.backing.lock(&s.commitMu) }
