package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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
// [Machine.Damage]. It ends with an error when the store is closed meanwhile.
func (s *Store) Scrub() error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	return s.db.Scrub()
}

// A rot is what was found to be wrong with one state of a replica. A state that comes in its
// place has another generation.
type rot struct {
	generation generation
	err        error
}

// tableDamaged finds out which machines have lost something with a table. Of one that is not
// open, or cannot be read now, that is found out the next time that the table is looked at.
func (s *Store) tableDamaged(ctx context.Context, d badgerdb.Damage) {
	for _, m := range s.machines() {
		at := m.published.Load().generation
		if !m.mayBeIn(d) || s.rotOf(m.replica, at) != nil {
			continue
		}
		err := m.recheck(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrDamaged), errors.Is(err, badgerdb.ErrDamaged):
			s.distrust(m.replica, at, err)
		case err != nil && !errors.Is(err, ErrClosed):
			s.log.Warn("it is not known yet whether the state of a replica is damaged",
				slog.Any("error", err))
		}
	}
}

const (
	// recheckPause is between two attempts to read a state while too many snapshots are open,
	// and recheckTries how many there are before that is left to the next time.
	recheckPause = time.Second
	recheckTries = 60
)

// recheck reads all that there is of a state.
func (m *Machine) recheck(ctx context.Context) error {
	clock := time.NewTicker(recheckPause)
	defer clock.Stop()
	for try := 1; ; try++ {
		err := badgerdb.Guard(func() error { return errors.Join(m.reread(), m.Verify()) })
		if !errors.Is(err, ErrTooManySnapshots) || errors.Is(err, ErrDamaged) ||
			try == recheckTries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.C:
		}
	}
}

// distrust returns an error of a read of a state. If it is damage, what is stored of that state
// cannot be trusted from now on.
func (m *Machine) distrust(at generation, err error) error {
	if errors.Is(err, ErrDamaged) {
		m.store.distrust(m.replica, at, m.wrap("read", err))
	}
	return err
}

// distrust notes that a state is damaged.
func (s *Store) distrust(r Replica, at generation, err error) {
	s.mu.Lock()
	known, ok := s.rotten[r]
	isNew := !ok || known.generation != at
	if isNew {
		s.rotten[r] = rot{generation: at, err: err}
	}
	s.mu.Unlock()
	if isNew {
		s.log.Error("the state of a replica is damaged", slog.Any("error", err))
	}
}

// forget drops what was found to be wrong with the states of a replica that has none any more.
func (s *Store) forget(r Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rotten, r)
}

// rotOf returns what was found to be wrong with a state.
func (s *Store) rotOf(r Replica, generation generation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.rotten[r]
	if !ok {
		return nil
	}
	if known.generation != generation {
		delete(s.rotten, r) // another state has come in its place
		return nil
	}
	return known.err
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
	err := view(m.store.db, func(at badgerdb.Reader) error {
		state, err := loadMachine(at, m.replica)
		if err != nil {
			return err
		}
		return checkGeneration(at, m.replica, state)
	})
	if err != nil {
		return fmt.Errorf("kv: %v: %w", m.replica, err)
	}
	return nil
}

// Damage implements [group.Checked]: it returns why what is stored of the state cannot be
// trusted, if the store has found that, while nobody read it or when somebody did. That stays
// so until the state is replaced, also for a machine that is opened again. It returns [ErrFailed]
// when the store has failed: what was applied is not written then, which nobody may be waiting for.
func (m *Machine) Damage() error {
	if err := m.store.Err(); errors.Is(err, ErrFailed) {
		return err
	}
	return m.store.rotOf(m.replica, m.published.Load().generation)
}
