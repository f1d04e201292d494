package node

import (
	"slices"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/transport"
)

// A group that has nothing to do sleeps: none of its replicas is ticked, sends anything, or
// writes anything, and instead of the leader's heartbeats the beats of the nodes tell that
// all is well.
//
//	          idle, at rest              all have agreed
//	 awake ───────────────────▶ asking ─────────────────▶ asleep     the leader
//	   ▲                          │                          │
//	   └──────────────────────────┴──────────────────────────┘
//	      anything happens; somebody does not agree, or does not answer
//
//	 awake ──────── asked, at rest: agrees ─────────▶ asleep         the others
//	   ▲                                                │
//	   └──────────────── anything happens ──────────────┘
//
// Whatever concerns a replica wakes it: a message, a request, a wish of the registry or of
// an operator. So does every change of what is known of the node of one of its members. A
// replica therefore sleeps only while each of these nodes is in the turn of the life in
// which it was when the group went to sleep, and what a leader has forgotten with a restart
// nobody goes on believing. Members whose nodes are gone do not keep a group awake: when
// their nodes are back it wakes.
//
// Nothing of this is needed for safety. A leader that sleeps may have been replaced, as one
// that stands still may; it finds out when it is asked for something.

// sleepState says whether a replica is ticked.
type sleepState uint8

const (
	awake  sleepState = iota
	asking            // it leads, has asked the others to sleep, and is silent meanwhile
	asleep
)

const (
	// maxSleepPause bounds how much longer a group stays awake that was woken soon each time
	// it slept.
	maxSleepPause = 16
	// maxMembersAsleep bounds the members of a group that may sleep: each has a bit in what
	// the leader says.
	maxMembersAsleep = 64
)

// sleeping is what a replica has to do with sleep.
type sleeping struct {
	state   sleepState
	idle    int                  // ticks since something happened, or until it asks again
	pause   int                  // so many times as long as usual it stays awake
	left    int                  // ticks for which it waits for answers
	missing []raftyard.ReplicaID // who has not answered
	behind  uint64               // members on nodes that are gone, as it was when it has asked
	index   uint64               // about which it has asked
	since   int64                // when it fell asleep, in ticks of its worker
	wakes   uint64
	stand   int      // ticks until it stands for election; zero: it does not
	gaveWay bool     // another one has stood since
	unheard bool     // it has woken, and has heard nothing of its leader since
	wish    *inbound // to be elected, of one that it has refused because of that leader
}

// sleepNote is what somebody says about sleep.
type sleepNote struct {
	transport.Notice

	from    raftyard.ReplicaID
	epoch   uint64
	process uuid.UUID // that has sent it
}

// noticeOfSleep hands on what somebody says about sleep who may.
func (n *Node) noticeOfSleep(r *replica, from *transport.Identity, env *transport.Envelope) {
	if n.misplaced(r, from, env) || n.isHeld(r, from.Node, false) || n.fromRemoved(r, env) {
		n.metrics.messagesRefused.Add(1)
		return
	}
	n.deliver(inbound{r: r, from: from.Node, sleep: &sleepNote{
		Notice: *env.Notice, from: env.From.Replica, epoch: env.Epoch, process: from.Process,
	}})
}

// tickSleep lets a replica that is awake come nearer to its sleep.
func (w *worker) tickSleep(r *replica) {
	s := &r.sleep
	if s.stand > 0 {
		w.tickStand(r)
	}
	if !w.node.cfg.sleeps() || r.group == raftyard.SystemGroup {
		return
	}
	switch {
	case s.state == asking:
		if s.left--; s.left <= 0 {
			w.wake(r, wokenByNobody)
		}
	case r.leader.Role == group.Leader:
		if s.idle++; s.idle >= w.node.cfg.SleepTicks*max(s.pause, 1) {
			w.askToSleep(r)
		}
	case r.leader.Leader != 0:
		w.tickHush(r)
	}
}

