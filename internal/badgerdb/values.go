package badgerdb

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// values are those that stay where the journal has them. Badger gets a [place] instead of
// one, so that the bytes of a log are written once: not again to a memtable's log, to a table,
// and to those into which tables are merged. That is the idea of WiscKey (Lu and others, FAST
// 2016), with the write-ahead log as value log, as raft-engine has it.
//
// A file of the journal of which all has come to tables is kept, under another name, as long
// as there are values in it that count: the newest of their keys. Which those are is known in
// memory, by key. A file without any goes when nobody can read it any more, and is used for the
// journal again. Where only little of many files counts, the [collector] writes that anew.
//
// Only the [Log] profile does so. What it has is overwritten soon, so that most files go
// without anything being written anew; and hardly anything is read.
type values struct {
	dir     string
	log     *slog.Logger
	readers *readers
	seen    func() uint64 // the newest transaction that everyone sees who begins to read

	mu    sync.Mutex
	at    map[valueKey]place
	files map[uint32]*valueFile
	begun uint32          // the file that is being written to
	told  map[uint32]bool // files of which was said that a value in them cannot be read
}

// A valueFile is a file of the journal, or one that was.
type valueFile struct {
	name  string
	file  *os.File // to be read
	first uint64   // what is older is not in it; zero: anything may be
	size  int64    // bytes that were written to it
	live  int64    // bytes of the values in it that count
	count int      // of them
	dead  uint64   // the newest transaction that has replaced one of them
	kept  bool     // all that was in it has come to tables
	bad   bool     // something in it that counts cannot be read
}

// A place is where in the journal a pair is: from the first byte of its entry to the last.
type place struct{ file, offset, size uint32 }

// A valueKey is a key whose value may stay in the journal: a short one, so that to know a
// hundred thousand costs little.
type valueKey [maxValueKey + 1]byte

const (
	// valueExt ends the names of files that are kept for their values.
	valueExt = ".val"

	// minValue is the shortest value that stays in the journal. What is shorter is read faster
	// where it is, and to know where it is would take more memory than it has bytes.
	minValue = 1 << 10

	// maxValueKey is the longest key of one.
	maxValueKey = 15

	// pairsAtOnce is how many pairs are looked at while who commits waits.
	pairsAtOnce = 1 << 10
)

func newValues(dir string, log *slog.Logger, r *readers, seen func() uint64) *values {
	return &values{
		dir: dir, log: log, readers: r, seen: seen,
		at: make(map[valueKey]place), files: make(map[uint32]*valueFile),
		told: make(map[uint32]bool),
	}
}

// valueKeyOf returns a key as one of the map; false: it is too long.
func valueKeyOf(key []byte) (k valueKey, ok bool) {
	if len(key) > maxValueKey {
		return k, false
	}
	k[0] = byte(len(key))
	copy(k[1:], key)
	return k, true
}

func (k valueKey) bytes() []byte { return k[1 : 1+k[0]] }

// staysInJournal reports whether the value of a pair stays in the journal. What was decided once
// holds for ever: after a kill the same pointers must come of the journal as are in tables.
func staysInJournal(key, value, minValue int) bool {
	return value >= minValue && key <= maxValueKey
}

// begin takes in a file that the journal begins, with the number of its first transaction.
func (v *values) begin(id uint64, name string, first uint64) error {
	f, err := v.open(name)
	if err != nil {
		return err
	}
	f.first = first
	v.mu.Lock()
	defer v.mu.Unlock()
	v.files[uint32(id)], v.begun = f, uint32(id)
	return nil
}

// open opens a file. It stays open as long as it is known: who reads must not find that there are
// too many open files.
func (v *values) open(name string) (*valueFile, error) {
	file, err := os.Open(filepath.Join(v.dir, name))
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &valueFile{name: name, file: file, size: info.Size()}, nil
}

// close closes a file that is not known any more. It was only read, so an error says nothing.
func (f *valueFile) close() { _ = f.file.Close() }

