package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/vfs"
)

// wipeGroup removes all keys of a group, as if they had never been written.
func wipeGroup(g groupID) func(txn) error {
	return func(txn txn) error {
		var keys [][]byte
		err := txn.Scan(func(key, _ []byte, _ uint64) error {
			if k, ok := parseGroupKey(key); ok && k.group == g {
				keys = append(keys, slices.Clone(key))
			}
			return nil
		})
		for _, key := range keys {
			err = errors.Join(err, txn.Delete(key))
		}
		return err
	}
}

// damageOf returns what is wrong with a replica, or nothing.
func damageOf(s *Store, g groupID) string {
	if r, _ := s.Replica(g); r.Damage != nil {
		return r.Damage.Error()
	}
	return ""
}

// TestGroupIsHidden: a group is gone with all its keys, and the store is otherwise whole.
// It does not look new: its replica is there, and damaged.
func TestGroupIsHidden(t *testing.T) {
	o := writeVictim(t)
	s := mustOpen(t, o) // of the newest batch nothing may be lost
	mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(12, 1, 2)}) })
	mustClose(t, s)
	editLog(t, o, wipeGroup(2))
	for range 2 {
		s = mustOpen(t, o)
		r, ok := s.Replica(2)
		if !ok || r.ID != 1 || r.Incarnation != testIncarnation || s.Log(2) != nil ||
			!strings.Contains(damageOf(s, 2), "was durable") {
			t.Errorf("what is there of it is %+v, %v", r, ok)
		}
		for _, g := range []groupID{0, 1} {
			if text := damageOf(s, g); text != "" {
				t.Errorf("group %d is damaged as well: %s", g, text)
			}
		}
		mustClose(t, s)
		// What it has found it has noted, and needs no inventory for it any more.
		if err := os.Remove(filepath.Join(o.Dir, inventoryName)); err != nil {
			t.Fatal(err)
		}
	}
	s = mustOpen(t, o)
	rebuild(t, s, 2)
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if text := damageOf(s, 2); text != "" {
		t.Errorf("what took its place is damaged: %s", text)
	}
}

// TestNewestRecordIsLost: one record is missing, of a batch that is not the newest.
func TestNewestRecordIsLost(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		for g := range groupID(2) {
			b.Create(testReplica(g+1), Update{HardState: hardStateOf(1, 1, 0)})
			b.Update(g+1, Update{Entries: entriesOf(1, 3, 1)})
		}
	})
	mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(4, 3, 1)}) })
	mustCommit(t, s, func(b *Batch) { b.Update(2, Update{Entries: entriesOf(4, 3, 1)}) })
	if err := s.noteNumbers(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	editLog(t, o, remove(appendLogKey(nil, 1, 1)))
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if text := damageOf(s, 1); !strings.Contains(text, "was durable") {
		t.Errorf("entries 4 to 6 of group 1 are lost, and its damage is %q", text)
	}
	if text := damageOf(s, 2); text != "" {
		t.Errorf("nothing of group 2 is lost: %s", text)
	}
}

// TestTombstoneIsHidden: a replica came after another one that was destroyed, and only
// the tombstone is there.
func TestTombstoneIsHidden(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	later := testReplica(1)
	later.ID = 5
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
	tomb, err := readKey(s, appendKey(nil, 1, kindReplica))
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, func(b *Batch) { b.Create(later, Update{Meta: []byte("m")}) })
	mustClose(t, s)
	editLog(t, o, func(txn txn) error {
		if err := wipeGroup(1)(txn); err != nil {
			return err
		}
		return txn.Set(appendKey(nil, 1, kindReplica), tomb)
	})
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, _ := s.Replica(1); r.ID != 5 || r.Damage == nil || r.Tombstone != nil {
		t.Errorf("it is %+v, want a damaged replica 5", r)
	}
}

// TestForgottenTombstoneIsBack: the group was forgotten, and another incarnation of it has a
// replica with few records. All of that is lost, so that the tombstone of the former one,
// which had many records, is there again. It must not hide that a replica is missing, which
// would be made once more under its id; also if the store was started again between the two,
// and if it had an older inventory then, or none.
func TestForgottenTombstoneIsBack(t *testing.T) {
	for name, between := range map[string]func(path string) error{
		"as it is": func(string) error { return nil },
		"missing":  os.Remove,
		"format 2": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, oldStoreFrame(decodeInventory(b), 2), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t.TempDir())
			tomb := forgetMany(t, o)
			if err := between(filepath.Join(o.Dir, inventoryName)); err != nil {
				t.Fatal(err)
			}
			testTombstoneIsBack(t, o, tomb)
		})
	}
}

