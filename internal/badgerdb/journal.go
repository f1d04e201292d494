package badgerdb

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/vfs"
)

// journal is the write-ahead log of a database: what is in it is durable.
//
// Badger has one of its own, which it writes through a mapping. To sync that costs more with
// each page, since the kernel takes the mapping's right to write away and gives it back at
// the next fault: 256 KiB take 0.9 ms, against 0.2 ms written to a file. So Badger's logs are
// not synced at all, and after a crash nobody looks at them. A commit is written and synced
// here, and comes to Badger meanwhile, see [mover].
//
// The journal has Badger's format, see [walEntry], so that after a crash its files take the
// place of Badger's logs, see [adoptLogs]: their replay, and all the checks before it, are
// the same as ever. There are two things more. A file says in its header which transaction
// is its first, and a file is used again when all that is in it has come to tables: to write
// over what is there spares the file system the allocation. What it held before is behind its
// end then. Its transactions are older; and what in somebody's value looks like a newer one
// lacks the mark of the file, which is in its header and in the end of each transaction.
//
// Only whole pages are written: the end of the last one is zeros, and is written again with
// the next commit. So the kernel need not read what it does not have of a file.
type journal struct {
	dir   string
	size  int64 // of a file
	limit int64 // a file with so many bytes, in itself or in a memtable, is full
	log   *slog.Logger
	room  *room
	kept  *values

	sync      func(*os.File) error
	newSecret func() uint64
	removed   func() // called after each step of remove

	// What follows belongs to who commits.
	file   *os.File
	name   string
	id     uint64
	mark   uint64 // of the ends of its transactions
	end    int64  // where the next transaction goes
	page   []byte // what the page holds which the end is in, up to there
	memory int64  // what the transactions take in a memtable

	mu     sync.Mutex
	full   []fullJournal // the oldest first
	spare  []string      // files to be used next; the room may have one still to make
	newest uint64        // the newest transaction that Badger has
	active uint64        // its log that got that
	failed error         // why no file is let go of any more
}

// fullJournal is a file that takes no more transactions.
type fullJournal struct {
	name string
	id   uint64
	end  int64
	last uint64 // its newest transaction
	log  uint64 // Badger's log that got it, or a later one; zero: it is not known yet
}

const (
	// journalExt ends the names of the journal's files, and spareExt those of files that will
	// be, and hold nothing.
	journalExt, spareExt = ".jnl", ".free"

	// journalMagic is in the header of a file of the journal, and behind it the number of its
	// first transaction. Badger has random numbers there, for an encryption.
	journalMagic = "rfyj"

	// journalPage is what is written at once at least.
	journalPage = 4 << 10

	// maxSpares is how many files are kept to be used again.
	maxSpares = 2

	// maxWaiting is how many full files wait for one memtable to become a table. Where most
	// values stay in the journal that takes long, and a start after a kill reads all of them.
	maxWaiting = 4
)

func journalName(id uint64) string { return fmt.Sprintf("%05d%s", id, journalExt) }

func newJournal(dir string, o Options, r *room, v *values, id uint64) *journal {
	return &journal{
		dir: dir, size: walSize(o.MemTableSize), limit: o.MemTableSize,
		log: o.Logger, room: r, kept: v, sync: syncData, newSecret: newSecret, id: id,
		removed: func() {},
	}
}

// newSecret returns what nobody guesses.
func newSecret() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint64(b[:])
}

// begin begins a file, whose first transaction will be that of the number. It is durable, with
// its name, before anything is written to it. After an error the journal is of no use.
func (j *journal) begin(first, newest uint64) error {
	name, err := j.takeSpare()
	if err != nil {
		return err
	}
	mark := sealMark(j.newSecret()|1, first) // never zero
	page := appendJournalHeader(make([]byte, 0, journalPage), mark, first)
	next := journalName(j.id + 1)
	if err = j.install(page[:journalPage], name, next); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(j.dir, next), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if j.file != nil {
		err = j.file.Close()
		j.mu.Lock()
		full := fullJournal{name: j.name, id: j.id, end: j.end, last: newest}
		if j.newest >= newest { // Badger was faster
			full.log = j.active
		}
		j.full = append(j.full, full)
		j.mu.Unlock()
	}
	j.file, j.name, j.page, j.mark = f, next, page, mark
	j.id++
	j.end, j.memory = walHeaderSize, 0
	return errors.Join(err, j.kept.begin(j.id, next, first))
}

