package badgerdb

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// A scrubber reads the tables of a database and the files of values, again and again, as they are
// on the disk, and compares them with their checksums. What nobody reads may rot for years: it is
// found when the copies on other nodes are needed, or at a start, unless somebody looks before.
//
// It reads files by their paths, past the memory maps and, where the system can, past its
// cache: that would show what was written, not what is there. A page that the disk does not
// give back is an error of a read then, and in a memory map the end of the process. One table
// is in memory at a time. A table that compaction deletes meanwhile looks damaged: it is missing,
// or has become shorter. Such a finding counts only if the table is still in use after it. What
// was read to its end counts in any case. Of the journal
// only values in full files are looked at: the rest is in memory as well, and becomes a table.
//
// It has two goroutines, of which the other one looks into what reads have found. start
// launches them and stop waits for them.
type scrubber struct {
	db      *DB
	rate    int64 // bytes a second; zero: nothing is read unless somebody asks for it
	damaged func(context.Context, Damage)
	open    func(path string) (*uncached, error)
	log     *slog.Logger

	pass  sync.Mutex   // held for the whole of a pass
	hurry atomic.Int32 // how many wait for a pass: nothing is spared while somebody does
	read  []byte       // the table that is looked at; the pass has it

	telling sync.Mutex // held while damaged runs: merges and reads find damage as well

	suspects *suspects

	mu     sync.Mutex
	counts Upkeep                // what tell returns
	found  map[uint64]Damage     // by table
	values map[uint32]lostValues // by file

	ctx    context.Context //nolint:containedctx // it is the life of the goroutine
	cancel context.CancelFunc
	done   chan struct{}
}

// A Damage is a table in use that is not what was written, or a file of values.
type Damage struct {
	Finding

	// First and Last are the lowest key in the table and the highest one, or of the values that
	// are lost. What has its
	// newest version elsewhere is not concerned, and neither is what is in blocks that are
	// sound: who knows how reads it and sees.
	First, Last []byte
}

// Has reports whether some key that begins with prefix may be in the table.
func (d *Damage) Has(prefix []byte) bool {
	return bytes.Compare(prefix, d.Last) <= 0 &&
		(bytes.Compare(prefix, d.First) >= 0 || bytes.HasPrefix(d.First, prefix))
}

const (
	// scrubPause is between the end of a pass and the next one. Open has read everything.
	scrubPause = time.Hour

	// scrubPiece is read at once.
	scrubPiece = 256 << 10

	// scrubShare is how many times as long as a read the disk is left to others after it,
	// at least, so that a slow disk is read slowly.
	scrubShare = 9

	// scrubPatience is how long passes until it is looked again whether the disk is slow or
	// full.
	scrubPatience = time.Second
)

func newScrubber(o Options) *scrubber {
	s := &scrubber{
		rate: o.ScrubRate, damaged: o.Damaged, open: openUncached, log: o.Logger,
		found: make(map[uint64]Damage), values: make(map[uint32]lostValues),
		suspects: newSuspects(), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *scrubber) start(db *DB) {
	s.db = db
	go s.inquire()
	if s.rate == 0 {
		close(s.done)
		return
	}
	go s.run()
}

// stop may wait for one read, and for what looks into a finding. It also ends the passes that
// others have asked for.
func (s *scrubber) stop() {
	s.cancel()
	<-s.done
	<-s.suspects.done
	s.pass.Lock()
	s.read = nil
	s.pass.Unlock()
}

func (s *scrubber) run() {
	defer close(s.done)
	for s.sleep(scrubPause) == nil {
		if err := s.once(); err != nil && !errors.Is(err, errInterrupted) {
			s.log.Warn("the tables were not all read", slog.Any("error", err))
		}
	}
}

func (s *scrubber) sleep(d time.Duration) error {
	clock := time.NewTimer(d)
	defer clock.Stop()
	select {
	case <-s.ctx.Done():
		return errInterrupted
	case <-clock.C:
		return nil
	}
}

// Scrub does at once what else is done in the background with Options.ScrubRate, as fast as
// the disk can and beside whatever else is going on: it reads all tables and compares them with
// their checksums. Findings are no error; they are told to Options.Damaged, which has returned
// when Scrub does, and by [DB.Upkeep]. It ends with an error when some table could not be read
// for a reason that is not the table's, or when the database is closed.
func (db *DB) Scrub() error {
	db.scrubber.hurry.Add(1)
	defer db.scrubber.hurry.Add(-1)
	return db.scrubber.once()
}

// StopScrub ends each [DB.Scrub], now and later. It is for the owner of the database who is
// about to close it and waits for those that use it before.
func (db *DB) StopScrub() { db.scrubber.cancel() }

// once is one pass.
func (s *scrubber) once() error {
	s.pass.Lock()
	defer s.pass.Unlock()
	err := s.tables()
	s.read = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, errInterrupted):
	case err != nil:
		s.counts.ScrubsFailed++
	default:
		s.counts.Scrubs++
		s.counts.Scrubbed = time.Now()
	}
	return err
}

