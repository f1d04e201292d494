package group

import (
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
)

// A Want is the membership that a group shall come to. A node in both lists is
// wanted as a voter.
type Want struct {
	Voters   []raftyard.NodeID
	Learners []raftyard.NodeID

	// Stores are the data directories of nodes. A member is lost if it was given to
	// another one than its node has now, and no node gets a replica whose directory is
	// not known. Nil: nobody minds directories.
	Stores map[raftyard.NodeID]NodeStore
}

// role returns the role that w wants the node to have.
func (w Want) role(node raftyard.NodeID) Role {
	switch {
	case slices.Contains(w.Voters, node):
		return Voter
	case slices.Contains(w.Learners, node):
		return Learner
	default:
		return absent
	}
}

// A StepKind says what a [Step] asks of the leader.
type StepKind uint8

// The kinds of steps.
const (
	// StepDone: the group is as wanted.
	StepDone StepKind = iota
	// StepWait: nothing can be done before a member has caught up or is back.
	StepWait
	// StepChange: propose Next.
	StepChange
	// StepLeave: propose Next, which ends a joint configuration.
	StepLeave
	// StepTransfer: hand leadership to replica To, whose node goes on with the plan.
	StepTransfer
)

// String returns the kind in lower case.
func (k StepKind) String() string {
	switch k {
	case StepDone:
		return "done"
	case StepWait:
		return "wait"
	case StepChange:
		return "change"
	case StepLeave:
		return "leave"
	case StepTransfer:
		return "transfer"
	default:
		return fmt.Sprintf("step(%d)", uint8(k))
	}
}

// A Step is what a leader must do next to bring its group to the wanted members.
type Step struct {
	Kind StepKind
	Next Descriptor         // for StepChange and StepLeave
	To   raftyard.ReplicaID // for StepTransfer
	Why  string
}

// catchUpLag is how many entries a member may lack to count as caught up. While a
// leader writes, a healthy follower lacks what is on its way; that is one or a few
// batches.
const catchUpLag = 64

// Plan returns the next step from d to want, for the leader self, which knows p of
// the members. It is a pure function of what is replicated and of p: whoever leads
// goes on from wherever the last leader stopped.
//
//	replace lost and damaged members by learners ─▶ add learners, drop unwanted ones ─▶
//	wait until they have caught up ─▶ swap voters, all at once ─▶
//	leave the joint configuration ─▶ done
//
// A leader that is not to stay a voter hands over first, so that the group is
// never without a leader for an election timeout. A change that would leave the
// voters without a live majority is not proposed.
func Plan(
	d Descriptor, want Want, p map[raftyard.ReplicaID]Progress, self raftyard.ReplicaID,
) Step {
	pl := planner{d: d, want: want, progress: p, self: self}
	if len(want.Voters) == 0 {
		return pl.wait("no voters are wanted")
	}
	if pl.isLost(self) {
		return pl.wait("the leader is damaged, or its own data directory has been replaced")
	}
	if d.IsJoint() {
		return pl.leave()
	}
	if step, ok := pl.replaceLost(); ok {
		return step
	}
	if step, ok := pl.changeLearners(); ok {
		return step
	}
	return pl.changeVoters()
}

type planner struct {
	d        Descriptor
	want     Want
	progress map[raftyard.ReplicaID]Progress
	self     raftyard.ReplicaID
}

func (pl planner) wait(format string, args ...any) Step {
	return Step{Kind: StepWait, Why: fmt.Sprintf(format, args...)}
}

// isLost reports whether a member is lost: with its directory, or because it is damaged.
// It does nothing any more, and another one must take its place.
func (pl planner) isLost(id raftyard.ReplicaID) bool {
	m, ok := pl.d.Member(id)
	return ok && (pl.progress[id].Damaged || pl.want.Stores[m.Node].Lost(m))
}

// active reports whether the member has been heard of lately, and is not lost.
func (pl planner) active(id raftyard.ReplicaID) bool {
	return id == pl.self || pl.progress[id].RecentActive && !pl.isLost(id)
}

// caughtUp reports whether the member is active and has nearly the whole log.
func (pl planner) caughtUp(id raftyard.ReplicaID) bool {
	return pl.active(id) && !pl.progress[id].NeedsState &&
		pl.progress[id].Match+catchUpLag >= pl.progress[pl.self].Match &&
		(id == pl.self || pl.progress[id].Match > 0)
}

