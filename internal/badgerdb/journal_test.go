package badgerdb

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"
)

// loneJournal is a journal without a database, whose files do not become full.
func loneJournal(t testing.TB) *journal {
	t.Helper()
	o := Options{Dir: t.TempDir(), MemTableSize: MinMemTableSize}.withDefaults()
	j := newJournal(o.Dir, o, newRoom(o), noValues(o.Dir), 0)
	j.limit, j.size = 1<<30, 16<<10
	j.newSecret = func() uint64 { return 0x0123456789 }
	t.Cleanup(func() {
		if err := j.close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func (j *journal) path() string { return filepath.Join(j.dir, j.name) }

// TestJournalFormat compares files of the journal with what they were when the format was made.
func TestJournalFormat(t *testing.T) {
	datadriven.Walk(t, "testdata/journal", func(t *testing.T, path string) {
		j := loneJournal(t)
		var next uint64
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var err error
			switch d.Cmd {
			case "begin":
				d.ScanArgs(t, "first", &next)
				err = j.begin(next, next-1)
			case "commit":
				err = j.write(scriptTxn(t, j, next, d.Input))
				next++
			case "reuse": // as if all of it were in tables
				err = j.reuse(j.name)
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			if err != nil {
				t.Fatal(err)
			}
			return dumpJournal(t, j)
		})
	})
}

// scriptTxn is a transaction of the lines "set KEY VALUE", "zeros KEY LENGTH" and "delete KEY".
func scriptTxn(t *testing.T, j *journal, version uint64, script string) *Txn {
	t.Helper()
	txn := loneTxn(version)
	txn.mark = j.mark
	txn.buf = append(txn.buf, j.page...)
	for line := range strings.Lines(script) {
		word := strings.Fields(line)
		w := txnWrite{key: []byte(word[1])}
		switch word[0] {
		case "set":
			w.value = append([]byte{}, strings.Join(word[2:], " ")...)
		case "zeros":
			n, err := strconv.Atoi(word[2])
			if err != nil {
				t.Fatal(err)
			}
			w.value = make([]byte, n)
		}
		if err := w.to(txn); err != nil {
			t.Fatal(err)
		}
	}
	txn.finish()
	return txn
}

// dumpJournal shows the file that is written to, without lines of zeros, and what is read of it.
func dumpJournal(t *testing.T, j *journal) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(j.dir, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, name := range names {
		fmt.Fprintln(&s, filepath.Base(name))
	}
	b, err := os.ReadFile(j.path())
	if errors.Is(err, os.ErrNotExist) {
		return s.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(hex.Dump(b)) {
		if strings.Count(line, "00 ") < 16 {
			s.WriteString(line)
		}
	}
	c, err := checkWAL(j.path())
	fmt.Fprintf(&s, "transactions %d to %d, end at %d, error: %v\n", c.first, c.last, c.end, err)
	return s.String()
}

// A usedAgain is a file of the journal that holds transactions of before, and over them newer ones.
type usedAgain struct {
	j     *journal
	first uint64
	txns  [][]byte // the newer ones, as they were written
	pages [][2]int // which pages each of them was written to, from and to behind the last
	begun []byte   // the file as it was begun again
	last  []byte   // the file before the last one was written
}

// drawUsedAgain draws transactions of the lengths that matter: less than a page, and some pages.
func drawUsedAgain(t *rapid.T, dir string) *usedAgain {
	o := Options{Dir: dir, MemTableSize: MinMemTableSize}.withDefaults()
	u := &usedAgain{j: newJournal(dir, o, newRoom(o), noValues(dir), 0)}
	u.j.sync = func(*os.File) error { return nil }
	u.j.size = 256 << 10
	version := rapid.Uint64Range(1, 1<<40).Draw(t, "version")
	u.must(t, u.j.begin(version, version-1))
	for until := rapid.Int64Range(0, 120<<10).Draw(t, "before"); u.j.end < until; version++ {
		u.write(t, version)
	}
	u.must(t, u.j.close())
	u.must(t, u.j.reuse(u.j.name))
	version += rapid.SampledFrom([]uint64{0, 1, 50}).Draw(t, "gap")
	u.first, u.txns, u.pages = version, nil, nil
	u.must(t, u.j.begin(version, version-1))
	u.begun = u.read(t)
	for range rapid.IntRange(1, 5).Draw(t, "count") {
		u.last = u.read(t)
		u.write(t, version)
		version++
	}
	return u
}

func (u *usedAgain) must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (u *usedAgain) read(t *rapid.T) []byte {
	b, err := os.ReadFile(u.j.path())
	u.must(t, err)
	return b
}

func (u *usedAgain) write(t *rapid.T, version uint64) {
	txn := loneTxn(version)
	txn.mark = u.j.mark
	txn.buf = append(txn.buf, u.j.page...)
	from := len(txn.buf)
	dice := rand.New(rand.NewPCG(version, 3))
	pairs := rapid.IntRange(1, 6).Draw(t, "pairs")
	length := rapid.SampledFrom([]int{1, 30, 700, 5000, 12_000}).Draw(t, "length")
	for range pairs {
		value := make([]byte, dice.IntN(length))
		for i := range value {
			value[i] = byte(dice.Uint32())
		}
		u.must(t, txn.Set(fmt.Appendf(nil, "k%d", dice.IntN(9)), value))
	}
	txn.finish()
	begin := int(u.j.end)
	u.must(t, u.j.write(txn))
	u.txns = append(u.txns, slices.Clone(txn.buf[from:]))
	u.pages = append(u.pages,
		[2]int{begin / journalPage, (int(u.j.end) + journalPage - 1) / journalPage})
}

// check reads a file, and reports the newest transaction in it. What is there must be the
// transactions up to that, and nothing else.
func (u *usedAgain) check(t *rapid.T, b []byte) (last int, err error) {
	u.must(t, os.WriteFile(u.j.path(), b, 0o600))
	c, err := checkWAL(u.j.path())
	if c.last != 0 {
		last = int(c.last - u.first + 1)
	}
	want := slices.Concat(u.txns[:last]...)
	if got := b[walHeaderSize:c.end]; !bytes.Equal(got, want) {
		t.Fatalf("with %d transactions the file has %d bytes that count, want %d",
			last, len(got), len(want))
	}
	return last, err
}

// TestTornOverOldIsToldFromDamage: the power is cut while a transaction is written to a file that
// is used again, and any of its pages may be on the disk. It is there, or it is not; those before
// it are, and what the file held in its life before never counts.
func TestTornOverOldIsToldFromDamage(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		u := drawUsedAgain(rt, freshDir(t, dir))
		defer u.close(t)
		whole, torn := u.read(rt), slices.Clone(u.last)
		pages, all := u.pages[len(u.pages)-1], true
		for p := pages[0]; p < pages[1]; p++ {
			if rapid.Bool().Draw(rt, "written") {
				copy(torn[p*journalPage:], whole[p*journalPage:(p+1)*journalPage])
			} else {
				all = false
			}
		}
		last, err := u.check(rt, torn)
		if err != nil {
			rt.Fatalf("what a power cut leaves is taken for damage: %v", err)
		}
		if n := len(u.txns); last < n-1 || all && last != n {
			rt.Fatalf("%d transactions are there of %d; all pages: %t", last, n, all)
		}
	})
}

// TestValuesAreNoTransactions: somebody writes values that hold what looks like transactions, and
// the file is used again, so that they lie behind its end, at the very end too. They do not count,
// and are not taken for damage.
func TestValuesAreNoTransactions(t *testing.T) {
	j := loneJournal(t)
	j.size = 64 << 10
	if err := j.begin(5, 4); err != nil {
		t.Fatal(err)
	}
	write := func(version uint64, value []byte) {
		t.Helper()
		txn := loneTxn(version)
		txn.mark = j.mark
		txn.buf = append(txn.buf, j.page...)
		if err := txn.Set([]byte("k"), value); err != nil {
			t.Fatal(err)
		}
		txn.finish()
		if err := j.write(txn); err != nil {
			t.Fatal(err)
		}
	}
	// From each page on: the transaction that comes next, and one that comes later.
	forged := appendTxn(appendTxn(nil, 7, "forged", "x"), 1000, "forged", "y")
	value := make([]byte, 40<<10)
	front := walHeaderSize + len(appendRaw(nil, bitTxn, 5, "k", string(value))) - len(value) - 4
	for page := journalPage - front; page < len(value); page += journalPage {
		copy(value[page:], forged)
	}
	write(5, value)
	if err := errors.Join(j.close(), j.reuse(j.name), j.begin(6, 5)); err != nil {
		t.Fatal(err)
	}
	// One that ends where a page does.
	rest := journalPage - walHeaderSize - len(appendRaw(nil, bitTxn, 6, "k", "")) - 1
	rest -= len(appendRaw(nil, bitFinTxn, 6, finKey+"12345678", "6"))
	write(6, make([]byte, rest))
	if j.end != journalPage {
		t.Fatalf("it ends at %d, want %d", j.end, journalPage)
	}
	b, err := os.ReadFile(j.path())
	if err != nil || !bytes.HasPrefix(b[j.end:], forged) {
		t.Fatalf("nothing forged is behind it: %v", err)
	}
	c, err := checkWAL(j.path())
	if err != nil || c.last != 6 || c.end != journalPage {
		t.Errorf("it holds transactions up to %d, to %d, and %v; want up to 6", c.last, c.end, err)
	}
}

// TestLostPageIsDamage: a page of what was acknowledged is lost, so that zeros are there, or what
// was there before. When something follows that is whole, that is said.
func TestLostPageIsDamage(t *testing.T) {
	dir := t.TempDir()
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		u := drawUsedAgain(rt, freshDir(t, dir))
		defer u.close(t)
		b := u.read(rt)
		p := rapid.IntRange(0, u.pages[len(u.pages)-1][1]-1).Draw(rt, "page")
		from, to := p*journalPage, (p+1)*journalPage
		if rapid.Bool().Draw(rt, "zeros") {
			clear(b[max(from, walHeaderSize):to])
		} else {
			copy(b[from:to], u.begun[from:to])
		}
		last, err := u.check(rt, b)
		end := walHeaderSize
		for i, txn := range u.txns {
			// It begins behind the page, and is not the one after the last that is read, which
			// may never have been acknowledged.
			if end >= to && i > last && err == nil {
				rt.Fatalf("page %d is lost, and transactions from %d on are, but for that it reads"+
					" well", p, last+1)
			}
			end += len(txn)
		}
		if err != nil {
			found++
		}
	})
	if found == 0 {
		t.Error("no damage was found at all")
	}
}