// tickHush has a replica that hears nothing of its leader, whose node lives, tell it so. It
// may sleep, because it did not hear that this replica does not.
func (w *worker) tickHush(r *replica) {
	half := max(w.node.cfg.ElectionTicks/2, w.node.cfg.HeartbeatTicks+1)
	if r.hearing.silent < half || r.hearing.silent%half != 0 {
		return
	}
	if w.nodes[r.nodeOf(r.leader.Leader)].state == nodeLives {
		w.answerSleep(r, r.leader.Leader, transport.NoticeAwake)
	}
}

// askToSleep has a leader ask the others to sleep, if it could sleep itself.
func (w *worker) askToSleep(r *replica) {
	s := &r.sleep
	behind, others, ok := w.mayAsk(r)
	if !ok {
		// It looks again, not in step with raft, which forgets now and then who was active.
		s.idle -= healthEvery(w.node.cfg.ElectionTicks)
		return
	}
	at := r.raft.Position()
	s.index, s.behind, s.missing = at.Last, behind, others
	if len(others) == 0 || mutant.On(mutant.SleepUnasked) {
		w.fallAsleep(r)
		return
	}
	s.state = asking
	s.left = max((w.node.cfg.ElectionTicks-w.node.cfg.HeartbeatTicks)/2, 1)
	for _, id := range others {
		w.say(r, id, transport.Notice{
			Kind: transport.NoticeSleep, Turn: w.node.liveness.turn.Load(), Behind: behind,
			Index: at.Last, Term: at.Term,
		})
	}
}

// mayAsk reports whether a leader could sleep, whom it must ask, and which members are on
// nodes that are gone.
func (w *worker) mayAsk(r *replica) (behind uint64, others []raftyard.ReplicaID, ok bool) {
	s := &r.steering
	if s.changing || s.unmet || s.want == nil || s.transfer != nil || s.offers.to != 0 ||
		len(s.damaged) > 0 || r.source.pause > 0 || r.cannotServe() || !w.mayRest(r) {
		return 0, nil, false
	}
	behind, ok = w.gone(r)
	if !ok {
		return 0, nil, false
	}
	st := r.raft.Status()
	var down []raftyard.NodeID
	for i, m := range r.meta.State.Descriptor.Members {
		p, known := st.Progress[m.ID]
		switch {
		case m.ID == r.id:
		case !known:
			return 0, nil, false
		case behind&(1<<i) != 0:
			down = append(down, m.Node)
		case p.RecentActive && (p.Match == st.Last && p.State == "replicate" ||
			mutant.On(mutant.SleepUnasked)):
			others = append(others, m.ID)
		default:
			return 0, nil, false
		}
	}
	// What it has published of its members is all that others will see.
	return behind, others, w.hasQuorum(r, behind) && r.hasPublished(&ailing{Down: down})
}

// hasPublished reports whether it has published just that of its members.
func (r *replica) hasPublished(a *ailing) bool {
	old := r.ailing.Load()
	return old != nil && old.equal(a)
}