// tables looks at all tables, also at those that are known to be damaged: what could not be
// found out about one the last time is then.
func (s *scrubber) tables() error {
	var errs []error
	if s.ctx.Err() != nil {
		return errInterrupted // also when the database is closed
	}
	for _, t := range s.db.Tables() {
		damage, err := s.twice(t.ID)
		switch {
		case errors.Is(err, errInterrupted):
			return err
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", table.IDToFilename(t.ID), err))
		case damage != nil:
			s.note(t, damage)
		}
	}
	if err := s.valueFiles(); errors.Is(err, errInterrupted) {
		return err
	} else if err != nil {
		errs = append(errs, err)
	}
	if s.ctx.Err() != nil {
		return errInterrupted // what looked into a finding may not have come to its end
	}
	return errors.Join(errs...)
}

// A view is what one reading of a table has shown. An err means that it could not be read,
// which is not the table's fault.
type view struct {
	damage, err error
	whole       bool // it was read to its end
}

// twice looks at a table, and if it seems to be damaged once more: what was wrong may have
// been the reading.
func (s *scrubber) twice(id uint64) (damage, err error) {
	first := s.look(id)
	if first.damage == nil {
		return nil, first.err
	}
	return judge(first, s.look(id), s.isUsed(id))
}

// judge says what two readings of a table mean of which the first one has shown damage. Used
// is whether the table was in use after both.
func judge(first, again view, used bool) (damage, err error) {
	switch {
	case errors.Is(again.err, errInterrupted):
		return nil, again.err
	case again.damage != nil && (again.whole || used):
		return again.damage, nil
	case first.whole && !again.whole:
		return first.damage, nil // it is gone, or cannot be read any more
	default:
		return nil, again.err
	}
}

// isUsed reports whether a table is in use. Badger takes it from its list before it deletes
// the file, or makes it empty.
func (s *scrubber) isUsed(id uint64) bool {
	return slices.ContainsFunc(s.db.Tables(), func(t badger.TableInfo) bool { return t.ID == id })
}

func (s *scrubber) note(t badger.TableInfo, what error) {
	d := Damage{
		Finding: Finding{File: table.IDToFilename(t.ID), What: what.Error()},
		First:   bytes.Clone(y.ParseKey(t.Left)), Last: bytes.Clone(y.ParseKey(t.Right)),
	}
	s.mu.Lock()
	_, known := s.found[t.ID]
	s.found[t.ID] = d
	s.mu.Unlock()
	if !known {
		s.log.Error("a table is damaged", slog.String("what", d.What),
			slog.String("file", filepath.Join(s.db.Opts().Dir, d.File)))
	}
	s.tellOwner(d)
}

func (s *scrubber) tellOwner(d Damage) {
	if s.damaged != nil {
		s.telling.Lock()
		defer s.telling.Unlock()
		s.damaged(s.ctx, d)
	}
}

// look reads one table.
func (s *scrubber) look(id uint64) view {
	whole, err := s.load(table.NewFilename(id, s.db.Opts().Dir))
	switch {
	case err == nil:
		return view{damage: checkTable(id, s.read, s.db.Opts().Compression), whole: whole}
	case errors.Is(err, errInterrupted), saysNothing(err):
		return view{err: err}
	case errors.Is(err, fs.ErrNotExist):
		return view{damage: errMissing}
	default:
		return view{damage: fmt.Errorf("is unreadable: %w", err)}
	}
}