// forgetMany makes a store with a group that had many records and is forgotten, and returns
// its tombstone.
func forgetMany(t *testing.T, o Options) (tomb []byte) {
	t.Helper()
	s := mustOpen(t, o)
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	for i := range uint64(20) {
		mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(i+1, 1, 1)}) })
	}
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
	mustCommit(t, s, func(b *Batch) { b.MarkPurged(1) })
	collectAll(t, s)
	tomb, err := readKey(s, appendKey(nil, 1, kindReplica))
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, func(b *Batch) { b.Forget(1) })
	return tomb
}

func testTombstoneIsBack(t *testing.T, o Options, tomb []byte) {
	t.Helper()
	s := mustOpen(t, o)
	later := testReplica(1)
	later.ID, later.Incarnation = 3, raftyard.Incarnation{7}
	mustCommit(t, s, func(b *Batch) { b.Create(later, Update{}) })
	mustClose(t, s)
	lose := func() {
		editLog(t, o, func(txn txn) error {
			return errors.Join(wipeGroup(1)(txn), txn.Set(appendKey(nil, 1, kindReplica), tomb))
		})
	}
	lose()
	for range 2 { // what it has found it has noted
		s = mustOpen(t, o)
		r, _ := s.Replica(1)
		if r.ID != 3 || r.Incarnation != later.Incarnation || r.Damage == nil {
			t.Errorf("it is %+v, want replica 3 of the later incarnation, damaged", r)
		}
		mustClose(t, s)
	}
	s = mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 4}) })
	mustClose(t, s)
	lose()
	s = mustOpen(t, o)
	defer mustClose(t, s)
	r, _ := s.Replica(1)
	if r.ID != 3 || r.Tombstone == nil || r.Tombstone.NextReplica != 4 {
		t.Errorf("it is %+v, want the tombstone of replica 3", r)
	}
}

// TestForgetOnAFullDisk: as long as the inventory cannot be written, a group is not
// forgotten, however often that is tried; after that the file has nothing of it but the floor.
func TestForgetOnAFullDisk(t *testing.T) {
	s, disk := openOnFullDisk(t)
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
	mustCommit(t, s, func(b *Batch) { b.MarkPurged(1) })
	last := s.replicas[1].seq
	disk.full = true
	for range 2 {
		b := s.NewBatch()
		b.Forget(1)
		if err := b.Commit(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Forget on a full disk = %v", err)
		}
		if _, ok := s.Replica(1); !ok {
			t.Fatal("it is forgotten, and the inventory has it still")
		}
	}
	disk.full = false
	mustCommit(t, s, func(b *Batch) { b.Forget(1) })
	file, err := os.ReadFile(s.inventory.path)
	if err != nil {
		t.Fatal(err)
	}
	if in := decodeInventory(file); len(in.entries) != 0 || in.floor != last {
		t.Errorf("the file has %v and floor %d, want %d", in.entries, in.floor, last)
	}
}

func readKey(s *Store, key []byte) ([]byte, error) {
	at := s.db.Snapshot()
	defer at.Discard()
	value, err := at.Get(key)
	return slices.Clone(value), err
}

// TestInventoryOfNoUse: whatever becomes of the file alone, nobody is called damaged and it
// is there again afterwards.
func TestInventoryOfNoUse(t *testing.T) {
	edit := func(fn func([]byte) []byte) func(string) error {
		return func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, fn(b), 0o600)
		}
	}
	for name, spoil := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   edit(func([]byte) []byte { return nil }),
		"half":    edit(func(b []byte) []byte { return b[:len(b)/2] }),
		"torn":    edit(func(b []byte) []byte { return b[:len(b)-1] }),
		"more":    edit(func(b []byte) []byte { return append(b, 1, 2, 3, 4, 5, 6, 7, 8, 9) }),
		"first":   edit(flip(0)), "middle": edit(flip(60)), "last": edit(flip(-1)),
		"older": func(path string) error { // of a program that does not know of it since
			id := Identity{}
			return edit(func(b []byte) []byte {
				in := decodeInventory(b)
				id.Store = in.store
				in.entries[77] = inventoryEntry{incarnation: testIncarnation, id: 1, seq: 5}
				return encodeInventory(id.Store, in.boot-1, in.floor, in.entries)
			})(path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := writeVictim(t)
			path := filepath.Join(o.Dir, inventoryName)
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, o)
			for _, r := range s.Replicas() {
				if r.Damage != nil {
					t.Errorf("group %d: %v", r.Group, r.Damage)
				}
			}
			mustClose(t, s)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if in := decodeInventory(b); len(in.entries) != 3 || in.size != len(b) {
				t.Errorf("it has %d replicas in %d of %d bytes, want 3",
					len(in.entries), in.size, len(b))
			}
		})
	}
}

