package badgerdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"google.golang.org/protobuf/proto"
)

// A change of the MANIFEST is written, and then synced. When the sync fails Badger deletes
// the tables that the change has named, and keeps those that it was to replace; but the
// change is in the file, and names what there is no more. Nothing is lost: what the tables
// held is in those that they were made of, or in the write-ahead log of the memtable. So
// such a change is taken back, before Badger sees it:
//
//   - That of a compaction, if all tables are whole of which there are any without it. A
//     flush that was under way then may have followed in the file, and been synced: that
//     one counts, since what it has made is there.
//   - That of a flush, if it is the last one, and the logs go on where the tables end. It
//     is the last, because a flush that has failed is not tried again, see broken.
//
// A table that is missing for another reason meets neither: its input is deleted when it is
// in use, and the log of its memtable.

// manifestHeader is the length of what is in front of the first change.
const manifestHeader = 8

// manifestChanges returns what the MANIFEST says, change by change, and where that ends.
func manifestChanges(path string) (sets []*pb.ManifestChangeSet, end int64, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	at := min(manifestHeader, len(b))
	for len(b)-at >= 8 {
		size := uint64(binary.BigEndian.Uint32(b[at:]))
		if size > uint64(len(b)-at-8) {
			break // its end, which Badger cuts off
		}
		set := new(pb.ManifestChangeSet)
		if err := proto.Unmarshal(b[at+8:at+8+int(size)], set); err != nil {
			return nil, 0, fmt.Errorf("%w: %s: %w", ErrDamaged, badger.ManifestFilename, err)
		}
		sets = append(sets, set)
		at += 8 + int(size)
	}
	return sets, int64(at), nil
}

// tableSet is which tables count, and where they are.
type tableSet = map[uint64]badger.TableManifest

// findUnsynced returns the tables that count without the changes whose sync has failed, or
// nil if there are no such changes. It writes nothing.
func findUnsynced(f files, named tableSet, w walSummary) (tableSet, error) {
	missing, err := missingTables(f.dir, named)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	sets, _, err := manifestChanges(filepath.Join(f.dir, badger.ManifestFilename))
	if err != nil {
		return nil, err
	}
	failed, flush := failedChanges(sets, named, missing)
	if len(failed) == 0 {
		return nil, nil
	}
	tables := replayWithout(sets, failed)
	newest, err := namedTables(f, badger.Manifest{Tables: tables})
	switch {
	case saysNothing(err):
		return nil, err
	case err != nil: // what the tables were made of is gone, so they were in use
		return nil, nil //nolint:nilerr // who asked says which table is missing
	case flush && !w.goesOn(newest):
		return nil, nil
	}
	return tables, nil
}

// missingTables returns the tables that are named and not there. One without content is not:
// that is what Badger makes of a table before it removes the file.
func missingTables(dir string, named tableSet) (map[uint64]bool, error) {
	missing := make(map[uint64]bool)
	for id := range named {
		info, err := os.Stat(table.NewFilename(id, dir))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing[id] = true
		case err != nil:
			return nil, err
		case info.Size() == 0:
			missing[id] = true
		}
	}
	return missing, nil
}

// failedChanges returns which changes may be those whose sync has failed, and whether one is
// of a flush. There are none if something that is missing came with another change.
func failedChanges(
	sets []*pb.ManifestChangeSet, named tableSet, missing map[uint64]bool,
) (failed map[int]bool, flush bool) {
	failed = make(map[int]bool)
	for i, set := range sets {
		made := created(set)
		flushed := len(made) == 1 && len(set.Changes) == 1
		if !slices.ContainsFunc(made, func(id uint64) bool { return missing[id] }) {
			if flushed && flush {
				return nil, false // a later flush has followed: so the one before was well
			}
			continue
		}
		for _, id := range made {
			if _, still := named[id]; !still {
				return nil, false // was made into other tables, and so in use
			}
		}
		if len(made) == len(set.Changes) && !flushed {
			return nil, false // a MANIFEST that was written anew: how it came is not known
		}
		failed[i], flush = true, flush || flushed
	}
	return failed, flush
}

func created(set *pb.ManifestChangeSet) (ids []uint64) {
	for _, c := range set.Changes {
		if c.Op == pb.ManifestChange_CREATE {
			ids = append(ids, c.Id)
		}
	}
	return ids
}

// replayWithout returns the tables after all changes but those that have failed.
func replayWithout(sets []*pb.ManifestChangeSet, failed map[int]bool) tableSet {
	tables := make(tableSet)
	for i, set := range sets {
		if failed[i] {
			continue
		}
		for _, c := range set.Changes {
			if c.Op == pb.ManifestChange_CREATE {
				tables[c.Id] = badger.TableManifest{
					Level: uint8(c.Level), KeyID: c.KeyId,
					Compression: options.CompressionType(c.Compression),
				}
			} else {
				delete(tables, c.Id)
			}
		}
	}
	return tables
}

// goesOn reports whether the logs hold all that is newer than a version, and something is.
func (w walSummary) goesOn(version uint64) bool {
	next := version + 1
	for _, c := range w.logs {
		if c.first != 0 && c.first <= next && next <= c.last {
			next = c.last + 1
		}
	}
	return w.newest > version && next == w.newest+1
}

// takeBack has the MANIFEST name the tables that count, by a further change at its end. It
// is synced, or Badger would remove files on the word of one that a power failure takes back.
func takeBack(dir string, named, tables tableSet, log *slog.Logger) error {
	path := filepath.Join(dir, badger.ManifestFilename)
	_, end, err := manifestChanges(path)
	if err != nil {
		return err
	}
	b, err := proto.Marshal(difference(named, tables))
	if err != nil {
		return err
	}
	record := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	record = append(binary.BigEndian.AppendUint32(record, sum), b...)
	log.Warn("taking back what could not be synced, and tables that were never used;"+
		" nothing is lost", slog.String("file", path))
	if err := writeEnd(path, end, record); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFailed, badger.ManifestFilename, err)
	}
	return nil
}

// difference is the change from one set of tables to another.
func difference(from, to tableSet) *pb.ManifestChangeSet {
	set := new(pb.ManifestChangeSet)
	for _, id := range slices.Sorted(maps.Keys(from)) {
		if _, stays := to[id]; !stays {
			set.Changes = append(set.Changes,
				&pb.ManifestChange{Id: id, Op: pb.ManifestChange_DELETE})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(to)) {
		if _, there := from[id]; there {
			continue
		}
		t := to[id]
		set.Changes = append(set.Changes, &pb.ManifestChange{
			Id: id, Op: pb.ManifestChange_CREATE, Level: uint32(t.Level), KeyId: t.KeyID,
			EncryptionAlgo: pb.EncryptionAlgo_aes, Compression: uint32(t.Compression),
		})
	}
	return set
}

// writeEnd replaces everything from an offset on.
func writeEnd(path string, end int64, b []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err = f.Truncate(end); err != nil {
		return err
	}
	if _, err = f.WriteAt(b, end); err != nil {
		return err
	}
	return f.Sync()
}

// syncFile has what a process before this one has written on the disk.
func syncFile(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err = f.Sync(); err != nil {
		return fmt.Errorf("%w: sync %s: %w", ErrFailed, path, err)
	}
	return nil
}