// install makes a file begin with a page, so that nothing that it held before counts, and
// gives it its name.
func (j *journal) install(page []byte, from, to string) (err error) {
	from, to = filepath.Join(j.dir, from), filepath.Join(j.dir, to)
	f, err := os.OpenFile(from, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(page, 0); err == nil {
		err = j.durable(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(from, to); err != nil {
		return err
	}
	return (vfs.OS{}).SyncDir(j.dir)
}

func (j *journal) durable(f *os.File) error {
	if mutant.On(mutant.SkipSync) {
		return nil
	}
	return j.sync(f)
}

// write writes a transaction, which has begun with the page. It is not durable then.
func (j *journal) write(t *Txn) error {
	b := t.padded()
	from := j.end - int64(len(j.page))
	if _, err := j.file.WriteAt(b, from); err != nil {
		return err
	}
	t.at = place{file: uint32(j.id), offset: uint32(from)}
	n := len(t.buf)
	j.page = append(j.page[:0], t.buf[n-n%journalPage:]...)
	j.end = from + int64(n)
	j.memory += t.memory
	return nil
}

// prepare begins the next file when this one is full, behind a transaction. Before that, in time,
// it sees to it that there is one to be begun. If there is no space for it, the room lets no
// commit begin before there is.
func (j *journal) prepare(newest uint64) error {
	j.mu.Lock()
	err := j.failed
	j.mu.Unlock()
	if err != nil {
		return err
	}
	used := max(j.memory, j.end)
	if used < j.limit/2 {
		return nil
	}
	j.keepSpare()
	if used < j.limit {
		return nil
	}
	return j.begin(newest+1, newest)
}

func (j *journal) keepSpare() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.spare) > 0 {
		return
	}
	if name, err := j.makeSpareLocked(); err != nil {
		j.room.lacks(filepath.Join(j.dir, name))
	}
}

// makeSpareLocked makes a file that has its blocks, or at least its name.
func (j *journal) makeSpareLocked() (name string, err error) {
	name = fmt.Sprintf("%05d-new%s", j.id+1, spareExt) // not that of one to be used again
	path := filepath.Join(j.dir, name)
	err = allocateNew(path, j.size)
	if errors.Is(err, errors.ErrUnsupported) {
		err = createNew(path)
	}
	j.spare = append(j.spare, name)
	return name, err
}

// takeSpare returns a file that is ready to become the journal's.
func (j *journal) takeSpare() (name string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.spare) == 0 {
		if name, err = j.makeSpareLocked(); err != nil {
			return "", fmt.Errorf("begin %s: %w", journalName(j.id+1), err)
		}
	}
	n := len(j.spare) - 1
	name = j.spare[n]
	j.spare = j.spare[:n]
	path := filepath.Join(j.dir, name)
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		return name, err
	}
	// With its length from now on, so that no sync has to note another one.
	return name, os.Truncate(path, j.size)
}

// moved hears that Badger has got all transactions up to one, the last of them into a log.
func (j *journal) moved(newest, log uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.newest, j.active = newest, log
	for i := range j.full {
		if f := &j.full[i]; f.log == 0 && f.last <= newest {
			f.log = log
		}
	}
}

// waiting returns how many files are full and wait for the memtable of a log to become a table.
func (j *journal) waiting(log uint64) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range j.full {
		if f.log == log {
			n++
		}
	}
	return n
}

