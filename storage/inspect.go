package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/vfs"
)

// A Finding is something in a data directory that is not as it should be.
type Finding struct {
	Path  string // below the data directory
	Scope Scope
	What  string
	Group raftyard.GroupID // for ScopeReplica
}

// Scope is how far a finding reaches.
type Scope uint8

const (
	// ScopeNothing says that nothing is lost: the next start deals with it.
	ScopeNothing Scope = iota
	// ScopeReplica says that the replica of one group here has lost something.
	ScopeReplica
	// ScopeReplicas says that every live replica here may have lost something.
	ScopeReplicas
	// ScopeStore says that the store does not open.
	ScopeStore
)

// An Inspection is a store that is only looked at. It is for one goroutine.
type Inspection struct {
	Identity Identity // zero if it cannot be read
	Noted    uint64   // number of the batch in the sequence note
	Newest   uint64   // number of the newest batch that is there
	Findings []Finding

	dir   string
	store *Store // without a database if that cannot be read
	image *badgerdb.Image
	lock  io.Closer        // nil if nobody has ever taken it
	read  map[groupID]bool // whose entries need not be read any more
}

// ErrNoStore is the error of an inspection of a directory that is not of a node.
var ErrNoStore = errors.New("storage: no data directory of a node")

// Inspect reads the store in a node's data directory, does all that [Open] does to find
// out what is wrong, and goes on to the end; [Inspection.ReadLog] does what the reading of a
// log would. It changes no file, takes no lock but a
// shared one, and needs no permission to write. While a node uses the directory the error
// is [ErrLocked], and while there is an Inspection no node can use it. Close ends it.
//
// Damage is not an error but a [Finding].
func Inspect(dir string) (*Inspection, error) {
	i := &Inspection{dir: dir, store: &Store{
		opts: Options{Dir: dir}.withDefaults(), replicas: make(map[groupID]*replica),
	}}
	err := i.take()
	if err == nil {
		err = i.readAll()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("storage: inspect %s: %w", dir, err), i.Close())
	}
	return i, nil
}

// take takes the lock, shared.
func (i *Inspection) take() error {
	info, err := os.Stat(i.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is nothing", ErrNoStore)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%w: it is no directory", ErrNoStore)
	}
	lock, err := vfs.SharedLock(filepath.Join(i.dir, LockName))
	held, ok := errors.AsType[*vfs.LockedError](err)
	switch {
	case ok:
		return fmt.Errorf("%w: %w", ErrLocked, held)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EISDIR):
		i.lost(LockName, "is no file")
		return nil
	case err != nil:
		return err
	}
	i.lock = lock
	return nil
}

// readAll reads all parts of the store.
func (i *Inspection) readAll() error {
	b, err := os.ReadFile(filepath.Join(i.dir, IdentityName))
	if errors.Is(err, fs.ErrNotExist) {
		if !i.exists(logName) && !i.exists(sequenceName) {
			return ErrNoStore
		}
		i.lost(IdentityName, "is missing")
	} else {
		if errors.Is(err, fs.ErrPermission) {
			return err
		}
		if err == nil {
			i.Identity, err = decodeIdentity(b)
		}
		if err != nil {
			i.lost(IdentityName, "%v", err)
			i.Identity = Identity{}
		}
	}
	if i.Identity.Format != 0 && i.Identity.Boot == 0 {
		i.Findings = append(i.Findings, Finding{
			Path: IdentityName,
			What: "says that the directory is being made: the next start begins anew",
		})
		return nil
	}
	i.readNote()
	if !i.exists(logName) {
		i.lost(logName, "is missing")
		return nil
	}
	return i.readLog()
}

func (i *Inspection) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(i.dir, name))
	return err == nil
}

// lost notes that the store does not open.
func (i *Inspection) lost(path, format string, args ...any) {
	i.Findings = append(i.Findings, Finding{
		Path: path, Scope: ScopeStore, What: fmt.Sprintf(format, args...),
	})
}

// readNote reads the sequence note.
func (i *Inspection) readNote() {
	f, err := vfs.OS{}.Open(filepath.Join(i.dir, sequenceName))
	if errors.Is(err, fs.ErrNotExist) {
		i.lost(sequenceName, "is missing")
		return
	}
	if err != nil {
		i.lost(sequenceName, "%v", err)
		return
	}
	n := &sequenceNote{file: f, store: i.Identity.Store}
	if i.Identity.Format == 0 {
		n.store = n.anyStore()
	}
	err = errors.Join(n.read(), n.close())
	if err != nil {
		i.lost(sequenceName, "%v", err)
		return
	}
	i.Noted = n.noted
}

// anyStore returns whose the note is, when the identity does not tell.
func (n *sequenceNote) anyStore() (store uuid.UUID) {
	b := make([]byte, notePlace+noteSize)
	if _, err := n.file.ReadAt(b, 0); err != nil {
		return store
	}
	for _, place := range [][]byte{b[:noteSize], b[notePlace:]} {
		if id, _, ok := decodeNote(place); ok {
			return id
		}
	}
	return store
}

// readLog reads the database with the logs.
func (i *Inspection) readLog() error {
	image, found, err := badgerdb.OpenImage(filepath.Join(i.dir, logName), badgerdb.Log)
	switch {
	case errors.Is(err, badgerdb.ErrLocked):
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case err != nil:
		return err
	}
	for _, f := range found {
		scope := ScopeStore
		if f.Harmless {
			scope = ScopeNothing
		}
		i.Findings = append(i.Findings, Finding{
			Path: filepath.Join(logName, f.File), Scope: scope, What: f.What,
		})
	}
	if image == nil {
		return nil
	}
	i.image, i.store.db = image, kv.Image{Image: image}
	return i.recover()
}

