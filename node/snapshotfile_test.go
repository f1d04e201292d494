package node

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/vfs"
)

// TestDamagedSnapshotFileIsNotUsed changes a byte of the file that holds a state.
func TestDamagedSnapshotFileIsNotUsed(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.create(2, 1)
	c.add(1, 1, "a", "b")
	c.add(1, 2, "fine")
	if _, err := c.nodes[1].TakeSnapshot(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	dir := c.nodes[1].replica(1).machine.env.Dir
	c.close(1)
	files, err := filepath.Glob(filepath.Join(dir, snapshotPrefix+"*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("snapshot files %q, %v; want one", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil || string(content) != "a\nb" {
		t.Fatalf("the file holds %q, %v", content, err)
	}
	content[0] = 'x'
	if err = os.WriteFile(files[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	c.open(1, nil)
	_, err = c.nodes[1].Query(t.Context(), 1, Stale, nil)
	if !errors.Is(err, ErrFaulty) || !strings.Contains(err.Error(), errRotten.Error()) {
		t.Errorf("Query = %v, want ErrFaulty because the file is damaged", err)
	}
	c.wantWords(1, 2, "fine")
}

// TestDamagedRegistryIsReplaced: the file with the registry's state is damaged in several
// ways, of which some are noticed by the registry before the checksum tells.
func TestDamagedRegistryIsReplaced(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.awaitReady(1, 2, 3)
	ways := map[string]func(path string) error{
		"a byte": func(path string) error {
			b, err := os.ReadFile(path)
			if err == nil {
				b[len(b)/2] ^= 1
				err = os.WriteFile(path, b, 0o600)
			}
			return err
		},
		"cut":     func(path string) error { return os.Truncate(path, 9) },
		"missing": os.Remove,
		"no file": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o750))
		},
	}
	for name, damage := range ways {
		t.Log(name)
		c.add(1, 1, name)
		before := c.ids(3)[raftyard.SystemGroup]
		if _, err := c.nodes[3].TakeSnapshot(t.Context(), raftyard.SystemGroup); err != nil {
			t.Fatal(err)
		}
		dir := c.nodes[3].replica(raftyard.SystemGroup).machine.env.Dir
		c.close(3)
		files, err := filepath.Glob(filepath.Join(dir, snapshotPrefix+"*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("snapshot files %q, %v; want one", files, err)
		}
		if err := damage(files[0]); err != nil {
			t.Fatal(err)
		}
		c.open(3, nil)
		c.rebuilt(1, 3, raftyard.SystemGroup, before)
		c.awaitReady(1, 2, 3)
	}
}

// unopened has every file refuse to be opened.
type unopened struct {
	vfs.FS

	err error
}

func (u unopened) Open(path string) (vfs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: u.err}
}

// TestSnapshotFileThatCannotBeOpened: what says nothing of the content is no damage, as a
// damaged state is thrown away for that of another member.
func TestSnapshotFileThatCannotBeOpened(t *testing.T) {
	for err, damaged := range map[error]bool{
		syscall.EMFILE: false, syscall.ENFILE: false, syscall.EACCES: false,
		syscall.ENOENT: true, syscall.EIO: true,
	} {
		w := newSurroundings(nil)
		w.files = unopened{vfs.OS{}, err}
		m := &machine{world: w, env: group.Env{Dir: t.TempDir()}}
		got := m.restore("snapshot-1", fileCheck{Known: true})
		if !errors.Is(got, err) || quarantineOf(loadFault(got)).Reason == DamagedState != damaged {
			t.Errorf("%v: restore = %v, want it to be damage: %t", err, got, damaged)
		}
	}
}

// counted counts what is written to files and not synced.
type counted struct {
	vfs.FS

	unsynced, most, size int
}

func (c *counted) CreateNew(path string) (vfs.File, error) {
	f, err := c.FS.CreateNew(path)
	return countedFile{f, c}, err
}

type countedFile struct {
	vfs.File

	in *counted
}

func (f countedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.in.size += n
	f.in.unsynced += n
	f.in.most = max(f.in.most, f.in.unsynced)
	return n, err
}

func (f countedFile) Sync() error {
	f.in.unsynced = 0
	return f.File.Sync()
}

// TestSnapshotFileIsSyncedBitByBit: the disk is not given all of a large file at once, and in
// the end nothing is left that is not synced.
func TestSnapshotFileIsSyncedBitByBit(t *testing.T) {
	const piece, size = 256 << 10, 3*syncEvery + 5
	files := &counted{FS: vfs.OS{}}
	content := strings.Repeat("x", size)
	check, err := writeFileSync(files, t.TempDir(), "snapshot-1",
		copier{struct{ io.Reader }{strings.NewReader(content)}})
	if err != nil || check.Size != size || files.size != size {
		t.Fatalf("writeFileSync = %+v, %v, and wrote %d bytes; want %d",
			check, err, files.size, size)
	}
	if files.unsynced != 0 || files.most >= syncEvery+piece {
		t.Errorf("up to %d bytes were not synced, and %d in the end; want less than %d, and 0",
			files.most, files.unsynced, syncEvery+piece)
	}
}
