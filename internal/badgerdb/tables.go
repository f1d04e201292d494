package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"
	"golang.org/x/sync/errgroup"
)

// checkTables reads every table once and verifies the checksums of all its
// blocks, as Badger does in its mode OnTableRead. Left to Badger, a table with a
// broken index or first or last block would end the process, in a goroutine of
// Badger's own, and other damage would leave goroutines behind.
func checkTables(f files, m badger.Manifest, w walSummary, bopts badger.Options) error {
	named, err := namedTables(f, m)
	if err != nil {
		return err
	}
	ever, err := everNamed(filepath.Join(f.dir, badger.ManifestFilename))
	if err != nil {
		return err
	}
	for _, name := range f.tables {
		id, ok := table.ParseFileID(name)
		if !ok {
			return fmt.Errorf("%w: %s is not a name that a table has", ErrDamaged, name)
		}
		if _, listed := m.Tables[id]; listed {
			continue
		}
		versions, err := tableVersions(f.dir, id, bopts.Compression)
		if saysNothing(err) {
			return damaged(name, err)
		}
		if err != nil {
			continue // half written, so its input has not been deleted
		}
		if lostTable(versions, named, ever[id], w) {
			return fmt.Errorf("%w: %s does not name table %s, which holds data newer than all"+
				" others: the end of %s is lost",
				ErrDamaged, badger.ManifestFilename, name, badger.ManifestFilename)
		}
	}
	return nil
}

// lostTable reports whether a whole table that the MANIFEST does not name holds
// what nothing else does. Badger deletes such tables. That is right for what an
// interrupted flush or compaction has left: the log of the one is still there, and
// the other is not newer than its input. It is loss when the end of the MANIFEST,
// which named the table, is gone.
func lostTable(v versions, named uint64, everNamed bool, w walSummary) bool {
	return v.newest > max(named, w.newest) ||
		(!everNamed && v.newest > named && (!w.holds(v.oldest) || !w.holds(v.newest)))
}

// namedTables checks the tables that the MANIFEST names and returns the newest
// version in them.
func namedTables(f files, m badger.Manifest) (uint64, error) {
	var newest atomic.Uint64
	var g errgroup.Group
	g.SetLimit(4)
	for id, tm := range m.Tables {
		g.Go(func() error {
			version, err := tableVersion(f.dir, id, tm.Compression)
			if err != nil {
				return damaged("table "+table.IDToFilename(id), err)
			}
			for v := newest.Load(); v < version && !newest.CompareAndSwap(v, version); {
				v = newest.Load()
			}
			return nil
		})
	}
	err := g.Wait()
	return newest.Load(), err
}

// tableVersion returns the newest version in a table.
func tableVersion(dir string, id uint64, c options.CompressionType) (version uint64, err error) {
	t, file, err := openTable(dir, id, c)
	if file != nil {
		defer func() { err = errors.Join(err, closeMapped(file)) }()
	}
	if err != nil {
		return 0, err
	}
	return t.MaxVersion(), nil
}

// versions are the oldest and the newest version in a table.
type versions struct{ oldest, newest uint64 }

// tableVersions reads all of a table.
func tableVersions(dir string, id uint64, c options.CompressionType) (v versions, err error) {
	t, file, err := openTable(dir, id, c)
	if file != nil {
		defer func() { err = errors.Join(err, closeMapped(file)) }()
	}
	if err != nil {
		return v, err
	}
	v.oldest, v.newest = t.MaxVersion(), t.MaxVersion()
	it := t.NewIterator(table.NOCACHE)
	for it.Rewind(); it.Valid(); it.Next() {
		v.oldest = min(v.oldest, y.ParseTs(it.Key()))
	}
	return v, it.Close()
}

// closeMapped closes a file that was read. That syncs it, since a process before this one
// may have written it; and a sync that fails says nothing of what is in the file.
func closeMapped(file *z.MmapFile) error {
	err := file.Sync()
	if err != nil {
		err = fmt.Errorf("%w: sync %s: %w", ErrFailed, file.Fd.Name(), err)
	}
	// Its own Close hides what the cause of an error is, and lets go of nothing after one.
	return errors.Join(err, z.Munmap(file.Data), file.Fd.Close())
}

// openTable opens a table to be read and verifies the checksums of all its blocks. The
// file, unless it is nil, is to be closed, also after an error.
func openTable(dir string, id uint64, c options.CompressionType) (
	t *table.Table, file *z.MmapFile, err error,
) {
	path := table.NewFilename(id, dir)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, errMissing
	case err != nil:
		return nil, nil, err
	case info.Size() == 0:
		return nil, nil, errors.New("is empty")
	case info.IsDir():
		return nil, nil, errNoFile
	}
	if file, err = z.OpenMmapFile(path, os.O_RDONLY, 0); err != nil {
		return nil, nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, errors.New("is unreadable: its index or a block is not one")
		}
	}()
	t, err = table.OpenTable(file, table.Options{
		ReadOnly: true, BlockSize: 4 << 10, Compression: c, ChkMode: options.NoVerification,
	})
	if err != nil {
		return nil, file, errors.New("is unreadable: its index is damaged")
	}
	// In a step of its own: a table that is opened with verification closes the
	// file when that fails, and leaves it open when anything else does.
	if err := t.VerifyChecksum(); err != nil {
		return nil, file, errors.New("has a block whose checksum is wrong")
	}
	t.IncrRef() // at zero it would delete the file
	return t, file, nil
}

// everNamed returns the tables that the MANIFEST has named at any time.
func everNamed(path string) (map[uint64]bool, error) {
	sets, _, err := manifestChanges(path)
	if err != nil {
		return nil, err
	}
	ids := make(map[uint64]bool)
	for _, set := range sets {
		for _, c := range set.Changes {
			ids[c.Id] = true
		}
	}
	return ids, nil
}