// recover does what [Store.recover] does, and checks more.
func (i *Inspection) recover() error {
	i.checkStoreRecord()
	var at progress
	f := new(found)
	view := i.store.db.Snapshot()
	err := view.Scan(func(key, value []byte, version uint64) error {
		batch, err := i.store.recoverPair(f, view, key, value)
		if err == nil {
			at.saw(batch, version)
		}
		return err
	})
	if vfs.HidesContent(err) {
		return err
	}
	if err != nil {
		i.lost(logName, "%v", err)
		return nil
	}
	if f.any {
		i.store.take(f)
	}
	i.Newest = at.newest()
	if whole := i.checkInventory(); i.Noted > i.Newest {
		i.lostTail(whole)
	}
	i.read = make(map[groupID]bool)
	for _, r := range i.Replicas() {
		err := r.Damage
		if l := i.store.Log(r.Group); err == nil && l != nil {
			err = l.checkTerms()
		}
		i.damaged(r.Group, err)
	}
	return nil
}

// damaged notes what is wrong with a replica, if anything is.
func (i *Inspection) damaged(g groupID, err error) {
	if err == nil {
		return
	}
	i.read[g] = true
	i.Findings = append(i.Findings, Finding{
		Path: logName, Scope: ScopeReplica, Group: g, What: plainDamage(g, err),
	})
}

// checkStoreRecord compares the identities inside and outside of the database.
func (i *Inspection) checkStoreRecord() {
	if i.Identity.Format == 0 || i.Identity.Boot == 0 {
		return
	}
	got, err := i.store.db.Snapshot().Get([]byte(identityKey))
	switch {
	case errors.Is(err, kv.ErrNotFound):
		i.lost(logName, "does not say whose it is")
	case err != nil:
		i.lost(logName, "%v", err)
	case !bytes.Equal(got, storeRecord(i.Identity)):
		i.lost(logName, "belongs to another store than %s says: directories were mixed up",
			IdentityName)
	}
}

// ReadLog reads all entries of a group's live replica, and calls fn with each until it
// returns an error, which is returned. Nothing else finds damage in the midst of a log: it is
// a [Finding] then, and there is no log any more. It is read once only; later calls, and
// those for a group without a log, do nothing.
func (i *Inspection) ReadLog(g raftyard.GroupID, fn func(*raftpb.Entry) error) error {
	l := i.store.Log(g)
	if l == nil || i.read[g] {
		return nil
	}
	i.read[g] = true
	first, last := l.Bounds()
	err := i.Entries(g, first, last, fn)
	if i.store.Log(g) == nil { // it is not fn that has failed
		i.damaged(g, err)
		return nil
	}
	return err
}

// plainDamage returns what is wrong with a replica, without what a finding says beside.
func plainDamage(g groupID, err error) string {
	text := strings.TrimPrefix(err.Error(), ErrDamaged.Error()+": ")
	return strings.TrimPrefix(text, fmt.Sprintf("group %d: ", g))
}

// checkTerms reports what no leader makes: terms that fall from one entry to the next, or
// are beyond the replica's own; and a snapshot that is not in the log.
func (l *Log) checkTerms() error {
	for n := 1; n < len(l.terms); n++ {
		if was, is := l.terms[n-1], l.terms[n]; is.term < was.term {
			return fmt.Errorf("entry %d has term %d, entry %d before it term %d",
				is.index, is.term, is.index-1, was.term)
		}
	}
	if last := l.terms[len(l.terms)-1]; l.hard.set && last.term > l.hard.term {
		return fmt.Errorf("entry %d has term %d, the replica has heard of term %d only",
			l.last, last.term, l.hard.term)
	}
	if l.snapshot == nil {
		return nil
	}
	if at, start := snapshotIndex(l.snapshot), l.terms.start().index; at < start || at > l.last {
		return fmt.Errorf("the snapshot at %d is not in the log (%d, %d]", at, start, l.last)
	}
	return nil
}

// Whole reports whether the logs could be read; otherwise there are no replicas.
func (i *Inspection) Whole() bool { return i.image != nil }

// Replicas returns all replicas and tombstones, by group id.
func (i *Inspection) Replicas() []Replica { return i.store.Replicas() }

// Log returns the log of the group's live replica, or nil if there is none or it is
// damaged.
func (i *Inspection) Log(g raftyard.GroupID) *Log { return i.store.Log(g) }

// inspectBytes is how much is read of a log at once.
const inspectBytes = 1 << 20

// Entries calls fn with the entries from one index to another, those that are there, until
// fn returns an error, which it returns.
func (i *Inspection) Entries(
	g raftyard.GroupID, from, to uint64, fn func(*raftpb.Entry) error,
) error {
	l := i.store.Log(g)
	if l == nil {
		return fmt.Errorf("%w: group %d", ErrNotFound, g)
	}
	first, last := l.Bounds()
	from, to = max(from, first), min(to, last)
	for from <= to {
		entries, err := l.Entries(from, to+1, inspectBytes)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := fn(e); err != nil {
				return err
			}
		}
		from += uint64(len(entries))
	}
	return nil
}

// Files returns the names in the data directory that the store owns.
func Files() []string {
	return []string{
		LockName, IdentityName, IdentityName + tempSuffix, sequenceName,
		inventoryName, inventoryName + tempSuffix, logName,
	}
}

// Close ends the inspection. Logs must not be read any more.
func (i *Inspection) Close() error {
	var errs []error
	if i.image != nil {
		errs = append(errs, i.image.Close())
		i.image = nil
	}
	if i.lock != nil {
		errs = append(errs, i.lock.Close())
		i.lock = nil
	}
	return errors.Join(errs...)
}
