package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/cluster"
)

// resumeLimit is how long a node may take to work again when there is space.
const resumeLimit = 60 * time.Second

// TestFullDisk fills the disk of one of three nodes to the brim under load, as another
// program would: when it leads nothing in particular, and when it leads everything. The
// process goes on, the groups stay writable through the others, the node works again within
// a minute after space is there again, and nothing is lost.
func TestFullDisk(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	// A tmpfs that was mounted before the data directory is made, and unmounted after the
	// cluster has ended.
	disk := t.TempDir()
	mountMemory(t, disk, cluster.Sized("2g", "3g")) // a node with much data wants more of it
	c := cluster.New(t, cluster.Config{})
	full := c.Node(3)
	full.Configure(full.Dir(), filepath.Join(disk, "data"))
	c.Start()
	groups := groupIDs(8)
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groups, clients: 8, keys: 4000, size: 4 << 10,
	})
	l.start(t)
	l.grant(1, 1)
	l.awaitApplied(t, 200)
	pid := full.PID()
	for round := range cluster.Sized(2, 20) {
		if round%2 == 1 {
			leadAll(t, full, groups)
		}
		fillWhileWriting(t, c, l, disk)
	}
	if !full.Running() || full.PID() != pid {
		t.Fatal("the node whose disk was full has ended")
	}
	l.end()
	t.Log(l.tally)
	l.verifyLists(t, c.Nodes(), "after")
	verifyHashes(t, c.Nodes(), groups)
}

// fillWhileWriting fills the disk of node 3, holds it full, and gives the space back.
func fillWhileWriting(t *testing.T, c *cluster.Cluster, l *load, disk string) {
	t.Helper()
	full := c.Node(3)
	began := time.Now()
	f := newFiller(t, filepath.Join(disk, "another program's"))
	cluster.Eventually(t, startLimit, "the disk is full", func() error {
		return diskLevel(t, c.Node(1), full.ID(), "floor")
	})
	noticed := time.Since(began)
	cluster.Eventually(t, startLimit, "node 3 leads nothing", func() error {
		return leadsNothing(t, c.Node(1), full.ID())
	})
	gone := time.Since(began)
	wantWell(t, full, "/livez")
	wantWell(t, full, "/readyz") // the others serve what it is asked
	l.awaitApplied(t, 200)
	f.awaitFull(t)
	until := time.NewTimer(cluster.Sized(3*time.Second, 20*time.Second))
	<-until.C
	l.awaitApplied(t, 200)
	for i, g := range l.groups {
		if err := put(t, c.Nodes()[i%2], g, "after", []byte("it was full")); err != nil {
			t.Errorf("group %d while a disk is full: %v", g, err)
		}
	}
	written := f.end(t)
	freed := time.Now()
	cluster.Eventually(t, resumeLimit, "node 3 works again", func() error {
		if err := diskLevel(t, c.Node(1), full.ID(), "ok"); err != nil {
			return err
		}
		return put(t, full, l.groups[0], "after", []byte(freed.String()))
	})
	t.Logf("another program wrote %d MiB; full after %v, no leadership left after %v; "+
		"works again %v after there was space: %s", written>>20, noticed.Round(time.Millisecond),
		gone.Round(time.Millisecond), time.Since(freed).Round(time.Millisecond),
		diskUse(t, c.Node(1), full.ID()))
}

// diskUse says how much is free, and what the tables of the databases take.
func diskUse(t *testing.T, at *cluster.Node, id raftyard.NodeID) string {
	t.Helper()
	n, err := at.NodeStatus(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	use := fmt.Sprintf("%d MiB free", n.DiskFree>>20)
	for i := range n.Databases {
		d := &n.Databases[i]
		use += fmt.Sprintf(", %d MiB of tables in %s", d.TableBytes>>20, d.Name)
	}
	return use
}

func diskLevel(t *testing.T, at *cluster.Node, id raftyard.NodeID, want string) error {
	t.Helper()
	n, err := at.NodeStatus(t.Context(), id)
	if err == nil && n.DiskLevel != want {
		err = fmt.Errorf("the disk of node %d is %q, want %q", id, n.DiskLevel, want)
	}
	return err
}

func leadsNothing(t *testing.T, at *cluster.Node, id raftyard.NodeID) error {
	t.Helper()
	n, err := at.NodeStatus(t.Context(), id)
	if err == nil && n.Leaders != 0 {
		err = fmt.Errorf("node %d leads %d groups", id, n.Leaders)
	}
	return err
}

// A filler is another program that writes as fast as it can. When there is no space it tries
// again a second later, and so takes what becomes free.
type filler struct {
	path  string
	stop  chan struct{}
	full  chan struct{} // closed when there was no space for the first time
	ended chan struct{} // closed when it writes no more
	size  atomic.Int64
	err   error // read when it has ended
}

func newFiller(t *testing.T, path string) *filler {
	t.Helper()
	f := &filler{
		path: path, stop: make(chan struct{}), full: make(chan struct{}),
		ended: make(chan struct{}),
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.ended)
		f.err = f.run(file)
	}()
	t.Cleanup(f.halt)
	return f
}

func (f *filler) run(file *os.File) error {
	chunk := make([]byte, 1<<20)
	var once sync.Once
	for {
		n, err := file.Write(chunk)
		f.size.Add(int64(n))
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			return errors.Join(err, file.Close())
		}
		if err != nil {
			once.Do(func() { close(f.full) })
			cluster.Pause(f.stop, time.Second)
		}
		select {
		case <-f.stop:
			return file.Close()
		default:
		}
	}
}

func (f *filler) halt() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	<-f.ended
}

// awaitFull waits until there is no space, for as long as that gets less: how fast it does is
// the machine's matter.
func (f *filler) awaitFull(t *testing.T) {
	t.Helper()
	for before := int64(-1); ; {
		written := f.size.Load()
		if written == before {
			t.Fatalf("another program has written %d bytes, and none in %v", written, startLimit)
		}
		before = written
		limit := time.NewTimer(startLimit)
		select {
		case <-f.full:
		case <-f.ended:
			t.Fatalf("another program cannot write: %v", f.err)
		case <-limit.C:
			continue
		}
		limit.Stop()
		return
	}
}

// end stops the filler, gives the space back and returns how much it was.
func (f *filler) end(t *testing.T) int64 {
	t.Helper()
	f.halt()
	if err := errors.Join(f.err, os.Remove(f.path)); err != nil {
		t.Fatal(err)
	}
	return f.size.Load()
}