// without returns the nodes that were gone when a leader fell asleep.
func (r *replica) without() (nodes []raftyard.NodeID) {
	for i, m := range r.meta.State.Descriptor.Members {
		if i < maxMembersAsleep && r.sleep.behind&(1<<i) != 0 {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// hasQuorum reports whether a majority of the voters are on nodes that live.
func (w *worker) hasQuorum(r *replica, behind uint64) bool {
	voters, live := 0, 0
	for i, m := range r.meta.State.Descriptor.Members {
		if m.Role == group.Voter {
			voters++
			if behind&(1<<i) == 0 {
				live++
			}
		}
	}
	return live > voters/2
}

// gone returns which members of the group are on nodes that are gone, with a bit for each,
// and whether all the others are on nodes that live.
func (w *worker) gone(r *replica) (behind uint64, ok bool) {
	members := r.meta.State.Descriptor.Members
	if len(members) > maxMembersAsleep {
		return 0, false
	}
	for i, m := range members {
		if m.Node == w.node.cfg.ID {
			continue
		}
		switch w.nodes[m.Node].state {
		case nodeLives:
		case nodeGone:
			behind |= 1 << i
		case nodeUnknown:
			return 0, false
		}
	}
	return behind, true
}

// mayRest reports whether there is nothing to be done for the replica, for the group or for
// itself.
func (w *worker) mayRest(r *replica) bool {
	n := w.node
	w.drain(r)
	switch {
	case r.busy || !r.raft.AtRest():
		return false
	case n.slow.muted.Load() || n.isClosing() || !n.isVouched(r) || r.movedDirectories():
		return false
	case r.told != nil || r.suspect.Load() || r.opening || len(r.reads) > 0:
		return false
	case r.placed.self || len(r.placed.lost) > 0:
		return false
	case r.staged != nil || r.receiving.Load() || r.snap.running || len(r.snap.waiters) > 0:
		return false
	case r.sending > 0: // also to one that has what it needs from elsewhere by now
		return false
	case r.machine.logOnly.Load() && (r.own.asking || r.wantsState()):
		return false
	default:
		return !r.appliedPosted.Load() && r.machine.queued() == 0 && r.machine.backlog() == 0 &&
			r.applied.Load() == r.raft.Position().Applied
	}
}

// hearOfSleep takes what somebody says about sleep.
func (w *worker) hearOfSleep(r *replica, note *sleepNote) {
	switch note.Kind {
	case transport.NoticeSleep:
		if w.agrees(r, note) {
			w.fallAsleep(r)
			w.answerSleep(r, note.from, transport.NoticeAsleep)
			return
		}
		w.wake(r, wokenByOthers)
		w.answerSleep(r, note.from, transport.NoticeAwake)
	case transport.NoticeAsleep:
		w.agreed(r, note)
	case transport.NoticeAwake:
		if r.sleep.state != awake {
			w.wake(r, wokenByOthers)
		}
	default:
	}
}

// agrees reports whether a replica can sleep as its leader wants it to.
func (w *worker) agrees(r *replica, note *sleepNote) bool {
	d := &r.meta.State.Descriptor
	if !w.node.cfg.sleeps() || r.group == raftyard.SystemGroup || note.epoch != d.Epoch ||
		!w.mayRest(r) {
		return false
	}
	at := r.raft.Position()
	if at.Role != group.Follower || at.Term != note.Term || at.Leader != note.from ||
		at.Last != note.Index {
		return false
	}
	if mutant.On(mutant.SleepBelieved) {
		return true
	}
	life := w.nodes[r.nodeOf(note.from)]
	if life.state != nodeLives || life.life != (nodeLife{note.process, note.Turn}) {
		return false // it may be long ago that this was said
	}
	behind, ok := w.gone(r)
	return ok && behind == note.Behind && r.hasPublished(&ailing{})
}

// agreed hears that a member sleeps.
func (w *worker) agreed(r *replica, note *sleepNote) {
	s := &r.sleep
	if s.state != asking || note.Term != r.leader.Term || note.Index != s.index {
		return
	}
	s.missing = slices.DeleteFunc(s.missing, func(id raftyard.ReplicaID) bool {
		return id == note.from
	})
	if len(s.missing) > 0 {
		return
	}
	if _, _, ok := w.mayAsk(r); !ok {
		w.wake(r, wokenByOthers)
		return
	}
	w.fallAsleep(r)
}

// answerSleep says how it stands with this replica's sleep.
func (w *worker) answerSleep(r *replica, to raftyard.ReplicaID, kind transport.NoticeKind) {
	if at := r.raft.Position(); at.Last > 0 && at.Term > 0 {
		w.say(r, to, transport.Notice{Kind: kind, Index: at.Last, Term: at.Term})
	}
}

// say sends a notice about sleep.
func (w *worker) say(r *replica, to raftyard.ReplicaID, what transport.Notice) {
	id := r.nodeOf(to)
	if id == 0 || r.isLost(to) {
		return
	}
	w.outgoing.add(transport.Envelope{
		Group: r.group, Incarnation: r.incarnation, Epoch: r.meta.State.Descriptor.Epoch,
		From: r.endpoint(), To: transport.Endpoint{Node: id, Replica: to}, Notice: &what,
	})
}