// retire lets go of the files of which all has come to tables: Badger has deleted its log then;
// and of those that were kept for their values, of which none is needed any more. After a failure
// it is not known which files count, so no other is let go of, and the next commit fails. One
// goroutine may call it at a time.
func (j *journal) retire() {
	j.mu.Lock()
	full, active, err := slices.Clone(j.full), j.active, j.failed
	j.mu.Unlock()
	if err != nil {
		return
	}
	j.sweep()
	n := 0
	for n < len(full) && j.inTables(full[n].log, active) {
		n++
	}
	if n == 0 {
		return
	}
	n, err = j.letGo(full[:n])
	j.mu.Lock()
	defer j.mu.Unlock()
	j.full = slices.Delete(j.full, 0, n)
	if j.failed = err; err != nil {
		j.log.Error("a file of the journal was not let go of",
			slog.String("dir", j.dir), slog.Any("error", err))
	}
}

// inTables reports whether what was in one of Badger's logs, and before, has come to tables.
// That is so when the log is gone, or a later one: memtables become tables in order, but an
// iterator keeps the logs of those that it began with.
func (j *journal) inTables(log, active uint64) bool {
	for ; log != 0 && log < active; log++ {
		if isGone(filepath.Join(j.dir, walName(log))) {
			return true
		}
	}
	return false
}

// letGo lets go of files, the oldest first, and returns of how many. There must never be one
// without those that follow it: to replay it alone would bring back what was deleted since.
func (j *journal) letGo(full []fullJournal) (n int, err error) {
	// Only a durable name keeps a table; what was in it may be overwritten after that.
	if err = (vfs.OS{}).SyncDir(j.dir); err != nil {
		return 0, err
	}
	for _, f := range full {
		kept, err := j.kept.keep(f.id, f.end)
		if err == nil && kept {
			err = (vfs.OS{}).SyncDir(j.dir)
		} else if err == nil {
			err = j.reuse(f.name)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// sweep lets go of the files that were kept and are not needed any more, in any order: they are
// not replayed.
func (j *journal) sweep() {
	for _, name := range j.kept.sweep() {
		err := j.reuse(name)
		switch {
		case err == nil:
		case !errors.Is(err, fs.ErrNotExist): // whether names are durable is not known any more
			j.mu.Lock()
			j.failed = cmp.Or(j.failed, err)
			j.mu.Unlock()
		default:
			j.log.Warn("a file of values that nobody needs was not removed",
				slog.String("dir", j.dir), slog.Any("error", err))
		}
	}
}

// reuse makes a file a spare one, or removes it: when there are enough, or it has not all blocks.
func (j *journal) reuse(name string) error {
	path := filepath.Join(j.dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	spare := strings.TrimSuffix(name, filepath.Ext(name)) + spareExt
	j.mu.Lock()
	enough := len(j.spare) >= maxSpares || info.Size() < j.size
	j.mu.Unlock()
	if enough {
		err = os.Remove(path)
	} else {
		err = os.Rename(path, filepath.Join(j.dir, spare))
	}
	if err != nil {
		return err
	}
	// It must not count any more, under its old name, when it is written to.
	if err := (vfs.OS{}).SyncDir(j.dir); err != nil {
		return err
	}
	if enough {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.spare = append(j.spare, spare)
	return nil
}

// close lets go of the file that is written to.
func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

// remove removes all files, when all transactions are in tables: the oldest first, see letGo.
// Those with values that count get the names of such.
func (j *journal) remove() error {
	// Only a durable name keeps a table.
	if err := (vfs.OS{}).SyncDir(j.dir); err != nil {
		return err
	}
	useless := j.kept.sweep()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, name := range append(useless, j.spare...) {
		if err := j.removeFile(name); err != nil {
			return err
		}
		j.removed()
	}
	for _, f := range append(j.full, fullJournal{name: j.name, id: j.id, end: j.end}) {
		kept, err := j.kept.keep(f.id, f.end)
		switch {
		case err == nil && kept: // what is behind its end would be in the way for long
			err = os.Truncate(filepath.Join(j.dir, valueName(uint32(f.id))), f.end)
		case err == nil:
			err = j.removeFile(f.name)
		}
		if err == nil {
			err = (vfs.OS{}).SyncDir(j.dir)
		}
		if err != nil {
			return err
		}
		j.removed()
	}
	return nil
}

// removeFile removes a file, which need not be there.
func (j *journal) removeFile(name string) error {
	err := os.Remove(filepath.Join(j.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func isGone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// createNew makes a file of no length.
func createNew(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
