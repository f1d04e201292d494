package node

import (
	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// steerToken marks the membership changes that a leader makes by itself.
type steerToken struct{}

// steerTo tells a replica what membership the registry wants for its group. It
// matters only to the leader, whichever it is by then.
func (n *Node) steerTo(r *replica, rec *registry.Group) {
	r.worker.box.control(func() {
		r.worker.guard(r, "steer", func() {
			if now := r.steering.want; now != nil && rec.Version < now.Version {
				return // a newer one has come first
			}
			r.steering.want = rec
			r.worker.steer(r)
			r.worker.touch(r)
		})
	})
}

// attend has a replica that has just come up told what the registry wants.
func (l *lifecycle) attend(r *replica) {
	if rec, ok := l.node.registry.Record(r.group); ok && l.isFresh() {
		l.compareGroup(rec, true)
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
	var want group.Want
	if s.holds(r) {
		want = group.Want{Voters: s.want.Voters, Learners: s.want.Learners}
	} else {
		if !d.IsJoint() && len(r.placed.lost)+len(s.damaged) == 0 {
			s.unmet, s.why = false, ""
			return
		}
		want = wantOf(d) // leave the joint state, and replace who is lost, whatever is wanted
	}
	want.Stores = w.node.known()
	st := r.raft.Status()
	s.offers.mark(st.Progress)
	s.markDamaged(st.Progress)
	step := group.Plan(d, want, st.Progress, r.id)
	s.unmet, s.why = step.Kind != group.StepDone, step.Why
	if !s.unmet && s.holds(r) && len(s.want.Before) > 0 {
		w.node.arrivals.note(s.want)
	}
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
			} else {
				s.offers.made(step.To, false)
			}
		}
	case group.StepDone, group.StepWait:
	}
	w.touch(r)
}

// holds reports whether it is known what members the group shall have.
func (s *steering) holds(r *replica) bool {
	return s.want != nil && (r.group != raftyard.SystemGroup || s.term == r.leader.Term)
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

func (n *Node) isClosing() bool {
	return isClosed(n.closing)
}

// leaderChanged publishes who leads.
func (w *worker) leaderChanged(r *replica, lc group.LeaderChange) {
	r.leader = lc
	r.note("%v in term %d, leader replica %d", lc.Role, lc.Term, lc.Leader)
	if lc.Role != group.Leader {
		r.steering.damaged = nil
	}
	if r.steering.offers.led(lc.Leader, r.id, w.node.cfg.ElectionTicks) {
		w.node.metrics.leadersShed.Add(1)
	}
	r.publish()
	w.node.noteLeader(r)
	r.endTransfer(lc.Leader, lc.Role) // who waits for it asks the new leader next
	w.steer(r)
}

// tickDeposed has it known that this replica leads no longer, though nothing that raft has to
// say comes out before the step under way is durable: on a disk without space that lasts.
// Nothing is vouched for by that. Who leads, and in which term, is told when there is a step.
func (w *worker) tickDeposed(r *replica) {
	if r.busy && r.leader.Role == group.Leader && !r.raft.Leads() {
		w.leaderChanged(r, group.LeaderChange{Role: group.Follower, Term: r.leader.Term})
	}
}

// stateChanged publishes a descriptor that is durable now.
func (w *worker) stateChanged(r *replica) {
	r.publish()
	w.node.noteChange()
	d := &r.meta.State.Descriptor
	r.note("members of epoch %d, by index %d: %d", d.Epoch, r.meta.State.Index, len(d.Members))
	w.steer(r)
}
