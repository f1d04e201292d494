package storage

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// KeepInterval is how often there should be a look whether there is something to
// do, see [Store.Keep]. So much of the newest work may be missing in the sequence
// note.
const KeepInterval = 100 * time.Millisecond

// trimRounds is how many rounds pass from one look at what groups hold for
// nothing to the next: half a minute. A log that is cut more often than that
// keeps what it needs for that, see slots.trim.
const trimRounds = 300

// keeper does what need not be done with every batch: it notes the newest one
// outside of the database, finds what groups hold for nothing, and deletes garbage
// that no batch has deleted on its way.
// start launches its goroutine and stop waits for it; without that it is somebody
// else who calls keep.
type keeper struct {
	store  *Store
	rounds int // since the last trim

	once sync.Once
	quit chan struct{} // nil: it has no goroutine
	done chan struct{}
}

func (k *keeper) start() {
	k.quit, k.done = make(chan struct{}), make(chan struct{})
	go k.run()
}

func (k *keeper) stop() {
	if k.quit == nil {
		return
	}
	k.once.Do(func() { close(k.quit) })
	<-k.done
}

func (k *keeper) run() {
	defer close(k.done)
	clock := time.NewTicker(KeepInterval)
	defer clock.Stop()
	for {
		select {
		case <-k.quit:
			return
		case <-clock.C:
			if k.store.Err() != nil {
				continue // only Close comes now
			}
			if err := k.keep(); err != nil && k.store.Err() == nil {
				k.store.opts.Logger.Warn("housekeeping", slog.Any("error", err))
			}
		}
	}
}

// Keep is one round of housekeeping. It is for a store without a goroutine of its
// own, see [Backing], whose owner calls it every [KeepInterval], from one goroutine
// at a time and not while it calls [Store.Close].
func (s *Store) Keep() error {
	if s.keeper.quit != nil {
		return fmt.Errorf("%w: the store keeps itself", ErrInvalid)
	}
	if err := s.Err(); err != nil {
		return err
	}
	return s.keeper.keep()
}

// keep is one round of the keeper.
func (k *keeper) keep() error {
	s := k.store
	if err := s.noteSequence(); err != nil {
		return err
	}
	k.rounds++
	if k.rounds%numbersRounds == 0 {
		if err := s.noteNumbers(); err != nil {
			return err
		}
	}
	if k.rounds >= trimRounds {
		k.rounds = 0
		if err := s.giveBack(defaultSpaceLimits()); err != nil {
			return err
		}
	}
	return s.collect()
}

// noteSequence notes the newest durable batch, if it is not noted yet. It is
// called by the keeper, and by Close after the keeper has stopped.
func (s *Store) noteSequence() error {
	sequence := s.durable.Load()
	if sequence == s.note.noted {
		return nil
	}
	if err := s.note.write(sequence); err != nil {
		return s.fail(err)
	}
	s.stats.notes.Add(1)
	return nil
}
