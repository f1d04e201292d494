package badgerdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/raftyard/raftyard/internal/vfs"
)

// appendJournalHeader appends the header of a file of the journal.
func appendJournalHeader(b []byte, mark, first uint64) []byte {
	b = binary.BigEndian.AppendUint64(b, mark)
	b = append(b, journalMagic...)
	return binary.BigEndian.AppendUint64(b, first)
}

// journalHeader returns the first transaction that a log's header announces, or zero if the log
// is Badger's own, or the header is not what was written; and the mark of the ends of its
// transactions, or zero if there is none.
func journalHeader(header []byte) (first, mark uint64) {
	if string(header[8:12]) != journalMagic {
		return 0, 0
	}
	first = binary.BigEndian.Uint64(header[12:walHeaderSize])
	mark = binary.BigEndian.Uint64(header)
	if mark != 0 && mark != sealMark(mark>>sealBits, first) {
		return 0, 0
	}
	return first, mark
}

// sealBits is how much of a mark is a checksum, of the rest and of the first transaction: who
// reads another mark finds no transaction.
const sealBits = 24

// sealMark makes a mark of 40 bits that nobody guesses.
func sealMark(secret, first uint64) uint64 {
	mark := secret << sealBits
	sum := crc32.Checksum(appendJournalHeader(nil, mark, first), castagnoli)
	return mark | uint64(sum)&(1<<sealBits-1)
}

// isJournal reports whether a log of Badger's name is of the journal.
func isJournal(path string) (is bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, walHeaderSize)
	if _, err = io.ReadFull(f, b); errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil // who reads it says what is wrong
	}
	first, _ := journalHeader(b)
	return err == nil && first != 0, err
}

// pickLogs leaves those logs that count: beside a journal what Badger has as its own does not, and
// beside a file of the journal not what has its number: it was about to take the file's place.
//
// There is a journal as long as there is a file with a name of its own. Without one all logs
// count: either they are of a database that has none yet, of which some may have been adopted
// before a kill; or the journal was adopted, and what Badger has begun since is empty.
func (f *files) pickLogs() error {
	own := make(map[uint64]bool)
	for _, w := range f.wals {
		if w.journal {
			own[w.id] = true
		}
	}
	if len(own) == 0 {
		return nil
	}
	var logs []walFile
	for _, w := range f.wals {
		if !w.journal && !own[w.id] {
			var err error
			if w.journal, err = isJournal(filepath.Join(f.dir, w.name)); err != nil {
				return err
			}
		}
		if w.journal {
			logs = append(logs, w)
		} else {
			f.stale = append(f.stale, w.name)
		}
	}
	f.wals = logs
	return nil
}

