package storage

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/internal/wire"
)

// Names in the data directory, for those who look whether it is one, or is in use.
const (
	// LockName is the file that a store has locked while it is open, and has written the id
	// of its process into.
	LockName = "LOCK"
	// IdentityName is the file that a directory has from its first start on.
	IdentityName = "IDENTITY"
)

// Other names in the data directory.
const (
	sequenceName = "sequence"
	logName      = "log"

	tempSuffix = ".new" // of a file that is to replace another
)

// formatVersion is the version of everything in the data directory that this
// package writes. In format 1, which is still read, the identity has no starts; in those before
// 3 the database of the logs has all its values in tables.
const formatVersion = 3

// Identity is who a store belongs to and which one it is.
type Identity struct {
	Cluster uuid.UUID
	Node    raftyard.NodeID

	// Store is made with the data directory. Another directory has another.
	Store uuid.UUID

	// Boot counts the starts. It is raised durably by each Open before that
	// returns, so no two running stores from one directory have the same.
	Boot uint64

	// Starts are the starts that others may have heard of: see [Store.Present].
	Starts lineage.Lineage

	Format int
}

// The identity is a text file, so that an operator can read it. It is outside of
// Badger, so that a lost or foreign Badger directory is noticed. Boot 0 marks a
// directory that is being made: nothing in it was ever given to anybody.
const identityText = "raftyard data directory\n" +
	"format  %d\ncluster %s\nnode    %d\nstore   %s\nboot    %d\n"

// identityLines are the lines of the text.
const identityLines = 6

const identitySum = "crc32c  %08x\n"

func (id Identity) encode() []byte {
	text := fmt.Appendf(nil, identityText, id.Format, id.Cluster, id.Node, id.Store, id.Boot)
	if id.Format > 1 {
		text = fmt.Appendf(text, "since   %d\n", id.Starts.Since)
		for _, s := range id.Starts.Starts {
			text = fmt.Appendf(text, "start   %d %s\n", s.Boot, uuid.UUID(s.Process))
		}
	}
	sum := crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(text, identitySum, sum)
}

func decodeIdentity(b []byte) (Identity, error) {
	// The format is read before the checksum: a newer one may sum up otherwise.
	var id Identity
	lines := strings.Split(string(b), "\n")
	if len(lines) < 2 || lines[0] != "raftyard data directory" {
		return id, errors.New("is no identity file")
	}
	format, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(lines[1], "format")))
	if err != nil || format < 1 {
		return id, fmt.Errorf("has no format: %q", lines[1])
	}
	if format > formatVersion {
		return id, fmt.Errorf("%w: %d, this program knows %d: use the newer version that wrote it",
			ErrFormat, format, formatVersion)
	}
	if len(lines) <= identityLines {
		return id, fmt.Errorf("has %d lines", len(lines))
	}
	field := func(n int, name string) string { return valueOf(lines[n], name) }
	var errs [4]error
	var node uint64
	id.Format = format
	id.Cluster, errs[0] = uuid.Parse(field(2, "cluster"))
	node, errs[1] = strconv.ParseUint(field(3, "node"), 10, 64)
	id.Store, errs[2] = uuid.Parse(field(4, "store"))
	id.Boot, errs[3] = strconv.ParseUint(field(5, "boot"), 10, 64)
	id.Node = raftyard.NodeID(node)
	if err = errors.Join(errs[:]...); err != nil {
		return id, err
	}
	if format > 1 {
		if id.Starts, err = decodeStarts(lines[identityLines:]); err != nil {
			return id, err
		}
	}
	if !bytes.Equal(id.encode(), b) {
		return id, errors.New("does not have the checksum of its content")
	}
	return id, nil
}

// raise counts one more start, with this format. A directory of format 1 has kept none of those
// before.
func (id *Identity) raise() {
	id.Boot++
	if id.Format == 1 {
		id.Starts.Since = id.Boot
	}
	id.Format = formatVersion
}

// valueOf returns what a line has after a name, or nothing if it does not begin with it.
func valueOf(line, name string) string {
	value, ok := strings.CutPrefix(line, name)
	if !ok {
		return ""
	}
	return strings.TrimSpace(value)
}

// decodeStarts reads the lines that say which starts there were, up to one that does not.
func decodeStarts(lines []string) (lineage.Lineage, error) {
	since, err := strconv.ParseUint(valueOf(lines[0], "since"), 10, 64)
	if err != nil {
		return lineage.Lineage{}, err
	}
	l := lineage.Lineage{Since: since}
	for _, line := range lines[1:] {
		value := valueOf(line, "start")
		if value == "" {
			break
		}
		boot, process, _ := strings.Cut(value, " ")
		var s lineage.Start
		if s.Boot, err = strconv.ParseUint(boot, 10, 64); err != nil {
			return l, err
		}
		id, err := uuid.Parse(process)
		if err != nil {
			return l, err
		}
		s.Process = id
		l.Starts = append(l.Starts, s)
	}
	return l, l.Check()
}

