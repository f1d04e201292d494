package badgerdb

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"
)

// A Finding is something about one file of a database that is not as it should be.
type Finding struct {
	File string // its name in the directory
	What string

	// Harmless: the next Open deals with it, and nothing is lost.
	Harmless bool
}

// An Image is a database as it lies on disk, to be read without changing a byte: not even
// the replay that Badger demands after a kill. The transactions in the journal
// are held in memory; tables are mapped. It is for one goroutine.
type Image struct {
	Tables int    // how many there are
	Bytes  int64  // of tables
	Newest uint64 // version of the newest transaction; zero: there is none

	dir    string
	levels []level // the newest first: 0, 1, ...
	files  []*z.MmapFile
	wal    []pair // in the order of their keys
	unlock func() error

	elsewhere valueReader
	values    map[uint32]*os.File // those that were read
}

// level is tables of one level. Those of level 0 overlap.
type level struct {
	number int
	tables []*table.Table
}

// pair is a key, with its version at the end, and what is stored with it.
type pair struct {
	key   []byte
	value y.ValueStruct
}

// OpenImage reads the database in dir, which was opened with a profile. It looks at all
// that [Open] looks at, and goes on after a finding. It writes nothing and needs no
// permission to. With a finding that is not harmless there is no Image: what can be read
// is not what was stored.
//
// The database must not be in use ([ErrLocked]), and nobody can open it until the Image
// is closed. Without one there is nothing to close.
func OpenImage(dir string, p Profile) (m *Image, found []Finding, err error) {
	unlock, err := shareDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("badgerdb: read %s: %w", dir, err)
	}
	m = &Image{dir: dir, unlock: unlock}
	m.elsewhere.files = m.valuesOf
	l, err := m.load(dir, Options{Dir: dir, Profile: p}.withDefaults().badger())
	if err == nil {
		err = l.access
	}
	whole := !slices.ContainsFunc(l.found, func(f Finding) bool { return !f.Harmless })
	if err != nil || !whole {
		if cerr := m.Close(); cerr != nil && err == nil {
			err = cerr
		}
		m = nil
	}
	if err != nil {
		err = fmt.Errorf("badgerdb: read %s: %w", dir, err)
	}
	return m, l.found, err
}

// load reads all files of the directory, whatever is found.
func (m *Image) load(dir string, o badger.Options) (*loading, error) {
	l := &loading{image: m, options: o}
	f, _, err := scanFiles(dir) // files without content are there after each kill
	if err != nil {
		return l, err
	}
	l.files = f
	for _, name := range f.odd {
		l.damage(name, errNoFile)
	}
	if err = checkLost(dir); err != nil {
		l.damage(lostName, err)
	}
	l.others()
	l.loadWALs()
	manifest, err := readManifest(f, o)
	if err != nil {
		l.damage(badger.ManifestFilename, err)
		// Which tables count is not known, but each can be read for itself.
		l.loadUnnamed(nil)
		return l, nil
	}
	tables, err := findUnsynced(f, manifest.Tables, l.wals)
	switch {
	case err != nil:
		l.damage(badger.ManifestFilename, err)
	case tables != nil:
		l.note(badger.ManifestFilename, "names tables that were never in use: what named them"+
			" could not be synced; the next start takes it back, and nothing is lost")
		manifest.Tables = tables
	}
	l.loadTables(manifest)
	return l, nil
}

// loading is a reading that is under way.
type loading struct {
	image   *Image
	options badger.Options
	files   files
	found   []Finding
	wals    walSummary
	named   uint64 // newest version in the tables that the MANIFEST names
	access  error  // of a file, and says nothing of what is in it
}

func (l *loading) damage(file string, err error) {
	if saysNothing(err) {
		l.access = cmp.Or(l.access, fmt.Errorf("%s: %w", file, err))
		return
	}
	text := plainDamage(err)
	l.found = append(l.found, Finding{File: file, What: text})
}

func (l *loading) note(file, format string, args ...any) {
	l.found = append(l.found, Finding{
		File: file, What: fmt.Sprintf(format, args...), Harmless: true,
	})
}

// plainDamage returns what an error says, without the sentinel and the file's name in
// front, which a finding has beside it.
func plainDamage(err error) string {
	text := []byte(err.Error())
	text = bytes.TrimPrefix(text, []byte(ErrDamaged.Error()+": "))
	text = bytes.TrimPrefix(text, []byte(badger.ManifestFilename+": "))
	return string(text)
}

// others looks at the files that hold nothing of ours.
func (l *loading) others() {
	for _, name := range l.files.others {
		err := checkOther(l.files.dir, name)
		switch {
		case errors.Is(err, errWorthless):
			l.note(name, "%v; it holds no data, the next start makes it anew", err)
		case err != nil:
			l.damage(name, err)
		}
	}
}