// close forgets all files. Nobody reads any more.
func (v *values) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.files {
		f.close()
	}
	clear(v.files)
}

// note takes in a transaction that was written to the journal. It need not be durable: nothing
// that it replaces goes before it is. Only who commits changes the map, so he may look into it
// without the lock.
func (v *values) note(t *Txn) {
	if !t.keeps && len(v.at) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range t.pairs {
		key, _ := t.pair(p)
		k, ok := valueKeyOf(key)
		if !ok {
			continue
		}
		v.dropLocked(k, t.version)
		if at, ok := t.stays(p); ok {
			v.addLocked(k, at)
		}
	}
}

func (v *values) addLocked(k valueKey, at place) {
	v.at[k] = at
	f := v.files[at.file]
	f.live += int64(at.size)
	f.count++
}

func (v *values) dropLocked(k valueKey, version uint64) {
	at, ok := v.at[k]
	if !ok {
		return
	}
	delete(v.at, k)
	f := v.files[at.file]
	f.live -= int64(at.size)
	f.count--
	f.dead = max(f.dead, version)
}

// counts reports whether the pair in a place is the newest of its key.
func (v *values) counts(key []byte, at place) bool {
	k, ok := valueKeyOf(key)
	if !ok {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.at[k] == at
}

// reader returns the file of a number that has a transaction, to be read, and its name. The
// journal may have begun another file of the number when the one that it was of is missing.
func (v *values) reader(id uint32, version uint64) (io.ReaderAt, string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f, ok := v.files[id]
	if !ok || version < f.first {
		return nil, "", damaged(valueName(id), errMissing)
	}
	return f.file, f.name, nil
}

// nameOf returns what the file of a number is called now, or nothing if there is none.
func (v *values) nameOf(id uint32) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f, ok := v.files[id]; ok {
		return f.name
	}
	return ""
}

// fileOf returns the file of a number, to be read, or nil if there is none. Who has no snapshot
// that can see it may find it closed, when nothing of it counts.
func (v *values) fileOf(id uint32) io.ReaderAt {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f, ok := v.files[id]; ok {
		return f.file
	}
	return nil
}

// keep gives a file of which all has come to tables the name of one that is kept, unless
// nothing of it can be needed any more. It has something up to end. It reports whether it is kept.
// For a moment it may have the new name and be known by the old one.
func (v *values) keep(id uint64, end int64) (kept bool, err error) {
	v.mu.Lock()
	f := v.files[uint32(id)]
	useless := v.uselessLocked(f)
	if useless {
		delete(v.files, uint32(id))
	}
	v.mu.Unlock()
	if useless {
		f.close()
		return false, nil
	}
	name := valueName(uint32(id)) // nobody else changes it
	if err = os.Rename(filepath.Join(v.dir, f.name), filepath.Join(v.dir, name)); err != nil {
		return false, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	f.name, f.kept, f.size = name, true, end
	return true, nil
}

// uselessLocked reports whether nobody reads a file any more, now or later: everyone who
// comes sees what has replaced its values.
func (v *values) uselessLocked(f *valueFile) bool {
	return f.count == 0 && f.dead <= v.seen() && v.readers.oldest(f.dead) == f.dead
}

// sweep returns the names of files that were kept, and of which nothing is needed any more. They
// are no longer known then.
func (v *values) sweep() (names []string) {
	for _, f := range v.takeUseless() {
		f.close()
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

func (v *values) takeUseless() (useless []*valueFile) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, f := range v.files {
		if f.kept && v.uselessLocked(f) {
			useless = append(useless, f)
			delete(v.files, id)
		}
	}
	return useless
}

// bytes returns how much the files take that are kept, and how much in them counts.
func (v *values) bytes() (all, live int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.files {
		if f.kept {
			all += f.size
			live += f.live
		}
	}
	return all, live
}

// load finds out which values count, of a database that was just opened. A file that is not
// there, or of which nothing counts, is not known afterwards.
func (v *values) load(db *badger.DB, names []string) (err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range names {
		id, err := valueID(name)
		if err != nil {
			return err
		}
		f, err := v.open(name)
		if err != nil {
			return err
		}
		f.kept = true
		v.files[id] = f
	}
	if len(names) == 0 {
		return nil
	}
	return Guard(func() error { return v.scanLocked(db) })
}

func (v *values) scanLocked(db *badger.DB) error {
	txn := db.NewTransactionAt(db.MaxVersion(), false)
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if item.UserMeta()&metaPointer == 0 {
			continue
		}
		var at place
		err := item.Value(func(b []byte) (err error) { at, err = readPointer(b); return err })
		if err != nil {
			return fmt.Errorf("key %x: %w", item.Key(), err)
		}
		if k, ok := valueKeyOf(item.Key()); ok && v.files[at.file] != nil {
			v.addLocked(k, at)
		}
	}
	return nil
}

// ids returns the numbers of the files that are kept, in order.
func (v *values) ids() []uint32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	var ids []uint32
	for _, id := range slices.Sorted(maps.Keys(v.files)) {
		if v.files[id].kept {
			ids = append(ids, id)
		}
	}
	return ids
}

