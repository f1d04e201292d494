package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/internal/vfs"
)

// files is what a database directory holds, as far as it matters before Badger
// is let in.
type files struct {
	dir      string
	manifest bool
	tables   []string // names of *.sst
	wals     []walFile
	values   []string // names of files of the journal that are kept for their values
	stale    []string // names of Badger's own logs beside a journal, which count for nothing
	others   []string // names of what holds nothing of ours
	odd      []string // names of what is no file and should be one
	bytes    int64    // of all tables
}

type walFile struct {
	name    string
	id      uint64
	journal bool // it is of the journal
}

// listFiles reads the directory and removes what holds nothing and keeps Badger from
// opening it: the files of length zero that Badger leaves behind when it is killed while
// it makes them, those that walWatch and room have prepared, and others that are
// worthless. It makes them anew.
func listFiles(dir string, log *slog.Logger) (files, error) {
	f, empty, err := scanFiles(dir)
	if err != nil {
		return f, err
	}
	if len(f.odd) > 0 {
		return f, fmt.Errorf("%w: %s: %w", ErrDamaged, f.odd[0], errNoFile)
	}
	for _, name := range empty {
		log.Debug("removing an empty file of an interrupted start", slog.String("file", name))
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return f, err
		}
	}
	for _, name := range f.others {
		err := checkOther(dir, name)
		if err == nil {
			continue
		}
		if !errors.Is(err, errWorthless) {
			return f, damaged(name, err)
		}
		log.Warn("removing a damaged file that holds no data",
			slog.String("file", name), slog.Any("error", err))
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return f, err
		}
	}
	return f, nil
}

// scanFiles reads the directory. Empty are the files without content that [listFiles]
// removes; they are not among the others.
func scanFiles(dir string) (files, []string, error) {
	f, empty, err := scanAll(dir)
	if err == nil {
		err = f.pickLogs()
	}
	return f, empty, err
}

func scanAll(dir string) (f files, empty []string, err error) {
	f.dir = dir
	entries, err := os.ReadDir(dir)
	if err != nil {
		return f, nil, err
	}
	for _, e := range entries {
		name := e.Name()
		ext := filepath.Ext(name)
		info, err := e.Info()
		if err != nil {
			return f, empty, err
		}
		if e.IsDir() && isOurs(name, ext) {
			f.odd = append(f.odd, name)
			continue
		}
		other := ext == ".vlog" || name == badger.KeyRegistryFileName
		if info.Size() == 0 && (ext == ".mem" || other) || name == reserveName || ext == spareExt {
			empty = append(empty, name)
			continue
		}
		switch {
		case name == badger.ManifestFilename:
			f.manifest = true
		case ext == ".sst":
			f.tables = append(f.tables, name)
			f.bytes += info.Size()
		case ext == ".mem" || ext == journalExt:
			id, err := strconv.ParseUint(strings.TrimSuffix(name, ext), 10, 32)
			if err != nil {
				return f, empty, fmt.Errorf("%w: %s is no write-ahead log's name",
					ErrDamaged, name)
			}
			f.wals = append(f.wals, walFile{name: name, id: id, journal: ext == journalExt})
		case ext == valueExt:
			f.values = append(f.values, name)
		case other:
			f.others = append(f.others, name)
		}
	}
	slices.SortFunc(f.wals, func(a, b walFile) int { return int(int64(a.id) - int64(b.id)) })
	return f, empty, nil
}

// isOurs reports whether a name is that of a file of the database. The reserve is not
// among them: it is removed, whatever it is.
func isOurs(name, ext string) bool {
	switch ext {
	case ".mem", ".vlog", ".sst", journalExt, valueExt:
		return true
	}
	switch name {
	case badger.ManifestFilename, badger.KeyRegistryFileName, discardName, pidName:
		return true
	default:
		return false
	}
}

// saysNothing reports whether an error says nothing of what is in a file: this process cannot
// look at it, now, or could not sync it.
func saysNothing(err error) bool {
	return vfs.HidesContent(err) || errors.Is(err, ErrFailed)
}

// damaged returns what is wrong with a file as [ErrDamaged], unless it is not the file that
// is wrong.
func damaged(name string, err error) error {
	if saysNothing(err) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
}

// What is wrong with the place of a file: there is nothing, or something else.
var (
	errMissing = errors.New("is missing")
	errNoFile  = errors.New("is no file")
)

// Further files that Badger makes: one with statistics, and one that tells which process
// has the database open.
const (
	discardName = "DISCARD"
	pidName     = "LOCK"
)

// errWorthless: a file that holds nothing of ours is not what Badger can open.
var errWorthless = errors.New("is damaged")

const (
	// keyRegistrySize is that of a registry without a key, which is what a database that
	// is not encrypted has: an initialisation vector, and a text.
	keyRegistrySize = 16 + len(keyRegistryText)
	keyRegistryText = "Hello Badger"
)

