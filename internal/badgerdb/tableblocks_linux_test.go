package badgerdb

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// newTable makes a file with a length and no blocks, as Badger does.
func newTable(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testBlocks gives tables of a directory their blocks from a room with so much free space.
func testBlocks(t *testing.T, free int64) (*tableBlocks, *bytes.Buffer) {
	t.Helper()
	var left atomic.Int64
	left.Store(free)
	var said bytes.Buffer
	o := Options{
		Dir: t.TempDir(), MemTableSize: MinMemTableSize,
		Logger: slog.New(slog.NewTextHandler(&said, nil)),
	}.withDefaults()
	r := newRoom(o)
	r.free = func(string) (int64, error) { return left.Load(), nil }
	return newTableBlocks(o, r), &said
}

// A table that appears beside an open database has its blocks soon, and keeps its length.
func TestTablesGetTheirBlocks(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	if db.wal.size == 0 {
		t.Skip("the file system of the test cannot allocate ahead")
	}
	table, log := filepath.Join(o.Dir, "999998.sst"), filepath.Join(o.Dir, "other")
	newTable(t, log, 1<<20)
	newTable(t, table, 1<<20)
	for d := newDeadline(t); blocks(t, table) < 1<<20; {
		d.wait("blocks of a table")
	}
	if n := blocks(t, log); n != 0 {
		t.Errorf("what is no table has %d bytes of blocks", n)
	}
	if info, err := os.Stat(table); err != nil || info.Size() != 1<<20 {
		t.Errorf("the table is %v %v, want its length as it was", info, err)
	}
	if err := errors.Join(os.Remove(table), os.Remove(log), db.Close()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-db.blocks.done:
	default:
		t.Error("new tables are still waited for when the database is closed")
	}
}

// TestTableGetsTheReserve: the reserve is given before blocks are asked for that there are not.
func TestTableGetsTheReserve(t *testing.T) {
	const size = 1 << 20
	for _, tt := range []struct {
		name  string
		free  int64
		fails []error
		want  []string
		err   error
	}{
		{"there is space", size, nil, []string{"allocate"}, nil},
		{"there is not", size - 1, nil, []string{"spare", "allocate"}, nil},
		{
			"others were faster", size,
			[]error{syscall.ENOSPC},
			[]string{"allocate", "spare", "allocate"},
			nil,
		},
		{
			"a quota", size,
			[]error{syscall.EDQUOT},
			[]string{"allocate", "spare", "allocate"},
			nil,
		},
		{
			"for good", size,
			[]error{syscall.ENOSPC, syscall.ENOSPC, syscall.ENOSPC},
			[]string{"allocate", "spare", "allocate", "spare"},
			syscall.ENOSPC,
		},
		{"another failure", size, []error{syscall.EIO}, []string{"allocate"}, syscall.EIO},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, _ := testBlocks(t, tt.free)
			var did []string
			fails, spares := tt.fails, 1
			b.spare = func() bool {
				did = append(did, "spare")
				spares--
				return spares >= 0
			}
			b.allocate = func(_ *os.File, n int64) error {
				did = append(did, "allocate")
				if n != size {
					t.Errorf("%d bytes are asked for, want %d", n, size)
				}
				if len(fails) == 0 {
					return nil
				}
				err := fails[0]
				fails = fails[1:]
				return err
			}
			path := filepath.Join(b.dir, "000001.sst")
			newTable(t, path, size)
			if err := b.give(path); !errors.Is(err, tt.err) {
				t.Errorf("give = %v, want %v", err, tt.err)
			}
			if !slices.Equal(did, tt.want) {
				t.Errorf("it did %q, want %q", did, tt.want)
			}
		})
	}
}

// A table that is gone again, or is about to be, needs no blocks and is no error.
func TestTableThatIsGone(t *testing.T) {
	b, _ := testBlocks(t, 1<<30)
	b.allocate = func(*os.File, int64) error {
		t.Error("blocks are asked for")
		return nil
	}
	if err := b.give(filepath.Join(b.dir, "000001.sst")); err != nil {
		t.Errorf("there is no table: %v", err)
	}
	path := filepath.Join(b.dir, "000002.sst")
	newTable(t, path, 0)
	if err := b.give(path); err != nil {
		t.Errorf("it stays empty: %v", err)
	}
}

// Where blocks cannot be had that is said once, and tables are left alone.
func TestTableBlocksUnsupported(t *testing.T) {
	b, said := testBlocks(t, 1<<30)
	var asked atomic.Int64
	b.allocate = func(*os.File, int64) error {
		asked.Add(1)
		return syscall.EOPNOTSUPP
	}
	b.start()
	for _, name := range []string{"000001.sst", "000002.sst"} {
		newTable(t, filepath.Join(b.dir, name), 4096)
	}
	<-b.done
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(said.String(), "\n"); n != 1 || asked.Load() != 1 {
		t.Errorf("asked %d times, and %d lines, want one of each:\n%s",
			asked.Load(), n, said.String())
	}
}

// A directory that cannot be watched is said, and no error.
func TestTableBlocksWithoutWatch(t *testing.T) {
	b, said := testBlocks(t, 1<<30)
	b.dir = filepath.Join(b.dir, "none")
	b.start()
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(said.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, said.String())
	}
}

// TestReserveIsGiven: who looks at the space hears that the reserve was given, and makes it
// again.
func TestReserveIsGiven(t *testing.T) {
	var free atomic.Int64
	r := testRoom(t, &free)
	if r.reserve.give() {
		t.Error("a reserve was given that there is not")
	}
	free.Store(100 * r.need)
	r.look()
	if !r.reserve.give() {
		t.Error("the reserve was not given")
	}
	if _, err := os.Stat(r.reserve.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the reserve is there after it was given: %v", err)
	}
	if r.reserve.give() {
		t.Error("the reserve was given twice")
	}
	r.look()
	if _, err := os.Stat(r.reserve.path); err != nil {
		t.Errorf("the reserve is not made again: %v", err)
	}
}
