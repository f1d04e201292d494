package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard/internal/vfs"
)

// inventory is a file that remembers, outside of Badger, of which groups the store has a
// replica or a tombstone: of each the number of a record that was durable, and of a
// tombstone all that it says. When Badger comes back without one of them, or without the
// newest record of one, it has lost something in its midst, which neither Badger nor the
// sequence note tells. What was lost of a replica nobody has; a tombstone is put back, or
// else who once was here would be taken for one that has never been.
//
// A replica that is created is in the file before anybody is told that it is there. The
// rest is written now and then: the file may be behind what is durable, and never ahead.
// It is a witness and nothing else, so one that is missing or unreadable is made anew
// from what the store has.
type inventory struct {
	backing Backing
	path    string
	store   uuid.UUID
	boot    uint64

	dirty map[groupID]bool // what has changed and is not written; the committer's

	// whole: what was found at the start tells of all that was ever here, of tombstones,
	// too.
	whole bool

	// floor is not below any number that a record of a forgotten group had. A group of which
	// nothing is there begins above it: a tombstone from before it was forgotten, which comes
	// back with a disk that has lost its newest batches, is older than what the inventory has
	// of it then. The committer raises it as the owner of the file, and reads it without.
	floor   uint64
	floored bool // what was found at the start tells of the floor

	mu      sync.Mutex // held while the file is written; makes its holder the owner of the rest
	file    vfs.File   // nil: not open
	at      int64      // where the next frame goes
	unnamed bool       // a power failure may bring back the file before this one
	entries map[groupID]inventoryEntry
	needs   int64  // about what the entries take in the file
	behind  bool   // the file has not got all of the entries
	forgot  uint64 // counts the times that groups were forgotten
}

const (
	inventoryName = "inventory"

	// numbersRounds is how many rounds of the keeper pass from one writing of what has
	// changed to the next: a second.
	numbersRounds = 10

	// inventorySlack is how many bytes the file may have beyond twice what it needs.
	inventorySlack = 128 << 10

	// batchRecords is more than the records of a batch on average: so many take 32 MiB,
	// and the bytes of a batch are bounded.
	batchRecords = 1 << 20
)

// lock makes the caller the owner of the file.
func (v *inventory) lock() { v.backing.lock(&v.mu) }

// openInventory reads the inventory of the store, which is not recovered yet. It may not be
// there, or be of no use: then there are no entries.
func (s *Store) openInventory() error {
	id := s.identity
	s.inventory = &inventory{
		backing: s.backing, path: s.path(inventoryName), store: id.Store, boot: id.Boot + 1,
		dirty: make(map[groupID]bool),
	}
	b, err := s.backing.Files.ReadFile(s.inventory.path)
	isNew := id.Boot == 0
	s.inventory.whole, s.inventory.floored = isNew, isNew
	if isNew || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unreadable(err)
	}
	in := decodeInventory(b)
	if in.isForeign(id) {
		return fmt.Errorf("%w: %s belongs to store %s, not to %s: directories were mixed up",
			ErrDamaged, s.inventory.path, in.store, id.Store)
	}
	if !in.isUsable(id) {
		s.opts.Logger.Warn("the inventory of replicas cannot be used, and is made anew",
			slog.Int("bytes", len(b)), slog.Int("readable", in.size))
		return nil
	}
	s.inventory.entries, s.inventory.whole = in.entries, in.whole
	s.inventory.floor, s.inventory.floored = in.floor, in.floored
	return nil
}

// guessFloor finds a floor where the file does not tell: it is of an older format, or of no
// use. No group has more records than all batches up to this one.
func (v *inventory) guessFloor(batch uint64) {
	if !v.floored {
		v.floor = batch * batchRecords
	}
}

// begin writes the file anew, with what the store has, as of this start.
func (v *inventory) begin(replicas map[groupID]*replica) error {
	v.entries, v.needs = make(map[groupID]inventoryEntry, len(replicas)), 0
	all := make([]inventoryChange, 0, len(replicas))
	for g, r := range replicas {
		if r.isNoted() {
			all = append(all, inventoryChange{g, true, r.entry()})
		}
	}
	v.take(all)
	v.lock()
	defer v.mu.Unlock()
	return v.rewrite()
}

// rewrite replaces the file by a new one. The owner calls it.
func (v *inventory) rewrite() (err error) {
	temp := v.path + tempSuffix
	b := encodeInventory(v.store, v.boot, v.floor, v.entries)
	f, err := v.backing.Files.Create(temp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && v.file != f {
			err = errors.Join(err, f.Close())
		}
	}()
	if _, err = f.WriteAt(b, 0); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = v.backing.Files.Rename(temp, v.path); err != nil {
		return err
	}
	// From here on this is the file, whatever follows: the one before has no name any more.
	old := v.file
	v.file, v.at, v.behind, v.unnamed = f, int64(len(b)), false, true
	if old != nil {
		err = old.Close()
	}
	return errors.Join(err, v.syncName())
}

// syncName makes the name of the file durable, if it is not. The owner calls it.
func (v *inventory) syncName() error {
	if !v.unnamed {
		return nil
	}
	if err := v.backing.Files.SyncDir(filepath.Dir(v.path)); err != nil {
		return err
	}
	v.unnamed = false
	return nil
}

