package badgerdb

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// pickLogs leaves those logs that count: beside a journal what Badger has as its own does not.
//
// There is a journal as long as there is a file with a name of its own. Without one all logs
// count: either they are of a database that has none yet, of which some may have been adopted
// before a kill; or the journal was adopted, and what Badger has begun since is empty.
func (f *files) pickLogs() error {
	if !slices.ContainsFunc(f.wals, func(w walFile) bool { return w.journal }) {
		return nil
	}
	var logs []walFile
	for _, w := range f.wals {
		if !w.journal {
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
func adoptLogs(f files, w walSummary, log *slog.Logger) error {
	for _, step := range adoptSteps(f, w, log) {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// adoptSteps returns what adoptLogs does. After each step the database is as good as before.
func adoptSteps(f files, w walSummary, log *slog.Logger) (steps []func() error) {
	next := func(step func() error) { steps = append(steps, step) }
	for i, l := range f.wals {
		path, c := filepath.Join(f.dir, l.name), w.logs[i]
		if c.last == 0 {
			continue // nothing of it counts
		}
		next(func() error { return os.Truncate(path, c.end) })
		// Without what is behind its end, for good, before the mark is gone that tells its own
		// transactions from what looks like them.
		next(func() error { return syncFile(path) })
		if c.journal && c.mark == 0 {
			continue
		}
		next(func() error { return adoptLog(path, c.first) })
		next(func() error { return syncFile(path) })
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
	moved := false
	for i, l := range f.wals {
		if !strings.HasSuffix(l.name, journalExt) {
			continue
		}
		moved = true
		from := filepath.Join(f.dir, l.name)
		if w.logs[i].last == 0 {
			next(func() error { return os.Remove(from) })
		} else {
			next(func() error { return os.Rename(from, filepath.Join(f.dir, walName(l.id))) })
		}
	}
	if moved {
		next(syncDir)
	}
	return steps
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
