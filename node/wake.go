package node

import (
	"cmp"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
)

// wakeReason says why a replica has woken.
type wakeReason uint8

const (
	wokenByNobody  wakeReason = iota // it has not slept
	wokenByRequest                   // a message, a request, a wish
	wokenByOthers                    // somebody does not sleep
	wokenByNode                      // the node of a member is another than it was
	wokenByTime                      // it has slept for long
	numWakeReasons
)

var wakeReasons = [numWakeReasons]string{
	wokenByNobody: "", wokenByRequest: "request", wokenByOthers: "awake_member",
	wokenByNode: "node", wokenByTime: "time",
}

const (
	// standsAtOnce is how many replicas of a worker stand for election in one tick when a
	// node is gone that led their groups.
	standsAtOnce = 256
	// standAside is how many heartbeats pass before the first stands for election, so that
	// the others miss the node as well. The others leave it an election timeout, and each as
	// many heartbeats to the one before.
	standAside = 2

	// longSleep is how long a leader sleeps before it sees whether the others are still
	// there, and callRollEvery how often a worker looks for those that have, in times that
	// a group must be idle to sleep.
	longSleep     = 200
	callRollEvery = 3
)

// fallAsleep has a replica sleep: nothing is done for it from now on.
func (w *worker) fallAsleep(r *replica) {
	s := &r.sleep
	if s.state == asleep {
		return
	}
	s.state, s.missing, s.since = asleep, nil, w.ticks
	r.rest()
	r.leaderless.Store(0)
	w.lookHalfway(r)
	w.node.metrics.asleep.Add(1)
	w.awake.leave()
}

// isAwake reports whether a replica is to be ticked.
func (w *worker) isAwake(r *replica) bool {
	return r.sleep.state != asleep && w.replicas[r.group] == r
}

// rouse has a replica stay awake because something happens to it.
func (w *worker) rouse(r *replica) {
	r.sleep.idle = 0
	w.wake(r, wokenByRequest)
}

// wake has a replica wake, if it sleeps or is about to.
func (w *worker) wake(r *replica, why wakeReason) {
	s := &r.sleep
	if s.state == awake {
		return
	}
	slept := s.state == asleep
	s.state, s.idle, s.missing = awake, 0, nil
	if !slept {
		s.idle = -w.node.cfg.ElectionTicks // not at once again
		return
	}
	soon := w.ticks-s.since < int64(maxSleepPause*w.node.cfg.SleepTicks)
	if soon && (why == wokenByRequest || why == wokenByOthers) {
		s.pause = min(max(2*s.pause, 2), maxSleepPause)
	} else {
		s.pause = 1
	}
	r.hearing.silent = 0
	s.unheard, s.wish = true, nil
	s.wakes++
	w.node.metrics.asleep.Add(-1)
	w.node.metrics.wakes[why].Add(1)
	w.awake.join(r)
	w.touch(r)
}

// lookAtNodes wakes the replicas for which something has changed outside of their groups.
func (w *worker) lookAtNodes() {
	before, now := w.nodes, w.node.liveness.load()
	dirs := w.node.directories.Load()
	moved := dirs != w.placedBy
	w.placedBy = dirs
	ids := now.changed(before)
	w.nodes = now
	if !moved && len(ids) == 0 {
		return
	}
	stands := 0
	for _, r := range w.those(believes) {
		switch {
		case moved:
		case !slices.ContainsFunc(r.meta.State.Descriptor.Members, func(m group.Member) bool {
			return slices.Contains(ids, m.Node)
		}):
			continue
		case mutant.On(mutant.NodeIgnored):
			continue
		}
		w.wake(r, wokenByNode)
		leader := r.nodeOf(r.leader.Leader)
		if leader != w.node.cfg.ID && lifeLost(before[leader], now[leader]) {
			w.shield(r, "lose the leader", func() { w.loseLeader(r, &stands) })
		}
	}
}