func TestInventoryOfAnotherStore(t *testing.T) {
	o := writeVictim(t)
	path := filepath.Join(o.Dir, inventoryName)
	other := encodeInventory(uuid.New(), 9, 0, nil)
	if err := os.WriteFile(path, other, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(o)
	if err == nil {
		mustClose(t, s)
	}
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "mixed up") {
		t.Errorf("Open = %v, want that directories were mixed up", err)
	}
}

// TestForgottenIsNotMissed: a group of which nothing is left is not missed, and neither
// is what comes after it.
func TestForgottenIsNotMissed(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	forget := func() {
		mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
		for i := range 20 {
			mustCommit(t, s, func(b *Batch) {
				b.Update(1, Update{HardState: hardStateOf(uint64(i+1), 1, 0)})
			})
		}
		if err := s.noteNumbers(); err != nil {
			t.Fatal(err)
		}
		mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
		mustCommit(t, s, func(b *Batch) { b.MarkPurged(1) })
		mustCommit(t, s, func(b *Batch) { b.Forget(1) })
	}
	forget()
	s = killAndOpen(t, s)
	if r, ok := s.Replica(1); ok {
		t.Errorf("there is %+v", r)
	}
	forget()
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	s = killAndOpen(t, s)
	defer mustClose(t, s)
	if r, ok := s.Replica(1); !ok || r.Damage != nil {
		t.Errorf("there is %v: %+v", ok, r)
	}
}

// killAndOpen opens a copy of the directory of a store, as a kill would leave it.
func killAndOpen(t *testing.T, s *Store) *Store {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "killed")
	if err := copyStore(s.opts.Dir, copied); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	o := s.opts
	o.Dir = copied
	return mustOpen(t, o)
}

// TestCreationIsNotedAtOnce: a replica is in the inventory when its creation returns.
func TestCreationIsNotedAtOnce(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(7), Update{}) })
	b, err := os.ReadFile(filepath.Join(o.Dir, inventoryName))
	if err != nil {
		t.Fatal(err)
	}
	if e := decodeInventory(b).entries[7]; e.id != 1 || e.seq == 0 {
		t.Errorf("the file has %+v", e)
	}
}

// TestInventoryStaysShort: however much changes, the file is written anew before it is
// long.
func TestInventoryStaysShort(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	defer mustClose(t, s)
	s.keeper.stop()
	mustCommit(t, s, func(b *Batch) {
		for g := range groupID(40) {
			b.Create(testReplica(g), Update{})
		}
	})
	longest := int64(0)
	for range 3000 {
		for g := range groupID(40) {
			s.replicas[g].seq++
			s.inventory.dirty[g] = true
		}
		if err := s.noteNumbers(); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, s.inventory.at)
	}
	if most := int64(inventorySlack + 2*40*inventoryCharge); longest > most {
		t.Errorf("the file was %d bytes long, want %d at most", longest, most)
	}
}

// fullDisk refuses to write to the inventory while it is full.
type fullDisk struct {
	vfs.FS

	full bool
}

func (d *fullDisk) Create(path string) (vfs.File, error) {
	f, err := d.FS.Create(path)
	if !strings.Contains(path, inventoryName) {
		return f, err
	}
	return &fullFile{f, d}, err
}

// openOnFullDisk opens a store whose housekeeping the test does; its disk is not full yet.
func openOnFullDisk(t *testing.T) (*Store, *fullDisk) {
	t.Helper()
	disk := &fullDisk{FS: vfs.OS{}}
	on := Real()
	on.Files = disk
	s, err := OpenOn(testOptions(t.TempDir()), on)
	if err != nil {
		t.Fatal(err)
	}
	s.keeper.stop()
	return s, disk
}

type fullFile struct {
	vfs.File

	d *fullDisk
}

func (f *fullFile) WriteAt(b []byte, at int64) (int, error) {
	if f.d.full {
		return 0, &fs.PathError{Op: "write", Path: inventoryName, Err: syscall.ENOSPC}
	}
	return f.File.WriteAt(b, at)
}