// pairsIn returns which pairs of a full file count, without their values, in the order of the file.
// It looks at all files' pairs, and lets others in between: what is replaced meanwhile may be among
// those that it returns.
func (v *values) pairsIn(id uint32) (pairs []livePair) {
	v.each(func(k valueKey, at place) {
		if at.file == id {
			pairs = append(pairs, livePair{at: at, key: k.bytes()})
		}
	})
	slices.SortFunc(pairs, func(a, b livePair) int { return cmp.Compare(a.at.offset, b.at.offset) })
	return pairs
}

// each calls fn with all pairs that count. The map may change where the lock is let go of: who goes
// through it meets what is there all the time, and each key once.
func (v *values) each(fn func(k valueKey, at place)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for k, at := range v.at {
		if n++; n%pairsAtOnce == 0 {
			v.mu.Unlock()
			runtime.Gosched()
			v.mu.Lock()
		}
		fn(k, at)
	}
}

// full returns the numbers of the files to which nothing is written any more, in order.
func (v *values) full() []uint32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	ids := slices.Sorted(maps.Keys(v.files))
	return slices.DeleteFunc(ids, func(id uint32) bool { return id == v.begun })
}

func valueName(id uint32) string { return fmt.Sprintf("%05d%s", id, valueExt) }

// valueID returns the number of a file that is kept.
func valueID(name string) (uint32, error) {
	var id uint32
	if _, err := fmt.Sscanf(name, "%d"+valueExt, &id); err != nil || valueName(id) != name {
		return 0, fmt.Errorf("%w: %s is no name of a file of values", ErrDamaged, name)
	}
	return id, nil
}

// last returns the highest number of a file, or zero.
func (v *values) last() (last uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.files {
		last = max(last, uint64(id))
	}
	return last
}

// worst returns the kept file in which the least counts, if all of them take more than they
// should: twice what counts in them, and slack. It leaves out those that do not go when something
// is written anew, however much that is: they wait for a snapshot to end, or are damaged.
func (v *values) worst(slack int64) (id uint32, found bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all, live, least int64
	for n, f := range v.files {
		if !f.kept || f.count == 0 || f.bad {
			continue
		}
		all += f.size
		live += f.live
		if !found || f.live < least {
			id, least, found = n, f.live, true
		}
	}
	return id, found && all > 2*live+slack
}

// spoil notes that something in a file that counts cannot be read: it stays as it is.
func (v *values) spoil(id uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.files[id]; f != nil {
		f.bad = true
	}
}

// complain says of a file, once, that a value in it cannot be read.
func (v *values) complain(id uint32, what error) {
	v.mu.Lock()
	known := v.told[id]
	v.told[id] = true
	v.mu.Unlock()
	if !known {
		v.log.Error("a value cannot be read, and perhaps others of its file",
			slog.String("dir", v.dir), slog.Any("error", what))
	}
}
