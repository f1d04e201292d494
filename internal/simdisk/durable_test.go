package simdisk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
)

// baseModel is what a database may be. Commit n makes states[n] of states[n-1].
type baseModel struct {
	d       *Disk
	db      kv.DB
	states  []string
	pairs   map[string]string
	durable int // states before this one are past
	failed  bool
}

var errSync = errors.New("the sync fails")

func (m *baseModel) open(t *rapid.T) {
	db, err := m.d.OpenDB(badgerdb.Options{Dir: "/db"})
	if err != nil {
		t.Fatal(err)
	}
	m.db, m.failed = db, false
	s := db.Snapshot()
	defer s.Discard()
	got := make(map[string]string)
	var all strings.Builder
	err = s.Scan(func(key, value []byte, _ uint64) error {
		got[string(key)] = string(value)
		fmt.Fprintf(&all, "%s=%s ", key, value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := len(m.states) - 1; n >= m.durable; n-- {
		if m.states[n] == all.String() {
			m.states, m.durable, m.pairs = m.states[:n+1], n, got
			return
		}
	}
	t.Fatalf("came back as %s, want one of %q", all.String(), m.states[m.durable:])
}

// commit changes some keys, one of them in every commit, so that all states differ.
func (m *baseModel) commit(t *rapid.T) {
	outcome := rapid.SampledFrom([]string{"", "", "", "fail", "crash", "kill"}).Draw(t, "outcome")
	stopped := false
	m.d.BeforeSync = func(string) error {
		switch outcome {
		case "fail":
			return errSync
		case "crash":
			m.d.Crash()
			stopped = true
		case "kill":
			m.d.Kill()
			stopped = true
		}
		return nil
	}
	defer func() { m.d.BeforeSync = nil }()
	after := maps.Clone(m.pairs)
	err := m.db.Commit(func(w kv.Writer) error {
		n := rapid.IntRange(0, 4).Draw(t, "pairs")
		after["n"] = fmt.Sprint(len(m.states), rapid.Int().Draw(t, "salt"))
		errs := []error{w.Set([]byte("n"), []byte(after["n"]))}
		for range n {
			key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
			if rapid.Bool().Draw(t, "delete") {
				delete(after, key)
				errs = append(errs, w.Delete([]byte(key)))
			} else {
				after[key] = fmt.Sprint(len(m.states))
				errs = append(errs, w.Set([]byte(key), []byte(after[key])))
			}
		}
		return errors.Join(errs...)
	})
	if (err == nil) != (outcome == "" && !m.failed) {
		t.Fatalf("Commit = %v with %q, failed before: %t", err, outcome, m.failed)
	}
	if m.failed {
		return
	}
	m.states = append(m.states, render(after))
	switch {
	case stopped:
		if outcome == "kill" {
			m.durable = len(m.states) - 1 // it was written
		}
		m.open(t)
	case err != nil:
		m.failed = true
	default:
		m.durable, m.pairs = len(m.states)-1, after
	}
}

func render(pairs map[string]string) string {
	var all strings.Builder
	for _, k := range []string{"a", "b", "c", "n"} {
		if v, ok := pairs[k]; ok {
			fmt.Fprintf(&all, "%s=%s ", k, v)
		}
	}
	return all.String()
}

// TestDatabaseModel: what was acknowledged is there after every crash, a commit is
// there as a whole or not at all, and never one without those before it.
func TestDatabaseModel(t *testing.T) {
	var kept, lost int
	rapid.Check(t, func(rt *rapid.T) {
		m := &baseModel{d: seeded(rapid.Uint64().Draw(rt, "seed")), states: []string{""}}
		m.pairs = make(map[string]string)
		m.open(rt)
		if err := m.d.Files().SyncDir("/"); err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"commit": m.commit, "commit2": m.commit, "commit3": m.commit,
			"reopen": func(t *rapid.T) {
				if err := m.db.Close(); err != nil {
					t.Fatal(err)
				}
				m.open(t)
			},
			"crash": func(t *rapid.T) { m.d.Crash(); m.open(t) },
			"kill":  func(t *rapid.T) { m.d.Kill(); m.open(t) },
			"lose tail": func(t *rapid.T) {
				n := rapid.IntRange(0, 3).Draw(t, "commits")
				m.durable = max(0, m.durable-m.d.LoseTail(n))
				m.open(t)
			},
		})
		kept, lost = kept+m.d.Stats().Kept, lost+m.d.Stats().Lost
	})
	if kept == 0 || lost == 0 {
		t.Errorf("%d unsynced commits were kept and %d lost, want some of each", kept, lost)
	}
}

// fileModel is one file: what is durable, and what was written since.
type fileModel struct {
	durable string
	writes  []string
	seen    string
}

// may reports whether the content can be what a crash has left: the durable one,
// with the first of the writes, the last of these perhaps in part.
func (f *fileModel) may(content string) bool {
	all := f.durable + strings.Join(f.writes, "")
	return strings.HasPrefix(content, f.durable) && strings.HasPrefix(all, content)
}

// ends reports whether the durable content, or a write after it, ends there.
func (f *fileModel) ends(length int) bool {
	end := len(f.durable)
	for _, w := range f.writes {
		if end == length {
			return true
		}
		end += len(w)
	}
	return end == length
}

// dirModel is a directory: which file a name may be after a crash.
type dirModel struct {
	d    *Disk
	seen map[string]*fileModel
	may  map[string][]*fileModel // nil among them: none
	n    int
	kept int // contents that a crash has kept though they were not synced
	torn int // and that end within a write
}

func (m *dirModel) rename(name string, f *fileModel) {
	m.seen[name] = f
	m.may[name] = append(m.may[name], f)
}

func (m *dirModel) write(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	f := m.seen[name]
	path := "/" + name
	open := m.d.Files().OpenWrite
	if f == nil {
		f, open = new(fileModel), m.d.Files().CreateNew
		m.rename(name, f)
	}
	h, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	for range rapid.IntRange(0, 3).Draw(t, "writes") {
		m.n++
		w := strings.Repeat(string(rune('a'+m.n%26)), rapid.IntRange(1, 5).Draw(t, "length"))
		if _, err := h.WriteAt([]byte(w), int64(len(f.seen))); err != nil {
			t.Fatal(err)
		}
		f.writes, f.seen = append(f.writes, w), f.seen+w
	}
	switch rapid.IntRange(0, 3).Draw(t, "end") {
	case 0:
		if err := h.Sync(); err != nil {
			t.Fatal(err)
		}
		f.durable, f.writes = f.seen, nil
	case 1:
		m.d.BeforeSync = func(string) error { return errSync }
		if err := h.Sync(); !errors.Is(err, errSync) {
			t.Fatalf("Sync = %v, want %v", err, errSync)
		}
		m.d.BeforeSync = nil
		m.crash(t) // what a failed sync leaves is known after a crash only
		return
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func (m *dirModel) crash(t *rapid.T) {
	m.d.Crash()
	for _, name := range []string{"a", "b", "c"} {
		b, err := m.d.Files().ReadFile("/" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		ok := false
		for _, f := range m.may[name] {
			if f == nil && err != nil || f != nil && err == nil && f.may(string(b)) {
				ok = true
				if f != nil && f.may(string(b)) && len(b) > len(f.durable) {
					m.kept++
				}
				if f != nil && f.may(string(b)) && !f.ends(len(b)) {
					m.torn++
				}
			}
		}
		if !ok {
			t.Fatalf("%s came back as %q, %v", name, b, err)
		}
		var f *fileModel
		if err == nil {
			f = &fileModel{durable: string(b), seen: string(b)}
		}
		m.seen[name], m.may[name] = f, []*fileModel{f}
	}
}

// TestFileModel: names and contents that were synced are there after every crash,
// and what is there was once written.
func TestFileModel(t *testing.T) {
	var kept, torn int
	var sum Stats
	for range 20 { // some runs are short, and leave something out by chance
		checkFiles(t, &kept, &torn, &sum)
		if kept > 0 && torn > 0 && sum.Writes > 0 && sum.Torn > 0 && sum.Names > 0 {
			return
		}
	}
	t.Errorf("%d unsynced contents were kept, %d torn, lost was %+v, want some of each",
		kept, torn, sum)
}

// checkFiles holds disks to the model, and counts what has happened to them.
func checkFiles(t *testing.T, kept, torn *int, sum *Stats) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		m := &dirModel{
			d:    seeded(rapid.Uint64().Draw(rt, "seed")),
			seen: make(map[string]*fileModel), may: make(map[string][]*fileModel),
		}
		for _, name := range []string{"a", "b", "c"} {
			m.may[name] = []*fileModel{nil}
		}
		names := rapid.SampledFrom([]string{"a", "b", "c"})
		rt.Repeat(map[string]func(*rapid.T){
			"write": m.write, "write2": m.write, "write3": m.write,
			"rename": func(t *rapid.T) {
				from, to := names.Draw(t, "from"), names.Draw(t, "to")
				err := m.d.Files().Rename("/"+from, "/"+to)
				if (err == nil) != (m.seen[from] != nil) {
					t.Fatalf("Rename = %v", err)
				}
				if f := m.seen[from]; f != nil && from != to {
					m.rename(to, f)
					m.rename(from, nil)
				}
			},
			"remove": func(t *rapid.T) {
				name := names.Draw(t, "name")
				if err := m.d.Files().Remove("/" + name); (err == nil) != (m.seen[name] != nil) {
					t.Fatalf("Remove = %v", err)
				}
				if m.seen[name] != nil {
					m.rename(name, nil)
				}
			},
			"sync names": func(t *rapid.T) {
				if err := m.d.Files().SyncDir("/"); err != nil {
					t.Fatal(err)
				}
				for name := range m.may {
					m.may[name] = []*fileModel{m.seen[name]}
				}
			},
			"crash": m.crash,
			"": func(t *rapid.T) {
				for name, f := range m.seen {
					b, err := m.d.Files().ReadFile("/" + name)
					if (err == nil) != (f != nil) || f != nil && string(b) != f.seen {
						t.Fatalf("%s is %q, %v, want %+v", name, b, err, f)
					}
				}
			},
		})
		s := m.d.Stats()
		*kept, *torn = *kept+m.kept, *torn+m.torn
		sum.Writes, sum.Torn, sum.Names = sum.Writes+s.Writes, sum.Torn+s.Torn, sum.Names+s.Names
	})
}

// TestRenamedFileIsSomewhere: a file that is given another name has the old name or
// the new one after a crash.
func TestRenamedFileIsSomewhere(t *testing.T) {
	outcomes := make(map[string]int)
	for seed := range uint64(100) {
		d := seeded(seed)
		_, err := d.Files().Create("/old")
		check(t, err, d.Files().SyncDir("/"), d.Files().Rename("/old", "/middle"),
			d.Files().Rename("/middle", "/new"))
		d.Crash()
		names, err := d.Files().ReadDir("/")
		check(t, err)
		outcomes[strings.Join(names, " ")]++
	}
	for _, name := range []string{"old", "middle", "new"} {
		if outcomes[name] == 0 || len(outcomes) != 3 {
			t.Errorf("outcomes are %v, want each name, one at a time", outcomes)
		}
	}
}

// TestRenameIsOneStep: a file that is replaced as package storage does it is the old
// one or the new one after a crash at any moment, never none and never half.
func TestRenameIsOneStep(t *testing.T) {
	outcomes := make(map[string]int)
	for seed := range uint64(300) {
		d := seeded(seed)
		files := d.Files()
		left := int(seed % 3) // syncs until the crash
		d.BeforeSync = func(string) error {
			if left--; left == -1 {
				d.Crash()
			}
			return nil
		}
		replace := func(content string) error {
			f, err := files.Create("/new")
			if err != nil {
				return err
			}
			_, err = io.WriteString(f, content)
			if err = errors.Join(err, f.Sync()); err != nil {
				return err
			}
			return errors.Join(f.Close(), files.Rename("/new", "/file"), files.SyncDir("/"))
		}
		left += 2
		check(t, replace("old content"))
		if err := replace("new content"); left >= 0 {
			check(t, err)
			d.Crash()
		}
		b, err := files.ReadFile("/file")
		check(t, err)
		outcomes[fmt.Sprint(seed%3, string(b))]++
	}
	wantOutcomes(t, outcomes, "0old content", "1old content", "1new content", "2new content")
}

// TestDirectoriesThatAreMadeStay: MkdirAll makes durable what it makes, and what an
// interrupted call before has left.
func TestDirectoriesThatAreMadeStay(t *testing.T) {
	for seed := range uint64(50) {
		d := seeded(seed)
		files := d.Files()
		fails := int(seed % 4)
		d.BeforeSync = func(string) error {
			if fails--; fails == -1 {
				return errSync
			}
			return nil
		}
		if err := files.MkdirAll("/a/b/c"); (err == nil) != (fails >= 0) {
			t.Fatalf("MkdirAll = %v, with %d syncs left", err, fails)
		}
		check(t, files.MkdirAll("/a/b/c"))
		d.Crash()
		if ok, err := files.Exists("/a/b/c"); !ok || err != nil {
			t.Fatalf("Exists = %t, %v", ok, err)
		}
	}
}
