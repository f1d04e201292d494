package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
)

// Upkeep is what a store has done about its own files since it was opened: how often it has
// returned disk space, and read its tables, and which of those are damaged.
type Upkeep = badgerdb.Upkeep

// An upkeeper is a database that has files to look after. A simulated one has none.
type upkeeper interface {
	Upkeep() badgerdb.Upkeep
	Scrub() error
}

// Upkeep tells what the store has done about its files.
func (s *Store) Upkeep() Upkeep {
	if db, ok := s.db.(upkeeper); ok {
		return db.Upkeep()
	}
	return Upkeep{}
}

// Scrub does at once what [Options.ScrubRate] has done in the background: it reads all
// tables, and of what a damaged one may have held it reads the live replicas' logs. When it
// returns [Store.TakeRotten] knows which of them have lost something. It ends with an error
// when the store is closed meanwhile.
func (s *Store) Scrub() error {
	if db, ok := s.db.(upkeeper); ok {
		return db.Scrub()
	}
	return nil
}

// Rotten is a live replica whose records on the disk are not what was written any more.
type Rotten struct {
	Group raftyard.GroupID
	ID    raftyard.ReplicaID
	Err   error // wraps ErrDamaged
}

// TakeRotten returns the replicas of which was found, since the last call and without anybody
// reading their logs, that they are damaged. They have no Log any more, see [Replica.Damage].
func (s *Store) TakeRotten() []Rotten {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.rotten
	s.rotten = nil
	return list
}

// tableDamaged finds out which live replicas have lost something with a table. Most of what
// is in tables of a log is dead: so the records that count are read, by their own checksums.
// What cannot be read for a reason that says nothing of it is read again the next time that the
// table is looked at.
func (s *Store) tableDamaged(ctx context.Context, d badgerdb.Damage) {
	for _, r := range s.Replicas() {
		l := s.Log(r.Group)
		if l == nil || !d.Has(groupPrefix(r.Group)) {
			continue
		}
		err := l.reread(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
		case errors.Is(err, ErrDamaged):
			s.damage(l, err)
			s.noteRotten(l, Rotten{Group: r.Group, ID: r.ID, Err: err})
		default:
			s.opts.Logger.Warn("it is not known yet whether a replica is damaged",
				slog.Uint64("group", uint64(r.Group)), slog.Any("error", err))
		}
	}
}

func (s *Store) noteRotten(l *Log, r Rotten) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.replicas[r.Group]; !ok || now.log != l {
		return // it was destroyed meanwhile
	}
	s.rotten = append(s.rotten, r)
	s.opts.Logger.Error("replica is damaged",
		slog.Uint64("group", uint64(r.Group)), slog.Any("error", r.Err))
}

// Entries are read in runs of so many, and of so many bytes.
const rereadEntries, rereadBytes = 1024, 4 << 20

// reread reads everything of a log that counts from the disk, past the cache.
func (l *Log) reread(ctx context.Context) error {
	if err := l.rereadRecords(); err != nil {
		return err
	}
	for at := uint64(0); ctx.Err() == nil; {
		l.mu.RLock()
		at = max(at, l.terms.start().index+1)
		over := l.gone != nil || at > l.last
		if over {
			l.mu.RUnlock()
			return nil
		}
		read := l.openReadLocked(at, min(l.last+1, at+rereadEntries))
		l.mu.RUnlock()
		var entries []*raftpb.Entry
		err := badgerdb.Guard(func() (err error) {
			entries, _, err = read.run(rereadBytes)
			return err
		})
		if err != nil {
			return l.lost(err)
		}
		at += uint64(len(entries))
	}
	return nil
}

// rereadRecords reads what the store has of a replica beside its entries.
func (l *Log) rereadRecords() error {
	at := l.store.db.Snapshot()
	defer at.Discard()
	for _, k := range []kind{kindReplica, kindHead, kindMeta, kindSnapshot} {
		key := appendKey(nil, l.group, k)
		err := badgerdb.Guard(func() error {
			record, err := at.Get(key)
			if err == nil && (len(record) < crcSize ||
				binary.LittleEndian.Uint32(record) != recordSum(key, record)) {
				err = fmt.Errorf("%w: its checksum is wrong", ErrDamaged)
			}
			return err
		})
		if errors.Is(err, kv.ErrNotFound) {
			if k != kindReplica { // not every replica has each of the others
				continue
			}
			err = fmt.Errorf("%w: it is gone", ErrDamaged)
		}
		if err != nil {
			return l.lost(fmt.Errorf("record %c: %w", k, err))
		}
	}
	return nil
}

// lost says whose log an error is about, and wraps [ErrDamaged] if what was read is not what
// was written.
func (l *Log) lost(err error) error {
	if errors.Is(err, badgerdb.ErrDamaged) && !errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return fmt.Errorf("group %d: %w", l.group, err)
}
