package storage

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/simdisk"
)

// faulty is a machine whose store is on a simulated disk, with everything that a
// disk does to it.
type faulty struct {
	machine

	disk  *simdisk.Disk
	count map[string]int // of what has happened, over all runs
}

// simulated returns the backing of a store on a simulated disk.
func simulated(d *simdisk.Disk, rng *rand.Rand) Backing {
	return Backing{
		Files: d.Files(), OpenDB: d.OpenDB,
		UUID: func() (id uuid.UUID) {
			for i := range id {
				id[i] = byte(rng.Uint32() | 1)
			}
			return id
		},
		Until: func(ready func() bool) {
			if !ready() {
				panic("there is nobody who could commit at the same time")
			}
		},
	}
}

var errBroken = errors.New("broken")

// after lets the disk stop, in one of three ways, in its n-th sync from now. It
// returns whether it has.
func (f *faulty) after(n int, how string) (happened func() bool) {
	done := false
	f.disk.BeforeSync = func(string) error {
		if n--; n != -1 {
			return nil
		}
		done = true
		switch how {
		case "crash":
			f.disk.Crash()
		case "kill":
			f.disk.Kill()
		default:
			return errBroken
		}
		return nil
	}
	return func() bool { f.disk.BeforeSync = nil; return done }
}

func drawStop(t *rapid.T) string {
	return rapid.SampledFrom([]string{"crash", "kill", "fail"}).Draw(t, "how")
}

