package test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestStuckSync has no sync of the node that leads everything come back for 30 seconds, as
// on a disk that hangs: each system call that syncs waits, from one moment on. The others
// take over, the node resigns what it leads and ends with 70, nothing that was acknowledged
// is lost, and no read through the node is stale meanwhile.
func TestStuckSync(t *testing.T) {
	cluster.Long(t)
	program := cluster.Strace(t)
	c := cluster.New(t, cluster.Config{
		Tolerate: []string{"a store has failed", "the disk does not answer"},
	})
	c.Start()
	groups := groupIDs(8)
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	stuck, rest := c.Node(1), []*cluster.Node{c.Node(2), c.Node(3)}
	leadAll(t, stuck, groups)
	l := newLoad(loadSpec{nodes: rest, groups: groups, clients: 8, keys: 2000, size: 100})
	l.start(t)
	l.grant(1, 1)
	l.awaitApplied(t, 500)

	reader := newStaleReader(t, stuck, rest)
	hang := attach(t, program, stuck.PID(), "msync,fsync,fdatasync",
		"msync,fsync,fdatasync:delay_enter=30s")
	began := time.Now()
	cluster.Eventually(t, time.Minute, "all groups have another leader", func() error {
		for _, g := range groups {
			st, err := rest[0].Group(t.Context(), g)
			if err != nil {
				return err
			}
			if st.Leader == 0 || st.Leader == stuck.ID() {
				return fmt.Errorf("group %d is led by node %d", g, st.Leader)
			}
		}
		return nil
	})
	handedOver := time.Since(began)
	for _, g := range groups {
		cluster.Eventually(t, time.Minute, "the groups take writes", func() error {
			return rest[0].Do(t.Context(), cluster.Request{
				Method: "PUT", Path: cluster.KeyPath(g, staleKey+"?"), Body: []byte("x"),
				Timeout: time.Second,
			}).Error()
		})
	}
	writable := time.Since(began)
	wantWell(t, stuck, "/livez")
	cluster.Eventually(t, 15*time.Second, "the node is not ready", func() error {
		return probe(t, stuck, "/readyz", "disk")
	})
	wantWell(t, stuck, "/livez") // its disk may come back
	l.awaitApplied(t, 500)
	cluster.Eventually(t, time.Minute, "the node takes no connections", func() error {
		conn, err := net.DialTimeout("tcp", stuck.HTTPAddr(), time.Second)
		if err != nil {
			return nil //nolint:nilerr // that is what is waited for
		}
		return errors.Join(errors.New("it listens"), conn.Close())
	})
	silent := time.Since(began)
	reads := reader.end(t)
	// The kernel, or here strace, may let a process end only when its sync comes back.
	if reads == 0 {
		t.Error("there were no reads, so none can have been stale")
	}
	code := stuck.AwaitExit(time.Minute)
	ended := time.Since(began)
	hang.end()
	if code != exitDiskFailed {
		t.Errorf("the node whose disk hangs has ended with %d, want %d", code, exitDiskFailed)
	}
	if silent < 18*time.Second || silent > 28*time.Second {
		t.Errorf("it has closed its port after %v, want about 20 s", silent)
	}
	l.awaitApplied(t, 500)
	stuck.Start()
	stuck.AwaitReady(startLimit)
	l.end()
	t.Logf("led by others after %v, written to after %v, silent after %v, ended after %v; "+
		"%d reads through the node meanwhile; %v", handedOver.Round(time.Millisecond),
		writable.Round(time.Millisecond), silent.Round(time.Millisecond),
		ended.Round(time.Millisecond), reads, l.tally)
	l.verifyLists(t, c.Nodes(), staleKey, staleKey+"?")
	verifyHashes(t, c.Nodes(), groups)
}

// attached is strace on a process that runs.
type attached struct {
	cmd  *exec.Cmd
	once sync.Once
}

// attach has some system calls of a process go another way, from when it returns.
func attach(t *testing.T, program string, pid int, calls, inject string) *attached {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-f", "-o", os.DevNull,
		"-e", "trace="+calls, "-e", "inject="+inject, "-p", strconv.Itoa(pid))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &attached{cmd: cmd}
	t.Cleanup(a.end)
	cluster.Eventually(t, startLimit, "strace is attached", func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return err
		}
		if strings.Contains(string(b), "\nTracerPid:\t0\n") {
			return fmt.Errorf("process %d is not traced", pid)
		}
		return nil
	})
	return a
}

// end takes strace away, if it has not gone with the process.
func (a *attached) end() {
	a.once.Do(func() {
		_ = a.cmd.Process.Kill() // it may have ended
		_ = a.cmd.Wait()         // it says that it was killed
	})
}

// staleKey is what the reader's writer writes.
const staleKey = "never stale"

// A staleReader writes a key through some nodes, and reads it through another one: a read
// that has begun after a write was acknowledged must show that write, or a later one.
type staleReader struct {
	at    *cluster.Node
	write []*cluster.Node
	stop  chan struct{}
	wg    sync.WaitGroup

	mu    sync.Mutex
	acked int
	reads int
	wrong []string
}

func newStaleReader(t *testing.T, at *cluster.Node, write []*cluster.Node) *staleReader {
	t.Helper()
	s := &staleReader{at: at, write: write, stop: make(chan struct{})}
	s.wg.Go(func() { s.loop(func(i int) { s.put(t, i) }) })
	for range 4 {
		s.wg.Go(func() { s.loop(func(int) { s.get(t) }) })
	}
	t.Cleanup(s.halt)
	return s
}

func (s *staleReader) loop(fn func(i int)) {
	for i := 1; ; i++ {
		select {
		case <-s.stop:
			return
		default:
			fn(i)
			cluster.Pause(s.stop, 5*time.Millisecond)
		}
	}
}

func (s *staleReader) put(t *testing.T, i int) {
	err := put(t, s.write[i%len(s.write)], groupIDs(1)[0], staleKey, []byte(strconv.Itoa(i)))
	if err == nil {
		s.mu.Lock()
		s.acked = i
		s.mu.Unlock()
	}
}

func (s *staleReader) get(t *testing.T) {
	s.mu.Lock()
	before := s.acked
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	value, err := readKey(ctx, s.at, groupIDs(1)[0], staleKey, client.Linearizable)
	if err != nil {
		return
	}
	got, err := strconv.Atoi(string(value))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if before > 0 && (err != nil || got < before) {
		s.wrong = append(s.wrong, fmt.Sprintf("read %q when %d was acknowledged", value, before))
	}
}

func (s *staleReader) halt() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.wg.Wait()
}

// end stops and returns how many reads there were. None may have been stale.
func (s *staleReader) end(t *testing.T) int {
	t.Helper()
	s.halt()
	for _, w := range s.wrong {
		t.Error(w)
	}
	return s.reads
}