// callRoll wakes those that have slept for long, the leaders long before the others. Nothing
// is known that would need it. But what a group sleeps through by mistake it shall not sleep
// through for ever.
func (w *worker) callRoll() {
	often := int64(w.node.cfg.SleepTicks)
	if !w.node.cfg.sleeps() || w.ticks%(callRollEvery*often) != 0 {
		return
	}
	for _, r := range w.those(sleeps) {
		limit := longSleep * often
		if r.leader.Role != group.Leader {
			limit *= 3
		}
		// Those that fell asleep together do not wake together.
		if slept := w.ticks - r.sleep.since; slept > limit+int64(r.group%longSleep)*often {
			w.wake(r, wokenByTime)
			r.sleep.idle = w.node.cfg.SleepTicks - 3*w.node.cfg.HeartbeatTicks
		}
	}
}

// lifeLost reports whether what a node believed to lead is gone.
func lifeLost(before, now nodeView) bool {
	return before.state == nodeLives &&
		(now.state != nodeLives || now.life.process != before.life.process)
}

// sleeps reports whether a replica is not simply awake.
func sleeps(r *replica) bool { return r.sleep.state != awake }

// believes reports whether a replica believes in a leader because of its node: it sleeps, or
// has heard nothing of the leader since. One that has found out earlier that the node is gone
// may have woken it.
func believes(r *replica) bool { return sleeps(r) || r.sleep.unheard }

// those returns the replicas for which something is so, by group.
func (w *worker) those(so func(*replica) bool) []*replica {
	var rs []*replica
	for _, r := range w.replicas {
		if so(r) {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, byGroup)
	return rs
}

// loseLeader has a replica whose leader's node is gone stand for election soon: those who
// have slept all know that it is gone, so that nobody need wait for a timeout. The voters
// stand one after the other, each group in another order, and not all groups at once.
//
// With two at once each may vote for itself, and all begin again after a timeout. They do not
// find out at the same moment, and while thousands of groups elect their leaders, votes take
// their time. So the first has a whole timeout before the second stands, and raft's clock,
// which knows of no order, waits for that too.
func (w *worker) loseLeader(r *replica, stands *int) {
	rank, ok := w.rank(r)
	if err := r.raft.ForgetLeader(); err != nil || !ok {
		return // nothing that could be led, or nobody that could lead
	}
	s, wish := &r.sleep, r.sleep.wish
	s.stand = (rank+1)*standAside*w.node.cfg.HeartbeatTicks + *stands/standsAtOnce
	if rank > 0 {
		s.stand += w.node.cfg.ElectionTicks
	}
	s.unheard, s.wish, s.gaveWay = false, nil, false
	*stands++
	w.drain(r) // that nobody leads must be known before its clock goes on
	if wish != nil {
		w.takeMessage(r, wish)
	}
}

// hearCandidate notes that another member stands for election.
func (w *worker) hearCandidate(r *replica, in *inbound) {
	s := &r.sleep
	switch {
	case s.stand > 0 && !s.gaveWay:
		// It has a timeout from now on, but not again and again: it may be one that
		// cannot win.
		s.gaveWay = true
		s.stand = max(s.stand, w.node.cfg.ElectionTicks)
	case s.unheard && r.leader.Leader != 0:
		// Raft has refused it, for there is a leader. If that is gone it hears it again.
		wish := *in // what it is in is used again
		s.wish = &wish
	}
}

// rank returns how many others stand for election before this replica, if it does.
func (w *worker) rank(r *replica) (rank int, ok bool) {
	weight := func(id raftyard.NodeID) uint64 {
		x := (uint64(r.group) ^ uint64(id)<<32) * 0x9E3779B97F4A7C15
		return (x ^ x>>29) * 0xBF58476D1CE4E5B9
	}
	own := weight(w.node.cfg.ID)
	for _, m := range r.meta.State.Descriptor.Voters() {
		switch {
		case m.ID == r.id:
			ok = true
		case w.nodes[m.Node].state == nodeLives &&
			cmp.Or(cmp.Compare(weight(m.Node), own), cmp.Compare(m.ID, r.id)) < 0:
			rank++
		}
	}
	return rank, ok
}

// tickStand has a replica stand for election when it is its turn, unless somebody leads.
func (w *worker) tickStand(r *replica) {
	s := &r.sleep
	s.stand--
	switch {
	case r.leader.Leader != 0 || r.leader.Role != group.Follower:
		s.stand = 0 // it would give up an election that is under way
	case s.stand == 0 && w.node.isVouched(r):
		if err := r.raft.Campaign(); err != nil {
			r.logger().Warn("campaign", errAttr(err))
		}
	}
}
