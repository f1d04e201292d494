package badgerdb

import (
	"errors"
	"fmt"
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
//
// A table that the MANIFEST does not name is deleted by Badger. That is right for
// what an interrupted flush or compaction has left, whose input is still there.
// It is loss when the end of the MANIFEST is gone: then nothing else holds
// versions as new as those of the table.
func checkTables(f files, m badger.Manifest, w walSummary, bopts badger.Options) error {
	var newest atomic.Uint64
	newest.Store(w.newest)
	var g errgroup.Group
	g.SetLimit(4)
	for id, tm := range m.Tables {
		g.Go(func() error {
			version, err := tableVersion(f.dir, id, tm.Compression)
			if err != nil {
				return fmt.Errorf("%w: table %s: %w", ErrDamaged, table.IDToFilename(id), err)
			}
			for v := newest.Load(); v < version && !newest.CompareAndSwap(v, version); {
				v = newest.Load()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, name := range f.tables {
		id, ok := table.ParseFileID(name)
		if !ok {
			return fmt.Errorf("%w: %s is not a name that a table has", ErrDamaged, name)
		}
		if _, named := m.Tables[id]; named {
			continue
		}
		version, err := tableVersion(f.dir, id, bopts.Compression)
		if err != nil {
			continue // half written, so its input has not been deleted
		}
		if version > newest.Load() {
			return fmt.Errorf("%w: %s does not name table %s, which holds data newer than all"+
				" others: the end of %s is lost",
				ErrDamaged, badger.ManifestFilename, name, badger.ManifestFilename)
		}
	}
	return nil
}

// tableVersion returns the newest version in a table.
func tableVersion(dir string, id uint64, c options.CompressionType) (version uint64, err error) {
	path := table.NewFilename(id, dir)
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if info.Size() == 0 {
		return 0, fmt.Errorf("%s is empty", filepath.Base(path))
	}
	file, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close(-1)) }()
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("unreadable: the index or a block is not one")
		}
	}()
	t, err := table.OpenTable(file, table.Options{
		ReadOnly: true, BlockSize: 4 << 10, Compression: c, ChkMode: options.NoVerification,
	})
	if err != nil {
		return 0, err
	}
	// In a step of its own: a table that is opened with verification closes the
	// file when that fails, and leaves it open when anything else does.
	if err := t.VerifyChecksum(); err != nil {
		return 0, err
	}
	return t.MaxVersion(), nil
}