// save replaces the identity file: a new file, synced, renamed over the old one,
// and the directory synced. At any moment there is the old one or the new one.
func (id Identity) save(files vfs.FS, dir string) error {
	path := filepath.Join(dir, IdentityName)
	temp := path + tempSuffix
	if err := writeSynced(files, temp, id.encode()); err != nil {
		return fmt.Errorf("%s: %w", temp, err)
	}
	if err := files.Rename(temp, path); err != nil {
		return err
	}
	return files.SyncDir(dir)
}

func writeSynced(files vfs.FS, path string, b []byte) (err error) {
	f, err := files.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

// loadIdentity reads the identity of the directory and checks that it is ours.
// In a directory without anything of the store it begins a new one. It never
// makes up for a part that is missing.
func loadIdentity(o Options, on Backing) (Identity, error) {
	path := filepath.Join(o.Dir, IdentityName)
	b, err := on.Files.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(o, on)
	}
	if err != nil {
		return Identity{}, unreadable(err)
	}
	id, err := decodeIdentity(b)
	switch {
	case errors.Is(err, ErrFormat):
		return id, fmt.Errorf("%s: %w", path, err)
	case err != nil:
		return id, fmt.Errorf("%w: %s %w", ErrDamaged, path, err)
	case id.Cluster != o.Cluster:
		return id, fmt.Errorf("%w: it is of %s, this node is of %s: check the cluster's name"+
			" and the directory", ErrWrongCluster, id.Cluster, o.Cluster)
	case id.Node != o.Node:
		return id, fmt.Errorf("%w: it is of node %d, this is node %d: check the node's id"+
			" and the directory", ErrWrongNode, id.Node, o.Node)
	case id.Boot == 0:
		return id, begin(o, on.Files, id)
	}
	for _, name := range []string{logName, sequenceName} {
		there, err := on.Files.Exists(filepath.Join(o.Dir, name))
		if err != nil {
			return id, err
		}
		if !there {
			return id, fmt.Errorf("%w: %s is missing", ErrIncomplete, filepath.Join(o.Dir, name))
		}
	}
	return id, nil
}

func newIdentity(o Options, on Backing) (Identity, error) {
	for _, name := range []string{logName, sequenceName} {
		there, err := on.Files.Exists(filepath.Join(o.Dir, name))
		if err != nil {
			return Identity{}, err
		}
		if there {
			return Identity{}, fmt.Errorf("%w: %s is there, but %s is missing",
				ErrIncomplete, filepath.Join(o.Dir, name), filepath.Join(o.Dir, IdentityName))
		}
	}
	id := Identity{
		Cluster: o.Cluster, Node: o.Node, Store: on.UUID(), Format: formatVersion,
		Starts: lineage.Lineage{Since: 1},
	}
	return id, begin(o, on.Files, id)
}

// begin starts to make a directory, or starts again after that was interrupted.
func begin(o Options, files vfs.FS, id Identity) error {
	if err := files.RemoveAll(filepath.Join(o.Dir, logName)); err != nil {
		return err
	}
	for _, name := range []string{sequenceName, inventoryName} {
		if err := files.RemoveAll(filepath.Join(o.Dir, name)); err != nil {
			return err
		}
	}
	return id.save(files, o.Dir)
}

// checkStoreRecord compares the identity inside of Badger with the one outside,
// or writes it into a new database.
func (s *Store) checkStoreRecord() error {
	id := s.identity
	record := storeRecord(id)
	if id.Boot == 0 {
		return s.db.Commit(func(w kv.Writer) error { return w.Set([]byte(identityKey), record) })
	}
	at := s.db.Snapshot()
	defer at.Discard()
	found, err := at.Get([]byte(identityKey))
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return fmt.Errorf("%w: %s does not say whose it is", ErrDamaged, s.path(logName))
	case err != nil:
		return err
	case !bytes.Equal(found, record):
		return fmt.Errorf("%w: %s belongs to another store than %s says: directories were mixed up",
			ErrDamaged, s.path(logName), s.path(IdentityName))
	}
	return nil
}

// storeRecord is the value of identityKey.
func storeRecord(id Identity) []byte {
	b := []byte{0, 0, 0, 0, recordFormat}
	b = wire.AppendID(b, id.Cluster)
	b = wire.AppendUvarint(b, uint64(id.Node))
	b = wire.AppendID(b, id.Store)
	sealRecord([]byte(identityKey), b)
	return b
}