// load reads a whole file into s.read, piece by piece, and reports false if it has become
// shorter meanwhile.
func (s *scrubber) load(path string) (whole bool, err error) {
	f, err := s.open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.size()
	if err != nil {
		return false, err
	}
	s.read = slices.Grow(s.read[:0], int(size))
	for int64(len(s.read)) < size {
		if err := s.mayRead(); err != nil {
			return false, err
		}
		began := time.Now()
		piece, err := f.read(int64(len(s.read)))
		if err != nil {
			return false, err
		}
		if len(piece) == 0 {
			return false, nil
		}
		s.read = append(s.read, piece...)
		if err := s.rest(len(piece), time.Since(began)); err != nil {
			return false, err
		}
	}
	if f.direct != nil {
		s.log.Warn("a table could be read through the cache of the system only",
			slog.String("file", path), slog.Any("error", f.direct))
	}
	return size > 0, nil
}

// mayRead returns when the disk is neither slow nor full.
func (s *scrubber) mayRead() error {
	for s.hurry.Load() == 0 && (s.db.room.held.Load() || s.db.pace.isSlow(time.Now())) {
		if err := s.sleep(scrubPatience); err != nil {
			return err
		}
	}
	if s.ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}

// rest waits as long as the rate demands, and leaves the disk to others.
func (s *scrubber) rest(read int, took time.Duration) error {
	s.mu.Lock()
	s.counts.ScrubbedBytes += uint64(read)
	s.mu.Unlock()
	if s.hurry.Load() > 0 {
		return nil
	}
	pause := time.Duration(float64(read) / float64(s.rate) * float64(time.Second))
	return s.sleep(max(pause-took, scrubShare*took))
}

// tell says what was read and found. A table that is not in use any more is forgotten.
func (s *scrubber) tell(u *Upkeep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found) > 0 {
		used := make(map[uint64]bool)
		for _, t := range s.db.Tables() {
			used[t.ID] = true
		}
		for id := range s.found {
			if !used[id] {
				delete(s.found, id)
			}
		}
	}
	u.Scrubs, u.ScrubsFailed = s.counts.Scrubs, s.counts.ScrubsFailed
	u.ScrubbedBytes, u.Scrubbed = s.counts.ScrubbedBytes, s.counts.Scrubbed
	for _, d := range s.found {
		u.Damaged = append(u.Damaged, d.Finding)
	}
	u.Damaged = append(u.Damaged, s.lostNow()...)
	slices.SortFunc(u.Damaged, func(a, b Finding) int { return cmp.Compare(a.File, b.File) })
}

// checkTable returns what is wrong with a table, or nil. It goes through all pairs, which
// checks the blocks one after the other: a bad one ends it, without an error.
func checkTable(id uint64, content []byte, c options.CompressionType) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("is unreadable: its index or a block is not one")
		}
	}()
	o := tableOptions(c)
	t, err := table.OpenInMemoryTable(content, id, &o)
	if err != nil {
		return errTableIndex
	}
	it := t.NewIterator(table.NOCACHE)
	defer func() { err = errors.Join(err, it.Close()) }()
	pairs := uint32(0)
	for it.Rewind(); it.Valid(); it.Next() {
		pairs++
	}
	if pairs != t.KeyCount() {
		return errTableBlock
	}
	return nil
}

// What is wrong with a table.
var (
	errTableIndex = errors.New("is unreadable: its index or its last block is damaged")
	errTableBlock = errors.New("has a block whose checksum is wrong")
)

// tableOptions are those with which a table is opened to be checked: each block is compared
// with its checksum.
func tableOptions(c options.CompressionType) table.Options {
	return table.Options{
		ReadOnly: true, BlockSize: 4 << 10, Compression: c, ChkMode: options.OnBlockRead,
	}
}

// Guard calls fn, which reads a database of which a table is damaged. Badger may panic then,
// and a page that the disk does not give back would be the end of the process: both are an
// error that wraps [ErrDamaged]. What Badger holds for fn at that moment, it holds for ever,
// such as the files of tables.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: it cannot be read: %v", ErrDamaged, p)
		}
	}()
	return fn()
}
