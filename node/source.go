package node

import (
	"errors"
	"fmt"
	"io"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// A leader whose state machine cannot give a view of its state cannot bring up a member
// that is too far behind. It tries again ever more rarely, and hands the leadership to a
// voter that may do better; see handback.go.

// errSource: the state machine could not give its state. Whose snapshot it was is well.
var errSource = errors.New("the state machine gave no snapshot")

// maxSourcePause is how long a leader waits at the most until it tries again, and after
// how long without leading earlier failures are forgotten, in election timeouts.
const maxSourcePause = 16

// sourcing is what a replica remembers of snapshots that its state machine did not give.
type sourcing struct {
	failed int    // how often in a row
	fault  string // why, the last time
	pause  int    // ticks until raft is told, and tries again
	due    []raftyard.ReplicaID
	idle   int // ticks without leading
}

// sourceFailed hears that there was no snapshot to be sent to a member. Raft waits until it
// is told.
func (w *worker) sourceFailed(r *replica, to raftyard.ReplicaID, err error) {
	s, timeout := &r.source, w.node.cfg.ElectionTicks
	if s.failed == 0 {
		r.note("no snapshot for others: %v", err)
		w.node.stoodStill.Store(true) // others are looked for
	}
	s.failed++
	s.fault, s.idle = err.Error(), 0
	s.due = append(s.due, to)
	if s.pause == 0 {
		s.pause = min(timeout<<min(s.failed, 8), maxSourcePause*timeout)
	}
}

// sourceWorks hears that a snapshot was sent.
func (r *replica) sourceWorks() {
	r.source.failed, r.source.fault = 0, ""
}

// tickSource tells raft of failed snapshots when it may try again.
func (w *worker) tickSource(r *replica) {
	s := &r.source
	if r.leader.Role != group.Leader {
		if s.idle++; s.idle > maxSourcePause*w.node.cfg.ElectionTicks {
			s.failed, s.fault = 0, ""
		}
	}
	if s.pause == 0 {
		return
	}
	if s.pause--; s.pause > 0 {
		return
	}
	for _, to := range s.due {
		r.raft.ReportSnapshot(to, false)
	}
	s.due = nil
	w.touch(r)
}

// cannotServe reports whether another replica would lead the group better: one with a
// state machine that works, and can be copied.
func (r *replica) cannotServe() bool {
	return r.machine.logOnly.Load() || r.source.failed > 0
}

// sourced is a snapshot that knows whether it was its own fault that it was not written.
type sourced struct {
	group.Snapshot
	fault error
}

// WriteTo writes the snapshot.
func (s *sourced) WriteTo(w io.Writer) (n int64, err error) {
	to := &witnessed{to: w}
	if n, err = s.Snapshot.WriteTo(to); err != nil && !to.failed {
		s.fault = fmt.Errorf("%w: %w", errSource, err)
	}
	return n, err
}

// witnessed is a writer that knows whether it has failed.
type witnessed struct {
	to     io.Writer
	failed bool
}

// Write implements io.Writer.
func (w *witnessed) Write(b []byte) (n int, err error) {
	n, err = w.to.Write(b)
	w.failed = w.failed || err != nil
	return n, err
}