// restart opens the store, which is interrupted now and then, and must come back
// after that.
func (f *faulty) restart(t *rapid.T) {
	for range rapid.IntRange(0, 2).Draw(t, "interruptions") {
		how := drawStop(t)
		happened := f.after(rapid.IntRange(0, 8).Draw(t, "after"), how)
		s, err := OpenOn(f.opts, f.on)
		if !happened() {
			if err != nil {
				t.Fatal(err)
			}
			if err = s.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		f.count["open interrupted"]++
		if err == nil {
			t.Fatalf("Open was stopped by a %s, and has not noticed", how)
		}
	}
	f.open(t)
}

// stop ends what goes on after a failure.
func (f *faulty) stop(t *rapid.T) {
	if rapid.Bool().Draw(t, "crash") {
		f.disk.Crash()
		return
	}
	_ = f.store.Close() // whatever it says: it has failed before
}

// uncertain commits a batch that does not succeed: it is there afterwards, or not.
func (f *faulty) uncertain(t *rapid.T) {
	before, had := f.cloneModel(t), f.store.durable.Load()
	b := f.fill(t)
	how := drawStop(t)
	happened := f.after(0, how)
	err := b.Commit()
	if !happened() || !errors.Is(err, ErrFailed) {
		t.Fatalf("Commit = %v with a %s, want ErrFailed", err, how)
	}
	if err = f.store.Keep(); !errors.Is(err, ErrFailed) {
		t.Fatalf("Keep after a failed commit = %v, want ErrFailed", err)
	}
	f.stop(t)
	f.restart(t)
	switch f.store.durable.Load() {
	case had:
		f.model = before
		f.count["commit lost"]++
	case had + 1:
		f.count["commit kept"]++
	default:
		t.Fatalf("batch %d was durable, now it is %d", had, f.store.durable.Load())
	}
}

func (f *faulty) cloneModel(t failer) map[raftyard.GroupID]*modelReplica {
	model := make(map[raftyard.GroupID]*modelReplica)
	for g, r := range f.model {
		model[g] = r.clone(t)
	}
	return model
}

func (f *faulty) keep(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "stop") > 0 {
		if err := f.store.Keep(); err != nil {
			t.Fatal(err)
		}
		return
	}
	happened := f.after(rapid.IntRange(0, 1).Draw(t, "after"), drawStop(t))
	err := f.store.Keep()
	if !happened() {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if !errors.Is(err, ErrFailed) {
		t.Fatalf("Keep = %v, want ErrFailed", err)
	}
	f.count["note interrupted"]++
	f.stop(t)
	f.restart(t)
}

// loseTail takes batches away that were noted outside of the database. Every replica
// must say so, after every further start too, and nobody who was there may look as if he had
// never been.
func (f *faulty) loseTail(t *rapid.T) {
	if f.store.durable.Load() == 0 {
		return
	}
	for f.store.note.noted != f.store.durable.Load() { // collecting is a batch too
		if err := f.store.Keep(); err != nil {
			t.Fatal(err)
		}
	}
	if rapid.Bool().Draw(t, "numbers") {
		if err := f.store.noteNumbers(); err != nil {
			t.Fatal(err)
		}
	}
	before, noted := f.store.Replicas(), maps.Clone(f.store.inventory.entries)
	most := int(min(5, f.store.durable.Load()))
	if f.disk.LoseTail(rapid.IntRange(1, most).Draw(t, "batches")) == 0 {
		t.Fatal("nothing was lost")
	}
	if f.anonymous(t) {
		f.replace(t)
		return
	}
	f.restart(t)
	if rapid.Bool().Draw(t, "again") {
		f.disk.Crash()
		f.restart(t)
	}
	f.count["tail lost"]++
	for _, r := range f.store.Replicas() {
		if r.Tombstone == nil && (!errors.Is(r.Damage, ErrDamaged) || f.store.Log(r.Group) != nil) {
			t.Fatalf("the newest batches are lost, and replica %+v does not know", r)
		}
	}
	for _, was := range before {
		f.isRemembered(t, was, noted[was.Group])
	}
	f.model = make(map[raftyard.GroupID]*modelReplica)
	for _, r := range f.store.Replicas() {
		f.rebuild(t, r)
	}
}

// anonymous reports whether the database has lost even whose it is, with which the
// store must not open.
func (f *faulty) anonymous(t *rapid.T) bool {
	db, err := f.disk.OpenDB(badgerdb.Options{Dir: f.path(logName)})
	if err != nil {
		t.Fatal(err)
	}
	at := db.Snapshot()
	_, err = at.Get([]byte(identityKey))
	at.Discard()
	if cerr := db.Close(); cerr != nil {
		t.Fatal(cerr)
	}
	if err == nil {
		return false
	}
	if _, err := OpenOn(f.opts, f.on); !errors.Is(err, ErrDamaged) {
		t.Fatalf("Open of a database that is nobody's = %v, want ErrDamaged", err)
	}
	return true
}

// isRemembered looks whether a store that has lost its newest batches knows of a replica or
// tombstone that was there, of which so much was noted.
func (f *faulty) isRemembered(t *rapid.T, was Replica, noted inventoryEntry) {
	r, ok := f.store.Replica(was.Group)
	switch {
	case !ok || r.ID != was.ID || r.Incarnation != was.Incarnation:
		t.Fatalf("the newest batches are lost, and %+v is now %v: %+v", was, ok, r)
	case noted.dead == nil || noted.id != was.ID:
	case r.Tombstone == nil || r.Tombstone.NextReplica != noted.dead.NextReplica ||
		!bytes.Equal(r.Tombstone.Data, noted.dead.Data):
		t.Fatalf("the newest batches are lost, and tombstone %+v is now %+v", was, r.Tombstone)
	default:
		f.count["tombstone lost"]++
	}
}

// replace begins with an empty disk.
func (f *faulty) replace(t *rapid.T) {
	f.disk.Wipe()
	f.model = make(map[raftyard.GroupID]*modelReplica)
	f.restart(t)
}

// rebuild destroys a damaged replica, and takes the model from the store.
func (f *faulty) rebuild(t *rapid.T, r Replica) {
	if r.Tombstone == nil {
		r.Tombstone = &Tombstone{NextReplica: r.ID + 1, Data: []byte("rebuilt")}
		b := f.store.NewBatch()
		b.Destroy(r.Group, *r.Tombstone)
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	r.Damage, r.Meta = nil, nil
	f.model[r.Group] = &modelReplica{info: r}
}

// corrupt turns a bit around in a record of a group. Its replica is damaged, or the
// record was one that is not needed any more; the others are as they were.
func (f *faulty) corrupt(t *rapid.T) {
	f.disk.Crash()
	g := drawGroup(t)
	key, err := f.disk.CorruptRecord(f.path(logName), func(key []byte) bool {
		k, ok := parseGroupKey(key)
		return ok && k.group == g
	})
	f.restart(t)
	if err != nil {
		return // it has none
	}
	r, ok := f.store.Replica(g)
	switch {
	case !ok:
		t.Fatalf("group %d is gone with its record %x", g, key)
	case r.Damage != nil:
		if !errors.Is(r.Damage, ErrDamaged) || f.store.Log(g) != nil {
			t.Fatalf("Damage = %v, Log = %v", r.Damage, f.store.Log(g))
		}
		f.count["record damaged"]++
		f.rebuild(t, r)
	default:
		f.count["dead record damaged"]++
		if m := f.model[g]; m != nil && r.Tombstone != nil && m.info.Tombstone != nil {
			// One that is put back is to be purged again.
			m.info.Tombstone.Purged = r.Tombstone.Purged
		}
	}
}

// loseRecord removes a record from the middle of a log, which must not close up. If
// entries were overwritten there may be another record that closes the gap; that one
// record is lost and no other is beyond what a store can notice.
func (f *faulty) loseRecord(t *rapid.T) {
	var all []raftyard.GroupID
	for g := range raftyard.GroupID(4) {
		if l := f.store.Log(g); l != nil && len(l.refs) >= 2 && !f.model[g].rewrote {
			all = append(all, g)
		}
	}
	if len(all) == 0 {
		return
	}
	g := rapid.SampledFrom(all).Draw(t, "group")
	l := f.store.Log(g)
	n := rapid.IntRange(0, len(l.refs)-2).Draw(t, "record")
	slot := l.refs[n].slot
	f.disk.Crash()
	_, err := f.disk.LoseRecord(f.path(logName), func(key []byte) bool {
		k, ok := parseGroupKey(key)
		return ok && k.group == g && k.kind == kindLog && k.slot == slot
	})
	if err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	r, ok := f.store.Replica(g)
	if !ok || !errors.Is(r.Damage, ErrDamaged) {
		t.Fatalf("group %d has lost a record from the middle: %+v", g, r)
	}
	f.count["gap"]++
	f.rebuild(t, r)
}

func (f *faulty) path(name string) string { return filepath.Join(f.opts.Dir, name) }

// rot damages a file, or the database as a whole. The store does not open, or it has
// lost nothing; then the node is replaced.
func (f *faulty) rot(t *rapid.T) {
	what := rapid.SampledFrom([]string{IdentityName, sequenceName, logName}).Draw(t, "what")
	f.disk.Crash()
	var err error
	if what == logName {
		err = f.disk.DamageDB(f.path(what), "a table is bad")
	} else {
		err = f.disk.CorruptFile(f.path(what))
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenOn(f.opts, f.on)
	if err == nil && what == sequenceName {
		f.store = s // one of the two places is enough
		f.count["half a note"]++
		return
	}
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
		t.Fatalf("Open with a bad %s = %v, want ErrDamaged", what, err)
	}
	f.count["file damaged"]++
	f.replace(t)
}

// TestModelOnFaultyDisk compares the store with raft's storage in memory while the
// disk crashes, fails, lies and rots. What was acknowledged is there or known to be
// damaged, and the store always starts.
func TestModelOnFaultyDisk(t *testing.T) {
	rounds := 10 // of as many checks as the flag says
	switch {
	case os.Getenv("RAFTYARD_TEST_SCALE") == "full":
		rounds = 500
	case testing.Short():
		rounds = 4
	}
	count := make(map[string]int)
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) { runFaulty(rt, count) })
	}
	for _, what := range []string{
		"open interrupted", "commit lost", "commit kept", "note interrupted", "tail lost",
		"record damaged", "gap", "file damaged", "half a note", "tombstone lost",
	} {
		if count[what] == 0 && !t.Failed() && !testing.Short() {
			t.Errorf("never happened: %s", what)
		}
	}
	t.Log(count)
}

