package badgerdb

import (
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4/table"
)

// suspects are the tables that somebody could not read. Who reads has no time to find out what
// is wrong with a table and whom it concerns; one goroutine has.
type suspects struct {
	mu     sync.Mutex
	tables map[uint64]struct{} // at most all there are
	wake   chan struct{}       // of one
	done   chan struct{}
}

func newSuspects() *suspects {
	return &suspects{
		tables: make(map[uint64]struct{}), wake: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
}

func (s *suspects) add(id uint64) {
	s.mu.Lock()
	s.tables[id] = struct{}{}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

func (s *suspects) take() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Sorted(maps.Keys(s.tables))
	clear(s.tables)
	return ids
}

// suspect notes that a table could not be read. One that is known to be damaged is left to the
// next pass.
func (s *scrubber) suspect(id uint64) {
	s.mu.Lock()
	_, known := s.found[id]
	s.mu.Unlock()
	if !known {
		s.suspects.add(id)
	}
}

// inquire looks at suspects until the scrubber stops.
func (s *scrubber) inquire() {
	defer close(s.suspects.done)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.suspects.wake:
		}
		for _, id := range s.suspects.take() {
			s.lookInto(id)
		}
		// If a table is read wrong again and again, and right in between, once a second is
		// enough.
		if s.sleep(scrubPatience) != nil {
			return
		}
	}
}

// lookInto reads a table as those who could not read it, through the cache of the system.
func (s *scrubber) lookInto(id uint64) {
	o := s.db.Opts()
	path := table.NewFilename(id, o.Dir)
	what := checkMapped(path, o.Compression)
	info, used := s.db.reads.levels.find(id) // Badger's own list reads what may be unreadable
	switch {
	case !used: // another one has come in its place
	case what == nil || saysNothing(what):
		s.log.Warn("a table could not be read, which is not damaged, as far as one can see",
			slog.String("file", filepath.Base(path)), slog.Any("error", what))
	default:
		s.note(info, what)
	}
}
