package node

import (
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

const (
	// silentLooks is how many looks in a row a member must have been silent to
	// count as down.
	silentLooks = 3
	// laggingEntries is how many entries a member may lack.
	laggingEntries = 2000
)

// health is what a leader has seen of its members lately.
type health struct {
	silent map[raftyard.ReplicaID]int // looks in a row
	ticks  int
}

// ailing is what a leader publishes: the nodes whose replicas do not follow.
type ailing struct {
	Down    []raftyard.NodeID `json:"d,omitempty"` // do not answer
	Lagging []raftyard.NodeID `json:"l,omitempty"` // answer, but are far behind
}

func (a *ailing) equal(o *ailing) bool {
	return slices.Equal(a.Down, o.Down) && slices.Equal(a.Lagging, o.Lagging)
}

// healthEvery is after how many ticks a leader looks at its members. It has no divisor
// in common with the election timeout, after which raft forgets, again and again, who was
// active: looks that came with that would find everybody silent.
func healthEvery(electionTicks int) int { return max(electionTicks-1, 1) }

// tickHealth looks at the members now and then: how they are, if this replica leads.
func (w *worker) tickHealth(r *replica) {
	h := &r.health
	if h.ticks++; h.ticks < healthEvery(w.node.cfg.ElectionTicks) {
		return
	}
	h.ticks = 0
	w.lookHalfway(r)
	now := &ailing{}
	if r.leader.Role == group.Leader {
		now = h.look(r)
	} else {
		h.silent = nil
	}
	if old := r.ailing.Load(); old == nil || !old.equal(now) {
		if now.equal(&w.well) {
			now = &w.well // one for all of whom there is nothing to be said
		}
		r.ailing.Store(now)
		w.node.noteChange()
	}
}

func (h *health) look(r *replica) *ailing {
	now := &ailing{}
	st := r.raft.Status()
	for _, m := range r.meta.State.Descriptor.Members {
		p, ok := st.Progress[m.ID]
		if m.ID == r.id || !ok {
			continue
		}
		if p.RecentActive {
			delete(h.silent, m.ID)
		} else {
			if h.silent == nil {
				h.silent = make(map[raftyard.ReplicaID]int)
			}
			h.silent[m.ID]++
		}
		switch {
		case h.silent[m.ID] >= silentLooks:
			now.Down = append(now.Down, m.Node)
		case p.State == "snapshot" || p.Match+laggingEntries < st.Commit:
			now.Lagging = append(now.Lagging, m.Node)
		}
	}
	return now
}