func runFaulty(rt *rapid.T, count map[string]int) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
	f := &faulty{disk: simdisk.New(rng.Uint64), count: count}
	f.model = make(map[raftyard.GroupID]*modelReplica)
	f.opts = testOptions("/node")
	f.opts.CacheBytes = rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(rt, "cache")
	f.on = simulated(f.disk, rng)
	f.restart(rt)
	stop := func(how func(*simdisk.Disk)) func(*rapid.T) {
		return func(t *rapid.T) {
			how(f.disk)
			f.restart(t)
		}
	}
	rt.Repeat(map[string]func(*rapid.T){
		"commit": f.commit, "commit2": f.commit, "commit3": f.commit, "commit4": f.commit,
		"uncertain": f.uncertain, "uncertain2": f.uncertain,
		"keep": f.keep, "keep2": f.keep,
		"give back": func(t *rapid.T) {
			if err := f.store.giveBack(spaceLimits{group: 500, store: 1 << 20}); err != nil {
				t.Fatal(err)
			}
		},
		"reopen":      f.reopen,
		"crash":       stop((*simdisk.Disk).Crash),
		"kill":        stop((*simdisk.Disk).Kill),
		"lose tail":   f.loseTail,
		"corrupt":     f.corrupt,
		"lose record": f.loseRecord,
		"rot":         f.rot,
		"":            f.check,
	})
	if err := f.store.Close(); err != nil {
		rt.Fatal(err)
	}
}

// TestFirstStartIsInterrupted: whatever a power failure or a kill leaves of a store
// that is being made, the next start makes one.
func TestFirstStartIsInterrupted(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		f := &faulty{disk: simdisk.New(rng.Uint64)}
		f.opts, f.on = testOptions("/data/node"), simulated(f.disk, rng)
		happened := f.after(int(seed%15), []string{"crash", "kill"}[seed%2])
		_, err := OpenOn(f.opts, f.on)
		if stopped := happened(); (err == nil) == stopped {
			t.Fatalf("seed %d: Open = %v, stopped: %t", seed, err, stopped)
		}
		f.disk.Crash()
		s, err := OpenOn(f.opts, f.on)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err = s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
