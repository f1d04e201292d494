package sim

import (
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb" //nolint:depguard // a simulated one's options
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// What the bits of N say of a revert.
const (
	revertEmptied = 1 << iota // the image is of a disk that was lost, and made up for, since
	revertAtOnce              // it is taken whatever goes on
	revertTwice               // the node starts twice after it was taken, not once
	revertAgain               // how often the copy is started again: from here on
)

// revert takes an image of a node's disk, and has the node start from it when it has
// started since and the others know: they must not listen to it, however often it is
// started, also when they start again themselves. It is gone after a while, and the node
// comes back with an empty disk.
func revert(w *World, f *Fault) {
	h := w.host(f.Node)
	var image *simdisk.Disk
	var from uint64 // the start from which on the image is old enough
	emptied := f.N&revertEmptied == 0
	w.every(50*time.Millisecond, func() bool {
		switch {
		case !w.working || h.isGone():
			return true
		case h.lost: // until it is taken in again
		case image != nil && !emptied:
			if emptied = w.dispensable(f.Node); emptied {
				w.counts.Wipes++
				from = h.starts + 1
				h.wipe()
			}
		case image == nil && (f.N&revertAtOnce != 0 || w.dispensable(f.Node)):
			from = h.starts + 1
			if h.state == down {
				from++ // it may be about to start
			}
			if f.N&revertTwice != 0 {
				from++
			}
			image = h.image()
			return image == nil
		case image == nil:
		case h.starts < from && h.state == running:
			w.kill(f.Node, time.Millisecond)
		case h.starts >= from && w.dispensable(f.Node) && w.noted(h):
			h.startFrom(image, f.For, int(f.N/revertAgain))
			return true
		}
		return false
	})
}

// image crashes the node and returns a copy of its disk, or nil if the run has failed.
func (h *host) image() *simdisk.Disk {
	h.w.crash(h.id, time.Millisecond)
	image, err := copyDisk(h.disk, newDice(h.w.cfg.Seed, streamMore+1).Uint64)
	if err != nil {
		h.w.fail("image of a disk", err)
		return nil
	}
	return image
}

// startFrom starts the node from an older copy of its disk, and some times again within d,
// in which it is gone.
func (h *host) startFrom(image *simdisk.Disk, d time.Duration, again int) {
	w := h.w
	w.counts.Reverts++
	h.log("starts from an older copy of its disk", "")
	h.lost, h.stale, h.seen = true, true, check.Examined{}
	h.wanted = false
	h.crash((*simdisk.Disk).Kill, check.LostAll)
	image.BeforeSync, image.Until = h.disk.BeforeSync, h.disk.Until
	h.disk = image
	s := &shunned{last: h.boots}
	s.look(w.turns.Time(), w.notedStart(h.id))
	h.startCopy(s)
	for i := range again {
		w.turns.After(d/time.Duration(again+1)*time.Duration(i+1), func() {
			if h.stale {
				h.startCopy(s)
			}
		})
	}
	w.turns.After(d, h.wipe)
}

// startCopy starts the node, which has an older copy of its disk, once more.
func (h *host) startCopy(s *shunned) {
	w := h.w
	h.crash((*simdisk.Disk).Kill, check.LostNothing)
	h.start()
	st := h.st
	w.every(20*time.Millisecond, func() bool {
		if h.st != st || h.state == down {
			return true
		}
		for _, o := range s.wronglyBy(w.net.Connected(h.id, s.at)) {
			w.fail("rule 14 (quarantine)", fmt.Errorf(
				"node %d runs an older copy of its disk, and node %d listens to it", h.id, o))
		}
		s.look(w.turns.Time(), w.notedStart(h.id))
		return false
	})
}

// A shunned is a node on an older copy of its disk. Whoever has noted its last start must
// not connect with it any more. Who has not, because it knows nothing of the cluster yet,
// cannot tell, and may note a start of the copy.
type shunned struct {
	last   uint64 // start before the copy was put in its place
	at     time.Duration
	knew   []raftyard.NodeID // those who had noted it then
	fooled []raftyard.NodeID // those who had not, and were connected
}

// look takes note of who knows now of the last start.
func (s *shunned) look(now time.Duration, noted map[raftyard.NodeID]uint64) {
	s.at, s.knew = now, nil
	for id, start := range noted {
		if start >= s.last && !slices.Contains(s.fooled, id) {
			s.knew = append(s.knew, id)
		}
	}
}

// wronglyBy returns those who ought to have refused a connection that has come up since.
func (s *shunned) wronglyBy(connected []raftyard.NodeID) (wrong []raftyard.NodeID) {
	for _, id := range connected {
		switch {
		case slices.Contains(s.knew, id):
			wrong = append(wrong, id)
		case !slices.Contains(s.fooled, id):
			s.fooled = append(s.fooled, id)
		}
	}
	return wrong
}

// notedStart returns the start of a node that each of the others has noted.
func (w *World) notedStart(of raftyard.NodeID) map[raftyard.NodeID]uint64 {
	noted := make(map[raftyard.NodeID]uint64)
	for _, o := range w.hosts {
		if o.id != of && o.seen.Starts != nil {
			noted[o.id] = o.seen.Starts.Noted(of)
		}
	}
	return noted
}

// noted reports whether all the others have noted the node's last start.
func (w *World) noted(h *host) bool {
	noted := w.notedStart(h.id)
	return !slices.ContainsFunc(w.hosts, func(o *host) bool {
		return o != h && o.in && noted[o.id] < h.boots
	})
}

// copyDisk returns a disk with what is to be seen on one that nobody uses.
func copyDisk(from *simdisk.Disk, dice func() uint64) (*simdisk.Disk, error) {
	to := simdisk.New(dice)
	return to, copyTree(from, to, "/")
}

func copyTree(from, to *simdisk.Disk, at string) error {
	names, err := from.Files().ReadDir(at)
	if err != nil {
		return copyDB(from, to, at)
	}
	if err := to.Files().MkdirAll(at); err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(at, name)
		b, err := from.Files().ReadFile(p)
		if err != nil {
			err = copyTree(from, to, p)
		} else {
			err = writeFile(to, p, b)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", p, err)
		}
	}
	return to.Files().SyncDir(at)
}

func writeFile(to *simdisk.Disk, p string, b []byte) error {
	f, err := to.Files().Create(p)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// copyDB copies a database, with the versions of what is in it.
func copyDB(from, to *simdisk.Disk, dir string) error {
	type pair struct {
		key, value []byte
		version    uint64
	}
	var pairs []pair
	source, err := from.OpenDB(badgerdb.Options{Dir: dir})
	if err != nil {
		return err
	}
	view := source.Snapshot()
	err = view.Scan(func(key, value []byte, version uint64) error {
		pairs = append(pairs, pair{slices.Clone(key), slices.Clone(value), version})
		return nil
	})
	view.Discard()
	if err != nil {
		return err
	}
	if err = source.Close(); err != nil {
		return err
	}
	target, err := to.OpenDB(badgerdb.Options{Dir: dir})
	if err != nil {
		return err
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return int(a.version) - int(b.version) })
	for version := uint64(2); len(pairs) > 0; version++ { // databases begin with 1
		err := target.Commit(func(w kv.Writer) error {
			for len(pairs) > 0 && pairs[0].version <= version {
				if err := w.Set(pairs[0].key, pairs[0].value); err != nil {
					return err
				}
				pairs = pairs[1:]
			}
			return w.Delete([]byte("nothing")) // so that each is a commit
		})
		if err != nil {
			return err
		}
	}
	return target.Close()
}