// add appends a frame or several and syncs them. The owner calls it. After an error it
// can be called again: nothing is taken for written that is not.
func (v *inventory) add(frames []byte) error {
	if _, err := v.file.WriteAt(frames, v.at); err != nil {
		return err
	}
	if err := errors.Join(v.file.Sync(), v.syncName()); err != nil {
		return err
	}
	v.at += int64(len(frames))
	return nil
}

// take makes changes part of the entries.
func (v *inventory) take(changes []inventoryChange) {
	for i := range changes {
		c := &changes[i]
		if was, there := v.entries[c.group]; there {
			v.needs -= was.charge()
		}
		if c.there {
			v.entries[c.group] = c.inventoryEntry
			v.needs += c.charge()
		} else {
			delete(v.entries, c.group)
		}
	}
}

// created notes the replicas that a batch has created, before anybody hears of them, and
// the tombstones of those that were here for no longer than the batch. The committer calls
// it when the batch is durable.
func (v *inventory) created(order []*stage) error {
	var live, dead []inventoryChange
	for _, st := range order {
		c := inventoryChange{st.group, true, inventoryEntry{
			st.info.Incarnation, st.info.ID, st.seq, st.info.Tombstone,
		}}
		switch {
		case st.created && st.live:
			live = append(live, c)
		case st.destroyed && !st.rep.info.isOf(&st.info):
			dead = append(dead, c)
		}
	}
	if len(live)+len(dead) == 0 {
		return nil
	}
	v.lock()
	defer v.mu.Unlock()
	err := v.add(appendList(appendList(nil, frameLive, live), frameDead, dead))
	if err != nil && !vfs.IsNoSpace(err) {
		return err
	}
	// On a full disk it is noted as soon as there is room. That costs the replica a witness
	// for so long; giving up would cost the node.
	v.behind = v.behind || err != nil
	v.take(live)
	v.take(dead)
	return nil
}

// forget removes groups of which nothing will be left when the batch is durable, and raises
// the floor to their numbers. The file is written anew, so that no torn end can bring them
// back, and always: the time before it may have failed.
func (v *inventory) forget(order []*stage) error {
	if !slices.ContainsFunc(order, func(st *stage) bool { return st.forgotten }) {
		return nil
	}
	var gone []inventoryChange
	v.lock()
	defer v.mu.Unlock()
	for _, st := range order {
		if st.forgotten {
			gone = append(gone, inventoryChange{group: st.group})
			v.floor = max(v.floor, st.rep.seq)
		}
	}
	v.forgot++
	v.take(gone)
	v.behind = true
	return v.rewrite()
}

// recall has what [inventory.forget] has removed noted again, since the batch was not
// written. The floor stays: it is only higher than it must be. The committer calls it.
func (v *inventory) recall(order []*stage) {
	for _, st := range order {
		if st.forgotten {
			v.dirty[st.group] = true
		}
	}
}

// changed returns what has changed since the last time. The committer calls it.
func (v *inventory) changed(s *Store) []inventoryChange {
	changes := make([]inventoryChange, 0, len(v.dirty))
	for g := range v.dirty {
		c := inventoryChange{group: g}
		if r := s.replicas[g]; r != nil && r.isNoted() {
			c.there, c.inventoryEntry = true, r.entry()
		}
		changes = append(changes, c)
	}
	clear(v.dirty)
	slices.SortFunc(changes, func(a, b inventoryChange) int {
		return cmp.Compare(a.group, b.group)
	})
	return changes
}

// put takes changes back that could not be written. The committer calls it.
func (v *inventory) put(changes []inventoryChange) {
	for i := range changes {
		v.dirty[changes[i].group] = true
	}
}

// noteNumbers writes down what has changed. It is called by the keeper, and by Close after
// the keeper has stopped.
func (s *Store) noteNumbers() error {
	v := s.inventory
	s.lockCommits()
	changes := v.changed(s)
	forgot := v.forgot
	s.commitMu.Unlock()
	if len(changes) == 0 {
		return nil
	}
	err := v.note(changes, forgot)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errForgot), vfs.IsNoSpace(err):
		// The file stays behind for a moment, or as long as the disk is full, and does no
		// harm.
		s.lockCommits()
		defer s.commitMu.Unlock()
		v.put(changes)
		return nil
	default:
		return s.fail(err)
	}
}

// errForgot: groups were forgotten since changes were gathered.
var errForgot = errors.New("groups were forgotten meanwhile")

// note appends changes, and writes the file anew when it has become too long. If groups
// were forgotten since the changes were gathered, these may be of groups of which nothing is
// left, and are not taken.
func (v *inventory) note(changes []inventoryChange, forgot uint64) error {
	v.lock()
	defer v.mu.Unlock()
	if v.forgot != forgot {
		return errForgot
	}
	var by [frameDead + 1][]inventoryChange // by the kind of their frame
	for i := range changes {
		c := changes[i]
		if e, there := v.entries[c.group]; there || c.there {
			if kind := e.becomes(&c); kind != 0 {
				by[kind] = append(by[kind], c)
			}
		}
	}
	var b []byte
	for kind, some := range by {
		b = appendList(b, byte(kind), some)
		v.take(some)
	}
	if len(b) == 0 && !v.behind {
		return nil
	}
	if tooLong := v.at+int64(len(b)) > 2*v.needs+inventorySlack; tooLong || v.behind {
		v.behind = true
		return v.rewrite()
	}
	err := v.add(b)
	v.behind = err != nil
	return err
}

func (v *inventory) close() error {
	if v == nil || v.file == nil {
		return nil
	}
	return v.file.Close()
}
