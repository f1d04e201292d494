package simdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/vfs"
)

// kind is what of an error is part of the contract.
func kind(err error) string {
	for _, e := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrClosed, vfs.ErrLocked} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	if err != nil {
		return "another error"
	}
	return ""
}

// fileArgs is what a fileOp needs.
type fileArgs struct {
	path, to string
	text     string
	at, from int64
}

// fileOp does one thing to a file system and says what came of it.
type fileOp func(vfs.FS, fileArgs) string

func fileOps() map[string]fileOp {
	one := func(fn func(vfs.FS, string) error) fileOp {
		return func(on vfs.FS, args fileArgs) string { return kind(fn(on, args.path)) }
	}
	writing := func(open func(vfs.FS, string) (vfs.File, error)) fileOp {
		return func(on vfs.FS, args fileArgs) string {
			f, err := open(on, args.path)
			if err != nil {
				return kind(err)
			}
			_, werr := f.Write([]byte(args.text))
			_, aerr := f.WriteAt([]byte("xy"), args.at)
			b := make([]byte, 4)
			n, rerr := f.ReadAt(b, args.from)
			m, nerr := f.Read(b[n:])
			serr, cerr := f.Sync(), f.Close()
			return fmt.Sprintf("%q %d %d: %q %q %v %v %q %q %q", b, n, m, kind(werr), kind(aerr),
				rerr, nerr, kind(serr), kind(cerr), kind(f.Sync()))
		}
	}
	return map[string]fileOp{
		"mkdir":     one(vfs.FS.MkdirAll),
		"remove":    one(vfs.FS.Remove),
		"removeAll": one(vfs.FS.RemoveAll),
		"syncDir": func(on vfs.FS, args fileArgs) string {
			if _, err := on.ReadFile(args.path); err == nil {
				return "" // the system would sync a file too
			}
			return kind(on.SyncDir(args.path))
		},
		"create":    writing(vfs.FS.Create),
		"createNew": writing(vfs.FS.CreateNew),
		"openWrite": writing(vfs.FS.OpenWrite),
		"open": func(on vfs.FS, args fileArgs) string {
			if _, err := on.ReadDir(args.path); err == nil {
				return "" // the system would open a directory too
			}
			f, err := on.Open(args.path)
			if err != nil {
				return kind(err)
			}
			b := make([]byte, 9)
			n, rerr := f.Read(b)
			_, werr := f.Write([]byte("x"))
			return fmt.Sprintf("%q %v %v %q", b[:n], rerr, werr != nil, kind(f.Close()))
		},
		"rename": func(on vfs.FS, args fileArgs) string {
			// Which of two things that are wrong is told is nobody's promise.
			return fmt.Sprint(on.Rename(args.path, args.to) == nil)
		},
		"lock": func(on vfs.FS, args fileArgs) string {
			// A lock of its own: the system's writes into the file.
			held, err := on.Lock(args.path + ".lock")
			if err != nil {
				return kind(err)
			}
			_, again := on.Lock(args.path + ".lock")
			return fmt.Sprintf("%q %q", kind(again), kind(held.Close()))
		},
	}
}

// TestFilesAreLikeTheSystems does the same to a simulated disk and to a real one.
func TestFilesAreLikeTheSystems(t *testing.T) {
	base, n := t.TempDir(), 0
	paths := []string{"a", "b", "d", "d/a", "d/e", "d/e/a"}
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		fake, real := seeded(1).Files(), vfs.OS{}
		if err := errors.Join(fake.MkdirAll(dir), real.MkdirAll(dir)); err != nil {
			rt.Fatal(err)
		}
		path := rapid.SampledFrom(paths)
		actions := map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, p := range append(paths, "") {
					if got, want := look(fake, dir, p), look(real, dir, p); got != want {
						t.Fatalf("%s: %s, want %s", p, got, want)
					}
				}
			},
		}
		for name, op := range fileOps() {
			actions[name] = func(t *rapid.T) {
				args := fileArgs{
					path: filepath.Join(dir, path.Draw(t, "path")),
					to:   filepath.Join(dir, path.Draw(t, "to")),
					text: rapid.StringN(0, 5, 5).Draw(t, "text"),
					at:   rapid.Int64Range(-1, 8).Draw(t, "at"),
					from: rapid.Int64Range(0, 8).Draw(t, "from"),
				}
				if got, want := op(fake, args), op(real, args); got != want {
					t.Fatalf("%s %+v: %s, want %s", name, args, got, want)
				}
			}
		}
		rt.Repeat(actions)
	})
}