// leave ends a joint configuration, whoever has begun it.
func (pl planner) leave() Step {
	leader, ok := pl.d.Member(pl.self)
	if ok && !leader.Role.newVoter() {
		// Who leaves must not be the one who knows that it is over: it would be gone
		// before it has told the others. There is somebody who can follow, or will be:
		// without a majority of those who come nobody can leave.
		if step, ok := pl.transfer(); ok && step.Kind == StepTransfer {
			return step
		}
		return pl.handOver(func(m Member) bool { return m.Role.newVoter() })
	}
	return Step{Kind: StepLeave, Next: pl.d.LeaveJoint(), Why: "leave the joint configuration"}
}

// transfer finds a successor if the leader is not to stay a voter. It is false if
// the leader stays, or if there is no member that could follow it yet: of the voters
// none is to stay, or those that are have not been heard of, and may never be again.
func (pl planner) transfer() (Step, bool) {
	leader, ok := pl.d.Member(pl.self)
	if !ok || pl.want.role(leader.Node) == Voter && leader.Role.newVoter() {
		return Step{}, false
	}
	wanted := func(m Member) bool {
		return m.ID != pl.self && pl.want.role(m.Node) == Voter && pl.active(m.ID)
	}
	if !slices.ContainsFunc(pl.d.Voters(), wanted) {
		return Step{}, false
	}
	return pl.handOver(wanted), true
}

// handOver gives the leadership to the one of some voters that has most of the log,
// or waits until one has caught up. One that has just not taken it, as it may reach the
// leader and nobody else, is passed over: proposals wait while an offer lasts.
func (pl planner) handOver(eligible func(Member) bool) Step {
	var best, declined raftyard.ReplicaID
	for _, m := range pl.d.Voters() {
		switch {
		case m.ID == pl.self || !eligible(m) || !pl.caughtUp(m.ID):
		case pl.progress[m.ID].Declined:
			declined = m.ID
		case best == 0 || pl.progress[m.ID].Match > pl.progress[best].Match:
			best = m.ID
		}
	}
	switch {
	case best == 0 && declined != 0:
		return pl.wait("replica %d has not taken the leadership when it was offered; "+
			"it is asked again later", declined)
	case best == 0:
		return pl.wait("no voter that stays has caught up to take the leadership")
	}
	return Step{
		Kind: StepTransfer, To: best,
		Why: fmt.Sprintf("replica %d leads and is not to stay a voter", pl.self),
	}
}

// replaceLost removes lost members and puts learners in the place of those that are
// wanted. Voters go one after the other: more at once would be a joint change, in which
// those who go are still members, and a node has one at most. That costs no safety,
// since no majority grows when one goes who is not there.
func (pl planner) replaceLost() (Step, bool) {
	var c Change
	var voter raftyard.ReplicaID
	for _, m := range pl.d.Members {
		switch {
		case !pl.isLost(m.ID) || m.Role == Voter && voter != 0:
			continue
		case m.Role == Voter:
			voter = m.ID
		}
		c.Remove = append(c.Remove, m.ID)
		if pl.want.role(m.Node) != absent {
			c.AddLearners = append(c.AddLearners, m.Node)
		}
	}
	if len(c.Remove) == 0 {
		return Step{}, false
	}
	if live, total := pl.after(&c, pl.active); voter != 0 && live <= total/2 {
		return pl.wait("replica %d is lost, but only %d of the %d other voters are alive",
			voter, live, total), true
	}
	return pl.propose(c, "replace lost members"), true
}

// missing returns the nodes that are wanted and have no member: those that can get one,
// and those of whose directory nothing is known.
func (pl planner) missing() (known, unknown []raftyard.NodeID) {
	for _, node := range slices.Concat(pl.want.Voters, pl.want.Learners) {
		_, has := pl.d.MemberOn(node)
		switch {
		case has || node == 0 || slices.Contains(known, node) || slices.Contains(unknown, node):
		case pl.want.Stores != nil && pl.want.Stores[node].Current.IsZero():
			unknown = append(unknown, node)
		default:
			known = append(known, node)
		}
	}
	return known, unknown
}

