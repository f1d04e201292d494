package badgerdb

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
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
	if err = w.follows(named); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
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
		version, err := tableVersion(f.dir, id, bopts.Compression)
		if saysNothing(err) {
			return damaged(name, err)
		}
		if err != nil {
			continue // half written, so its input has not been deleted
		}
		if lostTable(version, named, ever[id], w) {
			return fmt.Errorf("%w: %s does not name table %s, which holds data newer than all"+
				" others: the end of %s is lost",
				ErrDamaged, badger.ManifestFilename, name, badger.ManifestFilename)
		}
	}
	return nil
}

// follows reports a gap between the tables, the newest transaction in which is named, and the
// journal: a file of it is removed only when the tables have all that is in it.
func (w walSummary) follows(named uint64) error {
	newest := named
	for _, c := range w.logs {
		if !c.journal {
			continue
		}
		if first := cmp.Or(c.first, c.next); first > newest+1 {
			return fmt.Errorf("transactions %d to %d are neither in the tables nor in the journal",
				newest+1, first-1)
		}
		newest = max(newest, c.last)
	}
	return nil
}

// lostTable reports whether a whole table that the MANIFEST does not name holds
// what nothing else does. Badger deletes such tables. That is right for what an
// interrupted flush or compaction has left: the log of the one is still there, and
// the other is not newer than its input. It is loss when the end of the MANIFEST,
// which named the table, is gone.
func lostTable(version, named uint64, everNamed bool, w walSummary) bool {
	return version > max(named, w.newest) ||
		(!everNamed && version > named && !w.holds(version))
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
		return nil, nil, errors.New("is missing")
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
