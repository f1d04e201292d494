package kv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// Many groups apply at a time, and share transactions.
func TestManyGroups(t *testing.T) {
	const groups, rounds = 64, 20
	dir := t.TempDir()
	s := openTestStore(t, dir)
	var wg sync.WaitGroup
	for g := range raftyard.GroupID(groups) {
		m := openMachine(t, s, testReplica(g))
		wg.Go(func() {
			for i := range uint64(rounds) {
				batch := []group.Command{
					{Index: i + 1, Data: put(fmt.Sprint("key", i), fmt.Sprint(g, i))},
					{Index: i + 1, Offset: 1, Data: put("last", fmt.Sprint(i))},
				}
				if _, err := m.Apply(batch); err != nil {
					t.Errorf("group %v: %v", g, err)
					return
				}
			}
		})
	}
	wg.Wait()
	flushAll(t, s)
	st := s.Stats()
	if st.WriteSets < groups || st.Transactions > st.WriteSets/2 || st.Machines != groups {
		t.Errorf("%+v: transactions are not shared", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = openTestStore(t, dir)
	replicas, err := s.Replicas()
	if err != nil || len(replicas) != groups {
		t.Fatalf("%d replicas, %v; want %d", len(replicas), err, groups)
	}
	for _, r := range replicas {
		m := openMachine(t, s, r)
		got := dump(t, m)
		if len(got) != rounds+1 || got["key7"] != fmt.Sprint(r.Group, 7) ||
			got["last"] != fmt.Sprint(rounds-1) {
			t.Errorf("%v holds %v", r, got)
		}
		verify(t, m)
	}
}

func TestOptions(t *testing.T) {
	err := StoreOptions{
		MemTableSize: 1, BlockCacheBytes: -1, IndexCacheBytes: -1, MaxSnapshots: -1,
	}.Validate()
	for _, field := range []string{
		"Dir", "MemTableSize", "BlockCacheBytes", "IndexCacheBytes", "MaxSnapshots",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Validate = %v, want %s in it", err, field)
		}
	}
	if _, err := OpenStore(StoreOptions{}); err == nil {
		t.Error("OpenStore without a directory succeeded")
	}
}

func TestOpenTwice(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	factory := s.Factory()
	env := group.Env{Group: 1, Replica: 1}
	m, err := factory(env)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = factory(env); !errors.Is(err, ErrOpen) {
		t.Errorf("opened twice: %v, want ErrOpen", err)
	}
	if err = s.Destroy(Replica{Group: 1, ID: 1}); !errors.Is(err, ErrOpen) {
		t.Errorf("destroyed while open: %v, want ErrOpen", err)
	}
	if err = m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err = factory(env); err != nil {
		t.Errorf("opened again: %v", err)
	}
}

func TestDestroy(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, dir)
	m := openMachine(t, s, testReplica(1))
	for i := range uint64(10) {
		batch := make([]group.Command, 0, 500)
		for j := range 500 {
			cmd := put(fmt.Sprint(i, "-", j), "v")
			batch = append(batch, group.Command{Index: i + 1, Offset: j, Data: cmd})
		}
		if _, err := m.Apply(batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Destroy(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get([]byte("0-0")); !errors.Is(err, ErrClosed) {
		t.Errorf("Get of a destroyed machine: %v, want ErrClosed", err)
	}
	if err := m.Destroy(); !errors.Is(err, ErrClosed) {
		t.Errorf("Destroy of a destroyed machine: %v, want ErrClosed", err)
	}
	// The same replica again would be a mistake of its owner, but sees nothing.
	m = openMachine(t, s, testReplica(1))
	if got := dump(t, m); len(got) != 0 {
		t.Errorf("%d items came back", len(got))
	}
	waitCleaned(t, s)
	if n := s.Stats().Dropped; n != 5000 {
		t.Errorf("%d items were deleted, want 5000", n)
	}
	checkNothingElse(t, s, 0)
	if err := m.Destroy(); err != nil {
		t.Errorf("Destroy of an empty machine: %v", err)
	}
	if err := s.Destroy(testReplica(9)); err != nil {
		t.Errorf("Destroy of an unknown replica: %v", err)
	}
}

// Generation numbers are never given out twice, also when all that had them are
// gone.
func TestGenerationsAreNeverReused(t *testing.T) {
	dir := t.TempDir()
	var last generation
	for range 3 {
		s := openTestStore(t, dir)
		m := openMachine(t, s, testReplica(1))
		apply(t, m, 1, put("a", "1"))
		if m.state.generation <= last {
			t.Errorf("generation %d after %d", m.state.generation, last)
		}
		last = m.state.generation
		if err := m.Destroy(); err != nil {
			t.Fatal(err)
		}
		waitCleaned(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTooManySnapshots(t *testing.T) {
	s, err := OpenStore(StoreOptions{Dir: filepath.Join(t.TempDir(), "state"), MaxSnapshots: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := openMachine(t, s, testReplica(1))
	snap, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = m.Snapshot(); !errors.Is(err, ErrTooManySnapshots) {
		t.Errorf("second snapshot: %v, want ErrTooManySnapshots", err)
	}
	if err = snap.Close(); err != nil {
		t.Fatal(err)
	}
	if snap, err = m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	// The store closes with a snapshot open.
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := snap.WriteTo(io.Discard); !errors.Is(err, ErrClosed) {
		t.Errorf("WriteTo after the store was closed: %v, want ErrClosed", err)
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
}

// closingWriter begins to close a store when it is written to.
type closingWriter struct {
	store *Store
	once  sync.Once
	done  chan error
}

func (w *closingWriter) Write(b []byte) (int, error) {
	w.once.Do(func() {
		go func() { w.done <- w.store.Close() }()
		for !w.store.gate.closing.Load() {
			runtime.Gosched()
		}
	})
	return len(b), nil
}

func TestCloseEndsSnapshots(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	for i := range uint64(3) {
		apply(t, m, i+1, encodePut(fmt.Append(nil, i), make([]byte, 200<<10), Cond{}))
	}
	snap, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	w := &closingWriter{store: s, done: make(chan error, 1)}
	if _, err := snap.WriteTo(w); !errors.Is(err, ErrClosed) {
		t.Errorf("WriteTo: %v, want ErrClosed", err)
	}
	if err := <-w.done; err != nil {
		t.Errorf("Close: %v", err)
	}
	for name, err := range calls(m) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s on a closed store: %v, want ErrClosed", name, err)
		}
	}
	if _, err := s.Open(testReplica(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("Open on a closed store: %v, want ErrClosed", err)
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
}

// calls calls everything that uses the database.
func calls(m *Machine) map[string]error {
	errs := make(map[string]error)
	_, errs["Apply"] = m.Apply([]group.Command{{Index: 100, Data: put("x", "y")}})
	_, errs["Query"] = m.Query(encodeGetQuery([]byte("x")))
	_, errs["Get"] = m.Get([]byte("x"))
	_, errs["List"] = m.List(ListRequest{})
	_, errs["Snapshot"] = m.Snapshot()
	errs["Restore"] = m.Restore(bytes.NewReader(nil))
	errs["Verify"] = m.Verify()
	_, errs["Applied"] = m.Applied()
	if errs["Damage"] = m.Damage(); m.store.gate.closing.Load() {
		delete(errs, "Damage") // that the store is closed is no damage
	}
	errs["Destroy"] = m.Destroy()
	return errs
}

// After a failed write every call says so, and what was read before is not
// served any more.
func TestFailureIsSticky(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, dir)
	m := openMachine(t, s, testReplica(1))
	apply(t, m, 1, put("x", "1"))
	flushAll(t, s)
	hash := hashOf(t, m)

	// A set that no transaction can take stands in for a disk that fails.
	var tooLarge writeSet
	for i := range s.db.MaxTxnCount() + 1 {
		tooLarge.set(fmt.Append(nil, "Z", i), []byte{})
	}
	err := s.committer.commit(tooLarge)
	if !errors.Is(err, ErrFailed) || !errors.Is(err, badger.ErrTxnTooBig) {
		t.Fatalf("commit: %v, want ErrFailed with its cause", err)
	}
	for name, err := range calls(m) {
		if !errors.Is(err, ErrFailed) {
			t.Errorf("%s on a failed store: %v, want ErrFailed", name, err)
		}
	}
	if err = s.Err(); !errors.Is(err, ErrFailed) {
		t.Errorf("Err: %v, want ErrFailed", err)
	}
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if m = openMachine(t, openTestStore(t, dir), testReplica(1)); !bytes.Equal(hashOf(t, m), hash) {
		t.Error("the state is another after a restart")
	}
}

// A restore that fails leaves the state, and nothing of the new one.
func TestFailedRestore(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	smallWriteSets(s)
	source, m := openMachine(t, s, testReplica(1)), openMachine(t, s, testReplica(2))
	for i := range uint64(20) {
		apply(t, source, i+1, put(fmt.Sprint("new", i), "v"))
	}
	apply(t, m, 1, put("old", "v"))
	stream, hash := snapshotBytes(t, source), hashOf(t, m)
	broken := errors.New("connection lost")

	for name, r := range map[string]io.Reader{
		"reader fails":  io.MultiReader(bytes.NewReader(stream[:250]), errorReader{broken}),
		"trailing byte": io.MultiReader(bytes.NewReader(stream), strings.NewReader("x")),
		"fails at end":  io.MultiReader(bytes.NewReader(stream), errorReader{broken}),
		"empty":         strings.NewReader(""),
		"another kind":  strings.NewReader(strings.Repeat("not a snapshot ", 100)),
	} {
		err := m.Restore(r)
		if !errors.Is(err, ErrSnapshotFormat) && !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(hashOf(t, m), hash) {
			t.Errorf("%s: the state has changed", name)
		}
	}
	verify(t, m)
	checkNothingElse(t, s, 21)
	if err := m.Restore(bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(hashOf(t, m), hashOf(t, source)) {
		t.Error("hashes differ after a restore")
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// TestLargeRestore restores and writes a large state. What Restore has read and
// not yet written must stay within a write set and its buffers, whatever the size
// of the state. (The heap as a whole says little: it is mostly Badger's memtables
// and table builders.)
func TestLargeRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 50 MB")
	}
	const items, valueBytes = 200_000, 250
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))

	in, out := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = out.CloseWithError(writeLargeStream(out, items, valueBytes))
	})
	lag := &lagWriter{written: func() uint64 { return s.Stats().Bytes }}
	err := m.Restore(io.TeeReader(in, lag))
	_ = in.Close()
	wg.Wait()
	if err != nil {
		t.Fatalf("Restore: %v", err)
	}
	if m.state.content.count != items {
		t.Errorf("%d items, want %d", m.state.content.count, items)
	}
	if limit := s.writeSetBytes + 4*blockBytes; lag.max > limit {
		t.Errorf("Restore held %d bytes, want at most %d", lag.max, limit)
	}
	snap, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	chunks := &chunkWriter{}
	if n, err := snap.WriteTo(chunks); err != nil || n != chunks.n {
		t.Errorf("WriteTo = %d, %v; it wrote %d", n, err, chunks.n)
	}
	if chunks.max > 2*blockBytes {
		t.Errorf("WriteTo held %d bytes, want at most %d", chunks.max, 2*blockBytes)
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
}

// lagWriter notes how far what was written to a store lags behind what goes
// through it.
type lagWriter struct {
	written func() uint64
	n, max  int64
}

func (l *lagWriter) Write(b []byte) (int, error) {
	l.n += int64(len(b))
	l.max = max(l.max, l.n-int64(l.written()))
	return len(b), nil
}

// chunkWriter notes the longest write.
type chunkWriter struct{ n, max int64 }

func (c *chunkWriter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	c.max = max(c.max, int64(len(b)))
	return len(b), nil
}

// writeLargeStream writes a snapshot of many items, once to count and once to w.
func writeLargeStream(w io.Writer, items, valueBytes int) error {
	value := make([]byte, valueBytes)
	each := func(fn func(key []byte, it item) error) error {
		rng := rand.NewChaCha8([32]byte{}) // values that cannot be compressed
		for i := range items {
			_, _ = rng.Read(value)
			key := fmt.Appendf(nil, "key%08d", i)
			if err := fn(key, item{create: 1, mod: 1, value: value}); err != nil {
				return err
			}
		}
		return nil
	}
	var c content
	err := each(func(key []byte, it item) error {
		c = c.with(key, it)
		return nil
	})
	if err != nil {
		return err
	}
	sw := newStreamWriter(w)
	sw.header(snapshotHeader{group: 1, position: position{index: 9}, revision: 1, content: c})
	if err := each(sw.item); err != nil {
		return err
	}
	return sw.finish(c)
}

// BenchmarkApply measures one small put of each of many groups at a time. The
// cost of a put must fall as more groups share the sync.
func BenchmarkApply(b *testing.B) {
	for _, groups := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			s := openTestStore(b, b.TempDir())
			b.ReportAllocs()
			var wg sync.WaitGroup
			n := b.N/groups + 1
			b.ResetTimer()
			for g := range groups {
				m := openMachine(b, s, testReplica(raftyard.GroupID(g)))
				wg.Go(func() {
					for i := range uint64(n) {
						cmd := encodePut(fmt.Append(nil, "key", i%1000), make([]byte, 128), Cond{})
						batch := []group.Command{{Index: i + 1, Data: cmd}}
						if _, err := m.Apply(batch); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			st := s.Stats()
			b.ReportMetric(float64(st.WriteSets)/float64(max(1, st.Transactions)), "sets/sync")
		})
	}
}

func TestOpenStoreMakesDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := openTestStore(t, dir)
	_, err := OpenStore(StoreOptions{Dir: filepath.Join(dir, "state")})
	if !errors.Is(err, ErrLocked) {
		t.Errorf("OpenStore of an open directory: %v, want ErrLocked", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openTestStore(t, dir)

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(StoreOptions{Dir: filepath.Join(file, "state")}); err == nil {
		t.Error("OpenStore in a file returned no error")
	}
}
