package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/world"
)

// rest lets time pass in which nobody asks anything, and sees that nothing changes
// and that what is bounded is within its bounds. It reports whether the run goes on.
//
// Who votes in the system group may change when all else has come to rest: nodes ask each
// other only now and then how their disks are. After that it has to be at rest.
func (w *World) rest() bool {
	left := restAgain
	for why := w.moves(); why != nil; why = w.moves() {
		if w.failure != nil || w.turns.Err() != nil {
			return false
		}
		if left--; left < 0 || !errors.Is(why, errMembersMove) {
			w.fail("rule 18 (at rest)", why)
			return false
		}
	}
	if w.failure != nil || w.turns.Err() != nil {
		return false
	}
	w.measure()
	w.judge()
	return w.failure == nil
}

// restAgain is how often members of the system group may change one after the other.
const restAgain = 5

// errMembersMove: the members of the system group have changed.
var errMembersMove = errors.New("the members of the system group change")

// moves returns what changes while nobody asks anything, or nil.
func (w *World) moves() error {
	before, epoch := w.stands(), w.systemEpoch()
	end := w.turns.Time() + restFor
	w.turns.At(int64(end), func() {})
	if !w.turns.Until(func() bool { return w.turns.Time() >= end }) {
		return nil // the run has ended
	}
	after := w.stands()
	if w.systemEpoch() != epoch {
		return errMembersMove
	}
	for i := range min(len(before), len(after)) {
		if before[i] != after[i] {
			return fmt.Errorf("nobody asks anything, and a replica goes from %+v to %+v",
				before[i], after[i])
		}
	}
	if len(before) != len(after) {
		return fmt.Errorf("nobody asks anything, and of %d replicas there are %d",
			len(before), len(after))
	}
	return nil
}

// systemEpoch returns the newest epoch of the system group that any replica has.
func (w *World) systemEpoch() (epoch uint64) {
	w.replicas(func(_ *host, r *world.Replica) {
		if r.Group == raftyard.SystemGroup {
			epoch = max(epoch, r.State.Descriptor.Epoch)
		}
	})
	return epoch
}

// restFor is how long a cluster that is well must not change.
const restFor = time.Second

// stand is where a replica is, and how far.
type stand struct {
	group                       raftyard.GroupID
	node                        raftyard.NodeID
	id                          raftyard.ReplicaID
	term, commit, applied, last uint64
}

// stands returns how far every replica is.
func (w *World) stands() (all []stand) {
	w.replicas(func(h *host, r *world.Replica) {
		all = append(all, stand{r.Group, h.id, r.ID, r.Term, r.Commit, r.Applied, r.Last})
	})
	return all
}

// replicas calls fn with every replica that serves.
func (w *World) replicas(fn func(*host, *world.Replica)) {
	for _, h := range w.hosts {
		if h.examine == nil || h.lost {
			continue
		}
		h.look()
		for i := range h.seen.Replicas {
			if r := &h.seen.Replicas[i]; r.Serving && r.Fault == nil {
				fn(h, r)
			}
		}
	}
}

// The bounds of a node at rest.
const (
	maxProcesses = 40 // whatever it has done before, with questions to six others under way
	maxSnapshots = 1  // files of a replica
	maxSurplus   = 32 // entries that came while a snapshot was taken
)

// measure tells the checker how much there is of what has a bound.
func (w *World) measure() {
	holders := w.holders()
	w.replicas(func(h *host, r *world.Replica) {
		if r.LogOnly && holders[r.Group].any == "" {
			return // nobody has the state that it needs
		}
		w.check.Measured(fmt.Sprintf("the log of group %d on node %d", r.Group, h.id),
			logLength(r), w.mostEntries(h, r))
	})
	for _, h := range w.hosts {
		if h.examine == nil || h.lost {
			continue
		}
		w.check.Measured(fmt.Sprintf("the number of processes of node %d", h.id),
			int64(len(h.st.Processes())), maxProcesses)
		w.measureFiles(h)
	}
}

// uses reports whether a directory is that of a replica which the node has.
func (h *host) uses(dir string) bool {
	return slices.ContainsFunc(h.seen.Replicas, func(r world.Replica) bool {
		return dir == fmt.Sprintf("%d-%s-%d", r.Group, r.Incarnation.String()[:8], r.ID)
	})
}

// measureFiles counts the directories of replicas, and the snapshots in each.
func (w *World) measureFiles(h *host) {
	const root = "/data/replicas"
	files := h.disk.Files()
	dirs, err := files.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.fail("files", err)
		return
	}
	if !h.lacks { // or else what state machines have left may wait for them
		w.check.Measured(fmt.Sprintf("the number of directories of node %d", h.id),
			int64(len(dirs)), int64(len(h.seen.Replicas)))
	}
	for _, dir := range dirs {
		if strings.HasSuffix(dir, ".left") {
			continue // a note of what is still to be deleted
		}
		most := int64(maxSnapshots)
		if !h.uses(dir) {
			most = 0 // what is there waits for the state machine of a replica that is no more
		}
		names, err := files.ReadDir(path.Join(root, dir))
		if err != nil {
			w.fail("files", err)
			return
		}
		w.check.Measured(fmt.Sprintf("the number of snapshots in %s of node %d", dir, h.id),
			int64(snapshotsAmong(names)), most)
	}
}

// snapshotsAmong counts the files of snapshots.
func snapshotsAmong(names []string) (count int) {
	for _, name := range names {
		if strings.HasPrefix(name, "snapshot-") || strings.HasPrefix(name, "incoming-") {
			count++
		}
	}
	return count
}