// look says what is at a path.
func look(on vfs.FS, dir, path string) string {
	path = filepath.Join(dir, path)
	there, err := on.Exists(path)
	names, derr := on.ReadDir(path)
	b, rerr := on.ReadFile(path)
	return fmt.Sprintf("%t %q %q %q %q %q", there, kind(err), names, kind(derr), b, kind(rerr))
}

// TestDatabaseIsLikeBadger does the same to a simulated database and to a real one.
func TestDatabaseIsLikeBadger(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(7, 7))
	d := seeded(1)
	check(t, d.Files().MkdirAll(dir))
	o := badgerdb.Options{Dir: filepath.Join(dir, "db"), MemTableSize: badgerdb.MinMemTableSize}
	var fake, real kv.DB
	open := func() {
		var err1, err2 error
		fake, err1 = d.OpenDB(o)
		real, err2 = kv.OpenBadger(o)
		check(t, err1, err2)
	}
	open()
	if fake.MaxTxnBytes() != real.MaxTxnBytes() || fake.MaxTxnCount() != real.MaxTxnCount() ||
		fake.MaxValueBytes() != real.MaxValueBytes() {
		t.Errorf("limits are %d, %d, %d, want %d, %d, %d",
			fake.MaxTxnBytes(), fake.MaxTxnCount(), fake.MaxValueBytes(),
			real.MaxTxnBytes(), real.MaxTxnCount(), real.MaxValueBytes())
	}
	var views [2][]kv.Snapshot
	compare := func(a, b kv.Snapshot) {
		t.Helper()
		if got, want := dump(t, a), dump(t, b); got != want {
			t.Fatalf("shows %s, want %s", got, want)
		}
		_, err1 := a.Get([]byte("none"))
		_, err2 := b.Get([]byte("none"))
		if !errors.Is(err1, kv.ErrNotFound) || !errors.Is(err2, kv.ErrNotFound) {
			t.Fatalf("Get = %v, %v, want ErrNotFound", err1, err2)
		}
	}
	discard := func() {
		for i, v := range views[0] {
			compare(v, views[1][i])
			v.Discard()
			views[1][i].Discard()
		}
		views = [2][]kv.Snapshot{}
	}
	for round := range 400 {
		seed := rng.Uint64()
		err1, err2 := randomCommit(fake, seed), randomCommit(real, seed)
		if kv1, kv2 := kindOfCommit(err1), kindOfCommit(err2); kv1 != kv2 {
			t.Fatalf("Commit = %v, want %v", err1, err2)
		}
		switch {
		case round%10 == 0:
			views[0] = append(views[0], fake.Snapshot())
			views[1] = append(views[1], real.Snapshot())
		case round%35 == 0:
			discard()
		case round%133 == 0:
			discard()
			check(t, fake.Close(), real.Close())
			open()
		}
		a, b := fake.Snapshot(), real.Snapshot()
		compare(a, b)
		a.Discard()
		b.Discard()
	}
	discard()
	check(t, fake.Close(), real.Close())
}

func kindOfCommit(err error) string {
	if errors.Is(err, kv.ErrTooBig) {
		return "too big"
	}
	return kind(err)
}

func randomCommit(db kv.DB, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	return db.Commit(func(w kv.Writer) error {
		for range rng.IntN(5) {
			key := fmt.Append(nil, "key", rng.IntN(12))
			if rng.IntN(3) == 0 {
				if err := w.Delete(key); err != nil {
					return err
				}
				continue
			}
			size := rng.IntN(20)
			if rng.IntN(10) == 0 {
				size = 100_000 // two are too much
			}
			if err := w.Set(key, make([]byte, size)); err != nil {
				return err
			}
		}
		return nil
	})
}