// adoptLogs puts what counts into the place of Badger's logs, to be replayed: the journal, cut to
// what is whole, or the logs of a database that has none yet. Both say from then on that they
// count, until Badger deletes them, because all is in tables. It may be interrupted at any
// time, and begun again.
//
// A file with values that stay in it becomes one that is kept, and a log with pointers is written
// in its place. Tables may have the same pairs already, and Badger does not keep to an order of
// the tables of level 0: so what is of the same version must be the same.
func adoptLogs(f files, w walSummary, minValue int, log *slog.Logger) error {
	for _, step := range adoptSteps(f, w, minValue, log) {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// adoptSteps returns what adoptLogs does. After each step the database is as good as before.
func adoptSteps(f files, w walSummary, minValue int, log *slog.Logger) (steps []func() error) {
	next := func(more ...func() error) { steps = append(steps, more...) }
	var moves []func() error
	for i, l := range f.wals {
		a := &adoption{dir: f.dir, file: l, content: w.logs[i], minValue: minValue}
		next(a.prepare()...)
		moves = append(moves, a.move()...)
	}
	for _, name := range f.stale {
		next(func() error {
			log.Debug("removing a write-ahead log of which the journal has everything",
				slog.String("file", name))
			return os.Remove(filepath.Join(f.dir, name))
		})
	}
	syncDir := func() error { return (vfs.OS{}).SyncDir(f.dir) }
	if len(f.stale) > 0 {
		// They would count again without a file of the journal's own name.
		next(syncDir)
	}
	if next(moves...); len(moves) > 0 {
		next(syncDir)
	}
	return steps
}

// An adoption is that of one log.
type adoption struct {
	dir      string
	file     walFile
	content  walContent
	minValue int
}

func (a *adoption) path() string { return filepath.Join(a.dir, a.file.name) }

// pointers is the path of the log with pointers, before it takes the place of one of Badger's.
func (a *adoption) pointers() string {
	return filepath.Join(a.dir, fmt.Sprintf("%05d-log%s", a.file.id, spareExt))
}

// keeps reports whether it is a file of the journal in which values stay.
func (a *adoption) keeps() bool {
	return isOwnName(a.file.name) && a.content.longest >= a.minValue
}

// stays reports whether the value of an entry stays in the journal.
func (e walEntry) stays(minValue int) bool {
	return !e.end && e.meta&bitDelete == 0 && staysInJournal(len(e.key)-8, len(e.value), minValue)
}

// prepare makes a log such that it counts, and ends where its whole transactions do.
func (a *adoption) prepare() (steps []func() error) {
	path, c := a.path(), a.content
	if c.last == 0 {
		return nil // nothing of it counts
	}
	steps = append(steps,
		func() error { return os.Truncate(path, c.end) },
		// Without what is behind its end, for good, before the mark is gone that tells its own
		// transactions from what looks like them.
		func() error { return syncFile(path) })
	switch {
	case a.keeps():
		steps = append(steps, a.writePointers)
	case !c.journal || c.mark != 0:
		steps = append(steps,
			func() error { return adoptLog(path, c.first) },
			func() error { return syncFile(path) })
	}
	return steps
}

// move gives a file of the journal the name of one of Badger's logs. If values stay in it, the log
// with pointers gets that name first, and counts as soon as the file has another one.
func (a *adoption) move() (steps []func() error) {
	if !isOwnName(a.file.name) {
		return nil
	}
	from, to := a.path(), filepath.Join(a.dir, walName(a.file.id))
	switch {
	case a.content.last == 0:
		return append(steps, func() error { return os.Remove(from) })
	case a.keeps():
		return append(steps,
			func() error { return os.Rename(a.pointers(), to) },
			func() error { return (vfs.OS{}).SyncDir(a.dir) },
			func() error {
				return os.Rename(from, filepath.Join(a.dir, valueName(uint32(a.file.id))))
			},
			// Before the next one: those that are left must be the newest.
			func() error { return (vfs.OS{}).SyncDir(a.dir) })
	default:
		return append(steps, func() error { return os.Rename(from, to) })
	}
}

// writePointers writes the log with pointers, and syncs it.
func (a *adoption) writePointers() error {
	content, err := os.ReadFile(a.path())
	if err != nil {
		return err
	}
	b := appendJournalHeader(nil, 0, a.content.first)
	end := walHeaderSize
	for at, e := range entries(content) {
		key, value := e.key[:len(e.key)-8], e.value
		if e.stays(a.minValue) {
			where := place{file: uint32(a.file.id), offset: uint32(at), size: uint32(e.size)}
			e.user, value = metaPointer, where.append(nil)
		}
		b = appendEntry(b, entryMeta{e.meta, e.user}, e.version, key, value)
		end = at + e.size
	}
	if int64(end) != a.content.end {
		return damaged(a.file.name, fmt.Errorf("has no entry at %d any more", end))
	}
	if err = os.WriteFile(a.pointers(), b, 0o600); err != nil {
		return err
	}
	return syncFile(a.pointers())
}

// adoptLog says in the header of a log that it counts, without a mark: there Badger has the number
// of a key, and zero is none.
func adoptLog(path string, first uint64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteAt(appendJournalHeader(nil, 0, first), 0)
	return err
}

// lastLog returns a number for the log before the first one of a database that is opened, whose
// newest transaction is newest. The logs that are there are not its neighbours unless it goes on
// where they end.
func (p prepared) lastLog(newest uint64) uint64 {
	if p.newest == newest || p.log == 0 {
		return p.log
	}
	return p.log + 1
}