func (l *loading) loadWALs() {
	var prev walContent
	stale := l.files.stale
	for i, w := range l.files.wals {
		b, c, err := readWAL(filepath.Join(l.files.dir, w.name))
		if err != nil {
			l.damage(w.name, err)
			prev = walContent{}
			stale = nil // what they have more than the rest of the journal says nothing of them
			continue
		}
		adjacent := i > 0 && neighbours(l.files.wals[i-1], w)
		if err := gap(adjacent, prev, c); err != nil {
			l.damage(w.name, err)
		}
		if w.journal && !c.journal {
			l.damage(w.name, errNoJournal)
		}
		if c.torn != 0 {
			l.note(w.name, "ends with a part of transaction %d, which was never"+
				" acknowledged: a kill or a power failure leaves that", c.torn)
		}
		if c.last != 0 || !adjacent {
			prev = c
		}
		l.wals.newest = max(l.wals.newest, c.last)
		l.wals.logs = append(l.wals.logs, c)
		l.image.addWAL(b[:c.end])
	}
	for _, name := range stale {
		if err := l.wals.checkStale(filepath.Join(l.files.dir, name)); err != nil {
			l.damage(name, err)
		}
	}
	l.image.sortWAL()
	l.image.Newest = l.wals.newest
}

// addWAL takes in a log of whole transactions.
func (m *Image) addWAL(log []byte) {
	for _, e := range entries(log) {
		if !e.end {
			m.wal = append(m.wal, pair{
				key: e.key,
				value: y.ValueStruct{
					Meta: e.meta, UserMeta: e.user, Value: e.value, Version: e.version,
				},
			})
		}
	}
}

// sortWAL brings the pairs into order. A transaction may write a key more than once; the last
// time counts.
func (m *Image) sortWAL() {
	slices.Reverse(m.wal)
	slices.SortStableFunc(m.wal, func(a, b pair) int { return y.CompareKeys(a.key, b.key) })
	m.wal = slices.CompactFunc(m.wal, func(a, b pair) bool { return bytes.Equal(a.key, b.key) })
}

// loadTables opens the tables that the MANIFEST names, and judges the others.
func (l *loading) loadTables(manifest badger.Manifest) {
	byLevel := make(map[int][]*table.Table)
	ids := make([]uint64, 0, len(manifest.Tables))
	for id := range manifest.Tables {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		tm := manifest.Tables[id]
		t, err := l.openTable(id, tm.Compression)
		if err != nil {
			l.damage(table.IDToFilename(id), err)
			continue
		}
		byLevel[int(tm.Level)] = append(byLevel[int(tm.Level)], t)
		l.named = max(l.named, t.MaxVersion())
		l.image.Tables++
		l.image.Bytes += t.Size()
	}
	l.image.Newest = max(l.image.Newest, l.named)
	for number, tables := range byLevel {
		l.image.levels = append(l.image.levels, level{number, tables})
	}
	slices.SortFunc(l.image.levels, func(a, b level) int { return cmp.Compare(a.number, b.number) })
	for i := range l.image.levels {
		l.order(&l.image.levels[i])
	}
	l.loadUnnamed(&manifest)
}

// order brings the tables of a level into the order in which they are read: the newest
// first, or by their keys, of which no two may overlap.
func (l *loading) order(lv *level) {
	if lv.number == 0 {
		slices.Reverse(lv.tables)
		return
	}
	slices.SortFunc(lv.tables, func(a, b *table.Table) int {
		return y.CompareKeys(a.Smallest(), b.Smallest())
	})
	for i := 1; i < len(lv.tables); i++ {
		if y.CompareKeys(lv.tables[i-1].Biggest(), lv.tables[i].Smallest()) >= 0 {
			l.damage(badger.ManifestFilename, fmt.Errorf("has tables %d and %d in level %d,"+
				" whose keys overlap", lv.tables[i-1].ID(), lv.tables[i].ID(), lv.number))
		}
	}
}

// loadUnnamed looks at the tables that the MANIFEST does not name; nil: it cannot be read.
func (l *loading) loadUnnamed(manifest *badger.Manifest) {
	var ever map[uint64]bool
	if manifest != nil {
		var err error
		ever, err = everNamed(filepath.Join(l.files.dir, badger.ManifestFilename))
		if err != nil {
			l.damage(badger.ManifestFilename, err)
			return
		}
	}
	for _, name := range l.files.tables {
		id, ok := table.ParseFileID(name)
		if !ok {
			l.damage(name, errors.New("is not a name that a table has"))
			continue
		}
		if manifest != nil {
			if _, named := manifest.Tables[id]; named {
				continue
			}
		}
		versions, err := tableVersions(l.files.dir, id, l.options.Compression)
		switch {
		case (manifest == nil || saysNothing(err)) && err != nil:
			l.damage(name, err)
		case manifest == nil:
		case err == nil && lostTable(versions, l.named, ever[id], l.wals):
			l.damage(badger.ManifestFilename, fmt.Errorf("does not name table %s, which holds"+
				" data newer than all others: its end is lost", name))
		default:
			l.note(name, "is left of a compaction or flush that was interrupted;"+
				" the next start removes it")
		}
	}
}

// openTable opens a table and verifies the checksums of all its blocks. What is mapped
// is let go by Close.
func (l *loading) openTable(id uint64, c options.CompressionType) (*table.Table, error) {
	t, file, err := openTable(l.files.dir, id, c)
	if file != nil {
		l.image.files = append(l.image.files, file)
	}
	return t, err
}

// Close lets go of the files.
func (m *Image) Close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, closeMapped(f))
	}
	m.files, m.levels, m.wal = nil, nil, nil
	for _, f := range m.values {
		errs = append(errs, f.Close())
	}
	m.values = nil
	if m.unlock != nil {
		errs = append(errs, m.unlock())
		m.unlock = nil
	}
	return errors.Join(errs...)
}
