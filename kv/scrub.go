package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

var _ group.Checked = (*Machine)(nil)

// Upkeep is what a store has done about its own files since it was opened: how often it has
// returned disk space, and read its tables, and which of those are damaged.
type Upkeep = badgerdb.Upkeep

// Upkeep tells what the store has done about its files. Of a closed one it tells nothing.
func (s *Store) Upkeep() Upkeep {
	if s.gate.enter() != nil {
		return Upkeep{}
	}
	defer s.gate.leave()
	return s.db.Upkeep()
}

// Scrub does at once what [StoreOptions.ScrubRate] has done in the background: it reads all
// tables, and the states of the machines that may have something in a damaged one. See
// [Machine.Damage].
func (s *Store) Scrub() error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	return s.db.Scrub()
}

// tableDamaged finds out which machines have lost something with a table.
func (s *Store) tableDamaged(ctx context.Context, d badgerdb.Damage) {
	for _, m := range s.machines() {
		if ctx.Err() != nil {
			return
		}
		if !m.mayBeIn(d) {
			continue
		}
		err := badgerdb.Guard(func() error { return errors.Join(m.reread(), m.Verify()) })
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, badgerdb.ErrDamaged):
			s.log.Error("the state of a replica is damaged", slog.Any("error", err))
			m.rotten.CompareAndSwap(nil, &err)
		case err != nil && !errors.Is(err, ErrClosed):
			s.log.Warn("it is not known whether the state of a replica is damaged",
				slog.Any("error", err))
		}
	}
}

// machines returns the machines that are open.
func (s *Store) machines() []*Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Machine, 0, len(s.open))
	for _, m := range s.open {
		if m != nil {
			all = append(all, m)
		}
	}
	return all
}

// mayBeIn reports whether something of the state may be in a table.
func (m *Machine) mayBeIn(d badgerdb.Damage) bool {
	g := m.published.Load().generation
	return d.Has(machineKey(m.replica)) ||
		g != 0 && (d.Has(generationKey(g)) || d.Has(itemKeyPrefix(g)))
}

// reread reads the records of the state beside its items.
func (m *Machine) reread() error {
	err := view(m.store.db, func(txn *badger.Txn) error {
		state, err := loadMachine(txn, m.replica)
		if err != nil {
			return err
		}
		return checkGeneration(txn, m.replica, state)
	})
	if err != nil {
		return fmt.Errorf("kv: %v: %w", m.replica, err)
	}
	return nil
}

// Damage implements [group.Checked]: it returns why what is stored of the state cannot be
// trusted, if the store has found that while nobody read it.
func (m *Machine) Damage() error {
	if err := m.rotten.Load(); err != nil {
		return *err
	}
	return nil
}