// changeLearners adds a learner on each node that is wanted and has no member, and
// removes learners from nodes that are not wanted.
func (pl planner) changeLearners() (Step, bool) {
	var c Change
	c.AddLearners, _ = pl.missing()
	for _, m := range pl.d.Members {
		if m.Role == Learner && pl.want.role(m.Node) == absent {
			c.Remove = append(c.Remove, m.ID)
		}
	}
	if len(c.AddLearners) == 0 && len(c.Remove) == 0 {
		return Step{}, false
	}
	return pl.propose(c, "add and remove learners"), true
}

// changeVoters promotes, demotes and removes all that is left to do, at once.
func (pl planner) changeVoters() Step {
	var c Change
	for _, m := range pl.d.Members {
		role := pl.want.role(m.Node)
		switch {
		case role == Voter && m.Role == Learner:
			c.Promote = append(c.Promote, m.ID)
		case role == Learner && m.Role == Voter:
			c.Demote = append(c.Demote, m.ID)
		case role == absent:
			c.Remove = append(c.Remove, m.ID)
		}
	}
	if step, wait := pl.awaitNodes(&c); wait {
		return step
	}
	if len(c.Promote)+len(c.Demote)+len(c.Remove) == 0 {
		return Step{Kind: StepDone}
	}
	if step, wait := pl.awaitLearners(&c); wait {
		return step
	}
	if live, total := pl.after(&c, pl.active); live <= total/2 {
		return pl.wait("only %d of the %d voters to be are alive", live, total)
	}
	if step, wait := pl.awaitStates(&c); wait {
		return step
	}
	if step, ok := pl.transfer(); ok {
		return step
	}
	return pl.propose(c, "swap voters")
}

// awaitStates reports whether c must wait because too many of the voters to be need a state
// first: without those who go nothing would be committed until then, and the only one who has
// the state may be one of those.
func (pl planner) awaitStates(c *Change) (Step, bool) {
	if len(c.Demote)+len(c.Remove) == 0 {
		return Step{}, false
	}
	able, total := pl.after(c, func(id raftyard.ReplicaID) bool {
		return pl.active(id) && !pl.progress[id].NeedsState
	})
	if able > total/2 {
		return Step{}, false
	}
	return pl.wait("only %d of the %d voters to be have what the log follows", able, total), true
}

// after counts the voters that there are after c, and those of them that are as they must
// be.
func (pl planner) after(c *Change, so func(raftyard.ReplicaID) bool) (are, total int) {
	for _, m := range pl.d.Members {
		stays := m.Role == Voter && !slices.Contains(c.Demote, m.ID) &&
			!slices.Contains(c.Remove, m.ID)
		if !stays && !slices.Contains(c.Promote, m.ID) {
			continue
		}
		total++
		if so(m.ID) {
			are++
		}
	}
	return are, total
}

// awaitNodes reports whether c must wait for nodes that cannot get a member yet: there
// is nothing else to do, or voters would go before those who are to follow them come.
func (pl planner) awaitNodes(c *Change) (Step, bool) {
	_, unknown := pl.missing()
	shrinks := len(c.Demote)+len(c.Remove) > 0
	for _, node := range unknown {
		if pl.want.role(node) == Voter && shrinks || len(c.Promote) == 0 && !shrinks {
			return pl.wait("node %d has not told its data directory yet", node), true
		}
	}
	return Step{}, false
}

// awaitLearners reports whether c must wait for the learners that it promotes. A
// swap of voters waits for all of them. A group that only grows takes those that
// have caught up, if the others, which may be down, would not be needed for a live
// majority: a second copy now is better than three some day.
func (pl planner) awaitLearners(c *Change) (Step, bool) {
	ready := make([]raftyard.ReplicaID, 0, len(c.Promote))
	var late raftyard.ReplicaID
	for _, id := range c.Promote {
		if pl.caughtUp(id) {
			ready = append(ready, id)
		} else {
			late = id
		}
	}
	if late == 0 {
		return Step{}, false
	}
	if len(ready) == 0 || len(c.Demote)+len(c.Remove) > 0 || !pl.slow(late) {
		return pl.wait("learner %d has not caught up", late), true
	}
	c.Promote = ready
	return Step{}, false
}

// slow reports whether a learner will not catch up soon, as far as can be seen.
func (pl planner) slow(id raftyard.ReplicaID) bool { return !pl.active(id) }

func (pl planner) propose(c Change, why string) Step {
	c.Stores = pl.want.Stores
	next, err := pl.d.Apply(c)
	if err != nil {
		return pl.wait("cannot %s: %v", why, err)
	}
	return Step{Kind: StepChange, Next: next, Why: why}
}
