//go:build unix

package bench

import (
	"errors"
	"io/fs"
	"math"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard/node"
	proc "github.com/raftyard/raftyard/test/cluster"
)

const (
	sampleEvery  = 50 * time.Millisecond
	profileEvery = 20 // samples
)

// A sample is what this process takes of memory, and what a node has received of snapshots, at
// a moment.
type sample struct {
	at       time.Time
	heap     int64 // bytes of objects in the heap, dead ones that are not collected included
	live     int64 // bytes of objects that the last collection has found alive
	kept     int64 // the same by the profile of the heap, without builders of tables
	own      int64 // bytes of memory that is no file's; zero: the system does not tell
	received int64
}

func heapUsed(s *sample) int64 { return s.heap }

func heapAlive(s *sample) int64 { return s.live }

func heapKept(s *sample) int64 { return s.kept }

func ownMemory(s *sample) int64 { return s.own }

// A watcher takes samples from a goroutine of its own, until it is stopped.
type watcher struct {
	node *node.Node
	got  atomic.Bool   // a snapshot has come since the beginning: it is being restored
	quit chan struct{} // closed to ask run to return
	done chan error    // holds one, when run has returned
	seen []sample      // run's until then
}

func watch(n *node.Node) *watcher {
	w := &watcher{node: n, quit: make(chan struct{}), done: make(chan error, 1)}
	go func() { w.done <- w.run() }()
	return w
}

// stop ends the watch, with a last sample. It is called once.
func (w *watcher) stop() error {
	close(w.quit)
	return <-w.done
}

func (w *watcher) run() error {
	clock := time.NewTicker(sampleEvery)
	defer clock.Stop()
	had := w.node.Metrics().SnapshotsReceived
	for last := false; ; {
		w.got.Store(w.node.Metrics().SnapshotsReceived > had)
		s, err := take(w.node)
		if err != nil {
			return err
		}
		if len(w.seen)%profileEvery == 0 {
			s.kept = withoutBuilders()
		}
		if w.seen = append(w.seen, s); last {
			return nil
		}
		select {
		case <-clock.C:
		case <-w.quit:
			last = true
		}
	}
}

func take(n *node.Node) (s sample, err error) {
	of := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(of)
	s.heap, s.live = int64(of[0].Value.Uint64()), int64(of[1].Value.Uint64())
	s.received = int64(n.Metrics().Transport.SnapshotBytesReceived)
	s.at = time.Now()
	s.own, err = anonymous()
	return s, err
}

// anonymous returns how many bytes of this process's memory are no file's; zero where the
// system does not tell.
func anonymous() (int64, error) {
	m, err := proc.MemoryOf("self")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return m.Anonymous, err
}

// withoutBuilders returns how many bytes of the heap were alive at the last collection but one at
// most, without what Badger builds its tables in. That is what [runtime.MemProfile] has sampled,
// and scaled as tools do that show it; a builder is too large not to be in it.
func withoutBuilders() (bytes int64) {
	records := make([]runtime.MemProfileRecord, 4096)
	n, ok := runtime.MemProfile(records, false)
	for !ok {
		records = make([]runtime.MemProfileRecord, 2*n)
		n, ok = runtime.MemProfile(records, false)
	}
	for i := range records[:n] {
		if r := &records[i]; !builds(r.Stack()) {
			each := float64(r.AllocBytes) / float64(r.AllocObjects)
			sampled := 1 - math.Exp(-each/float64(runtime.MemProfileRate))
			bytes += int64(float64(r.InUseBytes()) / sampled)
		}
	}
	return bytes
}

// builds reports whether memory that was allocated there is that of a builder of a table.
func builds(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "/z.NewAllocator") ||
			strings.HasSuffix(f.Function, "/z.(*Allocator).addBufferAt") {
			return true
		}
		if !more {
			return false
		}
	}
}
