package node

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// steerToken marks the membership changes that a leader makes by itself.
type steerToken struct{}

// transfer is a handover of leadership that somebody waits for.
type transfer struct {
	to    raftyard.ReplicaID
	done  chan error // holds one
	ticks int
	tries int
}

// steerTo tells a replica what membership the registry wants for its group. It
// matters only to the leader, whichever it is by then.
func (n *Node) steerTo(r *replica, rec registry.Group) {
	r.worker.box.control(func() {
		r.worker.guard(r, "steer", func() {
			if rec.Version < r.steering.want.Version {
				return // a newer one has come first
			}
			r.steering.want, r.steering.known = rec, true
			r.worker.steer(r)
			r.worker.touch(r)
		})
	})
}

// attend has a replica that has just come up told what the registry wants.
func (l *lifecycle) attend(r *replica) {
	if rec, ok := l.node.registry.Group(r.group); ok && l.isFresh() {
		l.compareGroup(&rec)
	}
}

// steer makes the next step from the group's members to the wanted ones, if this
// replica leads. Any later leader goes on from wherever the group is.
func (w *worker) steer(r *replica) {
	s := &r.steering
	if r.leader.Role != group.Leader || w.node.isClosing() {
		return
	}
	if s.changing || s.transfer != nil {
		s.unmet, s.why = true, "another change or a transfer is under way"
		return // the next tick looks again
	}
	d := r.meta.State.Descriptor
	want := group.Want{Voters: s.want.Voters, Learners: s.want.Learners}
	if !s.holds(r) {
		if !d.IsJoint() && len(r.placed.lost) == 0 {
			s.unmet, s.why = false, ""
			return
		}
		want = wantOf(d) // leave the joint state, and replace who is lost, whatever is wanted
	}
	want.Stores = w.node.known()
	st := r.raft.Status()
	step := group.Plan(d, want, st.Progress, r.id)
	s.unmet, s.why = step.Kind != group.StepDone, step.Why
	switch step.Kind {
	case group.StepChange, group.StepLeave:
		if err := r.raft.ChangeMembers(step.Next, steerToken{}); err != nil {
			s.why = err.Error()
			return
		}
		s.changing = true
	case group.StepTransfer:
		if st.Transferee == 0 {
			if err := r.raft.TransferLeader(step.To); err != nil {
				s.why = err.Error()
			}
		}
	case group.StepDone, group.StepWait:
	}
	w.touch(r)
}

// holds reports whether it is known what members the group shall have.
func (s *steering) holds(r *replica) bool {
	return s.known && (r.group != raftyard.SystemGroup || s.term == r.leader.Term)
}

// wantOf is the membership that a group has, or is about to have.
func wantOf(d group.Descriptor) group.Want {
	var want group.Want
	for _, m := range d.Members {
		switch m.Role {
		case group.Voter, group.Incoming:
			want.Voters = append(want.Voters, m.Node)
		case group.Learner, group.Demoting:
			want.Learners = append(want.Learners, m.Node)
		case group.Outgoing:
		}
	}
	return want
}

// changed hears how a change of ours ended. Done or not, the plan is made anew
// from where the group is now.
func (w *worker) changed(r *replica, err error) {
	r.steering.changing = false
	if err != nil {
		r.steering.unmet = true
		r.steering.why = err.Error()
		return // the next tick tries again
	}
	w.node.noteChange()
}

// beginTransfer hands the leadership to a member, after checking that it can
// take it. The answer comes when it has happened, or when it has not.
func (w *worker) beginTransfer(r *replica, to raftyard.NodeID, done chan error) {
	err := w.checkTransfer(r, to)
	m, _ := r.meta.State.Descriptor.MemberOn(to)
	if err == nil && m.ID == r.id {
		done <- nil
		return
	}
	if err == nil {
		if err = r.raft.TransferLeader(m.ID); err != nil {
			err = fmt.Errorf("%w: %w", ErrTransfer, err)
		}
	}
	if err != nil {
		done <- err
		return
	}
	r.steering.transfer = &transfer{to: m.ID, done: done}
	w.touch(r)
}

// checkTransfer returns why the node cannot be given the leadership.
func (w *worker) checkTransfer(r *replica, to raftyard.NodeID) error {
	m, ok := r.meta.State.Descriptor.MemberOn(to)
	st := r.raft.Status()
	p := st.Progress[m.ID]
	switch {
	case st.Role != group.Leader:
		return &NotLeaderError{Group: r.group, Leader: r.nodeOf(st.Leader)}
	case !ok:
		return fmt.Errorf("%w: node %d is not a member of group %d", ErrTransfer, to, r.group)
	case m.ID == r.id:
		return nil
	case w.node.isDrained(to):
		return fmt.Errorf("%w: node %d is drained", ErrTransfer, to)
	case m.Role != group.Voter && m.Role != group.Incoming:
		return fmt.Errorf("%w: node %d is a %v", ErrTransfer, to, m.Role)
	case r.steering.transfer != nil || st.Transferee != 0:
		return fmt.Errorf("%w: another transfer is under way", ErrTransfer)
	case !p.RecentActive:
		return fmt.Errorf("%w: node %d does not answer%w", ErrTransfer, to, errNotYet)
	case p.Match+maxTransferLag < st.Last:
		return fmt.Errorf("%w: node %d is %d entries behind%w",
			ErrTransfer, to, st.Last-p.Match, errNotYet)
	}
	return nil
}

// errNotYet marks a reason that may be gone in a moment: raft forgets who was
// active at every election timeout, and a new member catches up. It has no text.
var errNotYet = errors.New("")

// maxTransferTries is how often a transfer is begun again that raft gave up.
const maxTransferTries = 3

// maxTransferLag is how far behind a member may be that is to take over.
const maxTransferLag = 1000

// tickTransfer ends a transfer that has happened, or has failed.
func (w *worker) tickTransfer(r *replica) {
	t := r.steering.transfer
	if t == nil {
		return
	}
	t.ticks++
	st := r.raft.Status()
	var err error
	switch {
	case st.Leader == t.to:
	case t.ticks > (maxTransferTries+1)*w.node.cfg.ElectionTicks:
		err = fmt.Errorf("%w: replica %d has not taken over in time", ErrTransfer, t.to)
	case st.Role == group.Leader && st.Transferee == 0:
		// Raft gave up, as it does after an election timeout.
		if t.tries++; t.tries < maxTransferTries {
			if err = r.raft.TransferLeader(t.to); err == nil {
				return
			}
		}
		err = fmt.Errorf("%w: replica %d did not take over: %w", ErrTransfer, t.to,
			cmp.Or(err, errors.New("it did not win an election in time")))
	case st.Role != group.Leader && st.Leader != 0:
		err = fmt.Errorf("%w: replica %d leads now", ErrTransfer, st.Leader)
	default:
		return
	}
	r.steering.transfer = nil
	t.done <- err
}

func (n *Node) isClosing() bool {
	return isClosed(n.closing)
}

// transferHere has the worker hand the leadership over; the channel gets the answer.
func (n *Node) transferHere(r *replica, to raftyard.NodeID) (chan error, error) {
	done := make(chan error, 1)
	ok := r.worker.box.control(func() {
		err := errors.Join(ErrFaulty, errNotServing)
		r.worker.guard(r, "transfer leadership", func() {
			err = nil
			r.worker.beginTransfer(r, to, done)
		})
		if err != nil {
			done <- err
		}
	})
	if !ok {
		return nil, ErrClosed
	}
	return done, nil
}