// TestInventoryOnAFullDisk: what cannot be noted is noted later, and until then nothing
// else fails.
func TestInventoryOnAFullDisk(t *testing.T) {
	s, disk := openOnFullDisk(t)
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	disk.full = true
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(2), Update{}) })
	for i := range 3 {
		mustCommit(t, s, func(b *Batch) {
			b.Update(1, Update{HardState: hardStateOf(uint64(i+1), 1, 0)})
		})
		if err := s.noteNumbers(); err != nil {
			t.Fatal(err)
		}
	}
	disk.full = false
	if err := s.noteNumbers(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.inventory.path)
	if err != nil {
		t.Fatal(err)
	}
	in := decodeInventory(b)
	for _, g := range []groupID{1, 2} {
		if got, want := in.entries[g].seq, s.replicas[g].seq; got != want {
			t.Errorf("group %d: the file has number %d, the store %d", g, got, want)
		}
	}
}

// TestInventoryFrames: many replicas take several frames, and come back.
func TestInventoryFrames(t *testing.T) {
	entries := make(map[groupID]inventoryEntry)
	for g := range groupID(2*maxFrameItems + 5) {
		entries[^g] = inventoryEntry{
			incarnation: raftyard.Incarnation{byte(g)}, id: ^raftyard.ReplicaID(g), seq: uint64(g),
		}
	}
	b := encodeInventory(uuid.UUID{1}, 3, 4, entries)
	in := decodeInventory(b)
	if in.size != len(b) || in.boot != 3 || in.floor != 4 || len(in.entries) != len(entries) {
		t.Fatalf("%d of %d bytes, boot %d, floor %d, %d entries",
			in.size, len(b), in.boot, in.floor, len(in.entries))
	}
	for g, e := range entries {
		if in.entries[g] != e {
			t.Fatal(fmt.Sprint(g, in.entries[g], e))
		}
	}
}

func FuzzInventory(f *testing.F) {
	f.Add(encodeInventory(uuid.UUID{1}, 3, 4, map[groupID]inventoryEntry{1: {id: 2, seq: 3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if in := decodeInventory(b); in.size > len(b) {
			t.Errorf("%d of %d bytes", in.size, len(b))
		}
	})
}

// TestInspectionOfAHiddenGroup: who only looks sees the same, and that a file which is
// missing matters to nobody.
func TestInspectionOfAHiddenGroup(t *testing.T) {
	o := writeVictim(t)
	editLog(t, o, wipeGroup(1))
	look := func() []Finding {
		t.Helper()
		i, err := Inspect(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if err = i.Close(); err != nil {
			t.Fatal(err)
		}
		return i.Findings
	}
	found := look()
	if len(found) != 1 || found[0].Scope != ScopeReplica || found[0].Group != 1 ||
		!strings.Contains(found[0].What, "was durable") {
		t.Errorf("found %+v, want that group 1 has lost something", found)
	}
	if err := os.Remove(filepath.Join(o.Dir, inventoryName)); err != nil {
		t.Fatal(err)
	}
	found = look()
	if len(found) != 1 || found[0].Scope != ScopeNothing || found[0].Path != inventoryName {
		t.Errorf("found %+v, want that the inventory is missing", found)
	}
}

// nameless cannot make names durable for once.
type nameless struct {
	vfs.FS

	err error
}

func (n *nameless) SyncDir(dir string) error {
	if err := n.err; err != nil {
		n.err = nil
		return err
	}
	return n.FS.SyncDir(dir)
}

// TestInventoryWithoutAName: the file was replaced, and that could not be made durable. What
// is noted next must be in the file that has the name, and not without it.
func TestInventoryWithoutAName(t *testing.T) {
	files := &nameless{FS: vfs.OS{}}
	v := &inventory{
		backing: Backing{Files: files}, path: filepath.Join(t.TempDir(), inventoryName),
		store: uuid.New(), boot: 1,
	}
	if err := v.begin(nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.close(); err != nil {
			t.Error(err)
		}
	}()
	files.err = syscall.EMFILE
	if err := v.rewrite(); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("rewrite = %v, want EMFILE", err)
	}
	st := &stage{
		group: 7, created: true, live: true, seq: 1,
		info: Replica{Group: 7, ID: 3, Incarnation: testIncarnation},
	}
	files.err = syscall.EMFILE
	if err := v.created([]*stage{st}); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("created = %v, want EMFILE while the name may not be durable", err)
	}
	if err := v.created([]*stage{st}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(v.path)
	if err != nil {
		t.Fatal(err)
	}
	if got := decodeInventory(b).entries[7]; got.id != 3 {
		t.Errorf("the file that has the name has %+v of the replica", got)
	}
}
