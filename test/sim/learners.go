package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
)

// attach has a node attached to a group as a learner, or detached from it: this one, or
// another that is a learner.
func attach(w *World, f *Fault) {
	g, h := w.group(f.Group), w.host(f.Node)
	if g == nil {
		return
	}
	from := g.wish.Learners
	if f.Kind == Detach && len(from) > 0 && !slices.Contains(from, h.id) {
		h = w.host(from[int(f.Node)%len(from)])
	}
	if g.busy >= 3 || !h.in || h.lost {
		return
	}
	g.busy++
	g.asked++
	w.clients.Go(string(f.Kind), func() {
		defer func() { g.busy-- }()
		alone, asked, in := g.busy == 1 && !g.unsure, g.asked, g.incarnation
		err := w.admin(func(ctx context.Context, n *node.Node) (err error) {
			if f.Kind == Attach {
				_, err = n.AddLearner(ctx, g.id, h.id)
			} else {
				_, err = n.RemoveLearner(ctx, g.id, h.id)
			}
			return err
		})
		w.log(h.id, string(f.Kind), fmt.Sprintf("group %d: %v", g.id, err))
		if err != nil || !alone || asked != g.asked || in != g.incarnation || g.dying {
			return // what is wanted is settled after the last fault
		}
		w.attached(g, h, f.Kind)
	})
}

// attached notes that a node was attached or detached, and nobody else has asked for
// anything meanwhile: of one that was detached nothing is left.
func (w *World) attached(g *groupInfo, h *host, kind FaultKind) {
	others := slices.DeleteFunc(slices.Clone(g.wish.Learners), func(id raftyard.NodeID) bool {
		return id == h.id
	})
	if kind == Attach {
		w.counts.Attached++
		if !slices.Contains(g.wish.Voters, h.id) {
			others = append(others, h.id)
			slices.Sort(others)
		}
		g.wish.Learners = others
		return
	}
	if len(others) < len(g.wish.Learners) {
		w.counts.Detached++
	}
	g.wish.Learners = others
	if left := h.leftOf(g); left != "" && h.state == running && !h.lost {
		w.fail("rule 16 (tidy)", fmt.Errorf("node %d was detached from group %d, and has %s",
			h.id, g.id, left))
	}
}

// leftOf names something of a group that is on a node that is up, or nothing.
func (h *host) leftOf(g *groupInfo) string {
	h.look()
	for i := range h.seen.Replicas {
		if r := &h.seen.Replicas[i]; r.Group == g.id && r.Incarnation == g.incarnation {
			return fmt.Sprintf("replica %d", r.ID)
		}
	}
	for i := range h.seen.Stored {
		st := &h.seen.Stored[i]
		if st.Group == g.id && st.Tombstone != nil && !st.Tombstone.Purged {
			return fmt.Sprintf("what replica %d has stored", st.ID)
		}
	}
	return ""
}

// forget has a deleted group forgotten, while whatever happens. The last attempt is made
// when everything is well.
func forget(w *World, f *Fault) {
	g := w.transient(f.Group)
	if g.id == contested || g.created || g.dying || g.generation == 0 {
		return
	}
	g.dying, g.forget = true, true
	w.clients.Go("forget", func() {
		defer func() { g.dying = false }()
		for i := 0; i < 5 && w.working && !w.forgotten(g); i++ {
			w.clients.Sleep(context.Background(), 50*time.Millisecond)
		}
	})
}

// forgotten asks once to forget a group, and reports whether it is forgotten.
func (w *World) forgotten(g *groupInfo) bool {
	err := w.admin(func(ctx context.Context, n *node.Node) error {
		return n.ForgetGroup(ctx, g.id)
	})
	w.log(0, "forgotten?", fmt.Sprintf("group %d: %v", g.id, err))
	if err == nil {
		w.counts.Forgotten++
	}
	return err == nil || errors.Is(err, node.ErrGroupNotFound)
}

// settleForgotten has a group forgotten that somebody wanted to be, if it did not come
// again. It cannot be while there is a node that nobody can ask, or one on which only a
// state machine that it lacks could delete the rest.
func (w *World) settleForgotten(g *groupInfo) {
	never := func(h *host) bool { return h.isGone() || h.lacks && h.holds(g.id) }
	for g.forget && g.gone && !w.forgotten(g) {
		if slices.ContainsFunc(w.hosts, never) {
			g.forget = false
		}
		w.clients.Sleep(context.Background(), 100*time.Millisecond)
	}
}

// holds reports whether a node still has something that a replica of a group has stored.
func (h *host) holds(g raftyard.GroupID) bool {
	inLog := slices.ContainsFunc(h.seen.Stored, func(st storage.Replica) bool {
		return st.Group == g && (st.Tombstone == nil || !st.Tombstone.Purged)
	})
	// The log store may be through with it, and what a state machine has left not.
	return inLog || h.keepsState(g)
}

// keepsState reports whether what a state machine of a group has left is on a node's disk.
func (h *host) keepsState(g raftyard.GroupID) bool {
	dirs, err := h.disk.Files().ReadDir("/data/replicas")
	return err == nil && slices.ContainsFunc(dirs, func(name string) bool {
		return strings.HasPrefix(name, fmt.Sprintf("%d-", g))
	})
}

// graves names a tombstone of a group that is forgotten, or nothing: a node drops it by
// itself if it was not there when all were told.
func (w *World) graves() string {
	for _, g := range w.groups {
		if !g.forget || !g.gone {
			continue
		}
		for _, h := range w.hosts {
			if grave := h.grave(g.id); grave != "" {
				return grave
			}
		}
	}
	return ""
}

func (h *host) grave(g raftyard.GroupID) string {
	if h.state != running || h.lost {
		return ""
	}
	h.look()
	if h.lacks && h.holds(g) {
		return "" // its tombstone waits for a start with the kind, as the state does
	}
	for i := range h.seen.Stored {
		if st := &h.seen.Stored[i]; st.Group == g {
			return fmt.Sprintf("node %d remembers replica %d of group %d, which is forgotten",
				h.id, st.ID, g)
		}
	}
	return ""
}
