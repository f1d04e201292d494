package badgerdb

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/raftyard/raftyard/internal/vfs"
)

// appendJournalHeader appends the header of a file of the journal.
func appendJournalHeader(b []byte, first uint64) []byte {
	b = append(b, make([]byte, 8)...) // no key: it is not encrypted
	b = append(b, journalMagic...)
	return binary.BigEndian.AppendUint64(b, first)
}

// journalFirst returns the first transaction that a log's header announces, or zero if the log
// is Badger's own.
func journalFirst(header []byte) uint64 {
	if string(header[8:12]) != journalMagic {
		return 0
	}
	return binary.BigEndian.Uint64(header[12:walHeaderSize])
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
	return err == nil && journalFirst(b) != 0, err
}

// pickLogs leaves those logs that count: with a journal what Badger has as its own does not.
func (f *files) pickLogs() error {
	journaled := false
	for i := range f.wals {
		w := &f.wals[i]
		if !w.journal {
			var err error
			if w.journal, err = isJournal(filepath.Join(f.dir, w.name)); err != nil {
				return err
			}
		}
		journaled = journaled || w.journal
	}
	if !journaled {
		return nil
	}
	var logs []walFile
	for _, w := range f.wals {
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
	for i, l := range f.wals {
		if err := adoptLog(filepath.Join(f.dir, l.name), w.logs[i]); err != nil {
			return err
		}
	}
	for _, name := range f.stale {
		log.Debug("removing a write-ahead log of which the journal has everything",
			slog.String("file", name))
		if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
			return err
		}
	}
	moved := false
	for i, l := range f.wals {
		if !strings.HasSuffix(l.name, journalExt) {
			continue
		}
		moved = true
		from := filepath.Join(f.dir, l.name)
		var err error
		if w.logs[i].last == 0 {
			err = os.Remove(from)
		} else {
			err = os.Rename(from, filepath.Join(f.dir, walName(l.id)))
		}
		if err != nil {
			return err
		}
	}
	if !moved && len(f.stale) == 0 {
		return nil
	}
	return (vfs.OS{}).SyncDir(f.dir)
}

// adoptLog makes a log durable, without what is behind its end, and says in its header that it
// counts.
func adoptLog(path string, c walContent) (err error) {
	if c.last == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err = f.Truncate(c.end); err != nil {
		return err
	}
	if !c.journal {
		if _, err = f.WriteAt(appendJournalHeader(nil, c.first), 0); err != nil {
			return err
		}
	}
	if err = f.Sync(); err != nil {
		return errors.Join(ErrFailed, err)
	}
	return nil
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