func (u *usedAgain) close(t *testing.T) {
	if err := u.j.close(); err != nil {
		t.Error(err)
	}
}

// freshDir empties a directory.
func freshDir(t *testing.T, dir string) string {
	t.Helper()
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFilesAreUsedAgain: in a long run there are few files, those of before are written again, and
// an orderly end leaves none.
func TestFilesAreUsedAgain(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	value := string(make([]byte, 50<<10))
	most := 0
	var first os.FileInfo
	again := false
	for i := range 400 { // about 20 files
		put(t, db, fmt.Sprint("key-", i%40), value)
		files, err := filepath.Glob(filepath.Join(o.Dir, "*.[jf]*"))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(files))
		info, err := os.Stat(db.journal.path())
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = info
		}
		again = again || db.journal.id > 1 && os.SameFile(first, info)
		settle(t, db)
	}
	if most > 3+maxSpares+1 || db.journal.id < 15 || !again {
		t.Errorf("%d files at once, %d in all, the first used again: %t",
			most, db.journal.id, again)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	checkNoJournal(t, o)
}

func checkNoJournal(t *testing.T, o Options) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(o.Dir, "*.[jf]*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q is left: %v", left, err)
	}
}

// TestIteratorDoesNotHoldTheJournal: Badger keeps the logs of the memtables that an iterator began
// with, but what is in them is in tables, and the journal need not keep it.
func TestIteratorDoesNotHoldTheJournal(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	value := string(make([]byte, 100<<10))
	var end []func()
	var logs []string
	for i := range 100 {
		put(t, db, "k", value)
		if i > 25 { // of the first logs there are some who keep them
			continue
		}
		logs = append(logs, filepath.Join(o.Dir, walName(db.wal.active())))
		snap := db.Snapshot()
		it := snap.NewIterator(badger.DefaultIteratorOptions)
		end = append(end, it.Close, snap.Discard)
	}
	settle(t, db)
	if slices.ContainsFunc(logs, isGone) {
		t.Error("an iterator keeps no log: the test tests nothing")
	}
	for _, fn := range end {
		fn()
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	checkNoJournal(t, o)
}

// TestCloseForWantOfSpaceLeavesTheJournal: a database that could not be closed in an orderly way
// has everything in its journal.
func TestCloseForWantOfSpaceLeavesTheJournal(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	put(t, db, "k", "v")
	db.room.mu.Lock()
	db.room.free = func(string) (int64, error) { return 0, nil }
	db.room.mu.Unlock()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	left := copied(t, o)
	// This process lets go of what it has left, for other tests.
	if err := db.DB.Close(); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, left)
	if got := get(t, db, "k"); got != "v" {
		t.Errorf("k = %s, want v", got)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	checkNoJournal(t, left)
}

// TestRemovedFromTheOldest: Close is interrupted while it removes the journal. What is left is its
// end: older files without it would bring back what was deleted since.
func TestRemovedFromTheOldest(t *testing.T) {
	j := loneJournal(t)
	for i := range uint64(4) {
		if err := j.begin(i+1, i); err != nil {
			t.Fatal(err)
		}
	}
	// A directory with something in it is not removed, as if there were no time for it.
	path := filepath.Join(j.dir, j.full[1].name)
	err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.remove(); err == nil {
		t.Error("remove has removed a directory")
	}
	if got, want := journalNames(t, j), []string{
		"00002.jnl", "00003.jnl", "00004.jnl",
	}; !slices.Equal(got, want) {
		t.Errorf("%q are left, want %q", got, want)
	}
}

func journalNames(t *testing.T, j *journal) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(j.dir, "*"+journalExt))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// TestNothingIsLetGoOfAfterAFailure: a file that could not be let go of stays, and so do those
// behind it; the next commit fails.
func TestNothingIsLetGoOfAfterAFailure(t *testing.T) {
	j := loneJournal(t)
	for i := range uint64(4) {
		if err := j.begin(i+1, i); err != nil {
			t.Fatal(err)
		}
		j.moved(i, i+1) // into logs that are gone
	}
	j.moved(3, 9)
	// In the place of the second spare file there is something else.
	blocked := filepath.Join(j.dir, "00002"+spareExt)
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		j.retire()
		if got, want := journalNames(t, j), []string{
			"00002.jnl", "00003.jnl", "00004.jnl",
		}; !slices.Equal(got, want) || len(j.full) != 2 {
			t.Errorf("%q are left, and %v to be let go of, want %q", got, j.full, want)
		}
		if err := os.RemoveAll(blocked); err != nil { // that does not help any more
			t.Fatal(err)
		}
	}
	if err := j.prepare(4); err == nil {
		t.Error("the next commit does not fail")
	}
}

