package storage

import "sync/atomic"

// Stats are counters since the store was opened, and some present sizes.
type Stats struct {
	Commits      int64 // batches committed, each one transaction and one sync
	Updates      int64 // updates in them
	Records      int64 // records in them
	Bytes        int64 // bytes of keys and records in them
	Deletes      int64 // keys deleted, of destroyed replicas and after bursts
	Notes        int64 // syncs of the sequence note
	CacheHits    int64 // reads of entries that were answered from memory
	CacheMisses  int64 // reads of entries that went to Badger
	RecordsRead  int64 // records that those read
	CacheBytes   int64 // memory that cached entries take now
	Garbage      int64 // keys waiting to be deleted
	Sequence     uint64
	TableBytes   int64 // of the tables on disk
	LiveReplicas int
	Tombstones   int
	Damaged      int
}

type stats struct {
	commits, updates, records, bytes, deletes, notes atomic.Int64
	cacheHits, cacheMisses, recordsRead              atomic.Int64
}

// OpenSpace returns how many bytes of free disk space the store would need to be
// opened again, as it is now.
func (s *Store) OpenSpace() int64 { return s.db.OpenSpace() }

// Reserve returns how many bytes of free disk space the store should have while
// it runs. Badger writes through memory maps, where a full disk is a fatal signal:
// with less than this, stop taking work that grows.
func (s *Store) Reserve() int64 { return s.db.Reserve() }

// Stats returns the counters. It does not wait for a commit.
func (s *Store) Stats() Stats {
	st := Stats{
		Commits:     s.stats.commits.Load(),
		Updates:     s.stats.updates.Load(),
		Records:     s.stats.records.Load(),
		Bytes:       s.stats.bytes.Load(),
		Deletes:     s.stats.deletes.Load(),
		Notes:       s.stats.notes.Load(),
		CacheHits:   s.stats.cacheHits.Load(),
		CacheMisses: s.stats.cacheMisses.Load(),
		RecordsRead: s.stats.recordsRead.Load(),
		CacheBytes:  s.cache.used.Load(),
		Garbage:     s.garbage.size.Load(),
		Sequence:    s.durable.Load(),
		TableBytes:  s.db.TableBytes(),
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.replicas {
		switch {
		case r.info.Tombstone != nil:
			st.Tombstones++
		case r.info.Damage != nil:
			st.Damaged++
		default:
			st.LiveReplicas++
		}
	}
	return st
}