// checkOther looks at a file that holds nothing of ours: the registry of the keys of an
// encryption that there is none of, or a value log, where no value is long enough to go.
// Badger does not open the database when their beginnings are damaged.
func checkOther(dir, name string) (err error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, keyRegistrySize+1)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	b = b[:n]
	if name == badger.KeyRegistryFileName {
		if n != keyRegistrySize || string(b[16:]) != keyRegistryText {
			return errWorthless
		}
		return nil
	}
	if n < walHeaderSize || !bytes.Equal(b[:8], make([]byte, 8)) {
		return errWorthless
	}
	return nil
}

// prepared is what is known of a database that is about to be opened.
type prepared struct {
	based  bool  // there are tables below level 0
	memory int64 // what the fullest log takes in a memtable

	newest uint64   // the newest transaction in a log
	log    uint64   // the highest number of one
	values []string // files that are kept for their values
}

// prepare does everything that must be done or known before Badger opens the
// database. It takes Badger's own lock meanwhile, so that it never touches the
// files of a database that is open.
func prepare(o Options, bopts badger.Options) (is prepared, err error) {
	unlock, err := lockDir(o.Dir)
	if err != nil {
		return is, err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	if err = checkLost(o.Dir); err != nil {
		return is, err
	}
	f, err := listFiles(o.Dir, o.Logger)
	if err != nil {
		return is, err
	}
	wals, err := checkWALs(f, o.Logger)
	if err != nil {
		return is, err
	}
	m, err := readManifest(f, bopts)
	if err != nil {
		return is, err
	}
	if err = settleManifest(f, &m, wals, o.Logger); err != nil {
		return is, err
	}
	if err = checkTables(f, m, wals, bopts); err != nil {
		return is, err
	}
	if err = checkSpace(f, o.MemTableSize, bopts); err != nil {
		return is, err
	}
	if err = adoptLogs(f, wals, o.minValue, o.Logger); err != nil {
		return is, err
	}
	now, _, err := scanAll(o.Dir)
	if err != nil {
		return is, err
	}
	for _, t := range m.Tables {
		is.based = is.based || t.Level > 0
	}
	is.memory, is.newest, is.values = wals.memory, wals.newest, now.values
	for _, w := range f.wals {
		is.log = max(is.log, w.id)
	}
	return is, checkDescriptors(len(f.tables)+len(now.values), o.Logger)
}

// readManifest reads the MANIFEST before Badger does. Without one Badger opens an
// empty database and deletes the tables, so its absence beside other files is
// damage: it is written, and its directory synced, before any of them.
func readManifest(f files, bopts badger.Options) (m badger.Manifest, err error) {
	path := filepath.Join(f.dir, badger.ManifestFilename)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if n := len(f.tables) + len(f.wals) + len(f.values); n != 0 {
			return m, fmt.Errorf("%w: %s is missing beside %d tables, write-ahead logs and "+
				"files of values", ErrDamaged, badger.ManifestFilename, n)
		}
		return m, nil
	}
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	m, _, err = badger.ReplayManifestFile(file, bopts.ExternalMagicVersion, bopts)
	if err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrDamaged, badger.ManifestFilename, err)
	}
	return m, nil
}

// settleManifest sees to it that the MANIFEST says what counts, and that it is on the disk:
// Badger removes the tables that it does not name.
func settleManifest(f files, m *badger.Manifest, w walSummary, log *slog.Logger) error {
	if !f.manifest {
		return nil
	}
	tables, err := findUnsynced(f, m.Tables, w)
	switch {
	case err != nil:
		return err
	case tables == nil:
		return syncFile(filepath.Join(f.dir, badger.ManifestFilename))
	}
	if err := takeBack(f.dir, m.Tables, tables, log); err != nil {
		return err
	}
	m.Tables = tables
	return nil
}

// checkSpace demands room for the memtables and write-ahead logs that may be
// written and for the output of the compactions that may start at once.
func checkSpace(f files, memTable int64, bopts badger.Options) error {
	need := openSpace(len(f.wals), f.bytes, memTable, bopts)
	free, err := freeSpace(f.dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", f.dir, err)
	}
	if free < need {
		return fmt.Errorf("%w: %s has %d MiB free, the database needs %d MiB to open;"+
			" free some, delete nothing in this directory",
			ErrNoSpace, f.dir, free>>20, need>>20)
	}
	return nil
}

// openSpace is how many bytes must be free for a database to open: what its logs
// and memtables may take, and what the first compaction may.
func openSpace(wals int, tables, memTable int64, bopts badger.Options) int64 {
	// Memtables and logs of those that there are, and the tables that come of them; but no
	// less than what is needed to write afterwards.
	logs := max(int64(wals+numMemtables+2)*memTable*115/100,
		holdSpace(memTable)+4*walSize(memTable))
	return logs + min(tables, int64(bopts.NumLevelZeroTables)*memTable+2*bopts.BaseLevelSize)
}