// TestJournalFitsIntoMemtables: whatever a file of the journal holds fits into a memtable as large
// as before, when it is replayed.
func TestJournalFitsIntoMemtables(t *testing.T) {
	for _, length := range []int{0, 1, 20, 100, 50_000} {
		o := killed(t, testOptions(t), func(db *DB) {
			for i := 0; db.journal.id < 2; {
				err := db.Commit(func(txn *Txn) error {
					for range min(max(140_000/(length+20), 1), int(db.MaxTxnCount())) {
						i++
						err := txn.Set([]byte{'0' + byte(i%50), byte(i / 50)}, make([]byte, length))
						if err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		for _, path := range glob(t, o, "*"+journalExt) {
			c, err := checkWAL(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, larger := o.withDefaults().toReplay(c.memory); larger {
				t.Errorf("values of %d bytes: %s takes %d bytes, more than a memtable of %d has",
					length, filepath.Base(path), c.memory, o.MemTableSize)
			}
			if c.end > walSize(o.MemTableSize) {
				t.Errorf("values of %d bytes: %s has %d bytes, and blocks for %d",
					length, filepath.Base(path), c.end, walSize(o.MemTableSize))
			}
		}
	}
}

// TestNoSpaceForTheNextFile: the hold begins while there is still room in the file that is written
// to, and commits go on when the next one has got its blocks.
func TestNoSpaceForTheNextFile(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	if db.wal.size == 0 {
		t.Skip("the file system of the test cannot allocate ahead")
	}
	// Something in the place of the next file: it gets no blocks.
	next := filepath.Join(o.Dir, "00002-new"+spareExt)
	if err := os.WriteFile(next, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	value := string(make([]byte, 50<<10))
	n := 0
	for ; !db.Held(); n++ {
		put(t, db, "k", value)
	}
	if used := max(db.journal.end, db.journal.memory); used >= db.journal.limit*3/4 {
		t.Errorf("held with %d bytes in a file of %d", used, db.journal.limit)
	}
	done := make(chan error, 1)
	go func() {
		done <- db.Commit(func(txn *Txn) error { return txn.Set([]byte("held"), []byte("x")) })
	}()
	for d := newDeadline(t); db.commitMu.TryLock(); d.wait("the commit to begin") {
		db.commitMu.Unlock()
	}
	select {
	case err := <-done:
		t.Errorf("Commit = %v, want it to wait", err)
	default:
	}
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := blocks(t, next); got < walSize(o.MemTableSize) {
		t.Errorf("the next file has %d bytes of blocks, want %d", got, walSize(o.MemTableSize))
	}
	for db.journal.id < 3 {
		put(t, db, "k", value)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	checkNoJournal(t, o)
}
