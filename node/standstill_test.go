package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// brittle is a durable list whose steps a test can break.
type brittle struct {
	*kept
	c   *cluster
	env group.Env
}

func openBrittle(c *cluster) group.Factory {
	return func(env group.Env) (group.StateMachine, error) {
		if hook := c.onApply.Load(); hook != nil {
			(*hook)(env, "open")
		}
		k, err := openKept(filepath.Join(c.dir, "kept"), env)
		if err != nil {
			return nil, err
		}
		return &brittle{kept: k, c: c, env: env}, nil
	}
}

func (b *brittle) Apply(batch []group.Command) ([]group.Result, error) {
	if hook := b.c.onApply.Load(); hook != nil {
		for _, cmd := range batch {
			(*hook)(b.env, string(cmd.Data))
		}
	}
	return b.kept.Apply(batch)
}

// Damage implements [group.Checked].
func (b *brittle) Damage() error {
	if b.c.breaks[b.env.Node].Load() {
		return fmt.Errorf("a shared store: %w", group.ErrFatal)
	}
	if b.c.rots[b.env.Node].CompareAndSwap(true, false) {
		return errors.New("it has rotted")
	}
	return nil
}

// breakWord makes the state machines on some nodes panic at a word, until mend.
func (c *cluster) breakWord(word string, on ...raftyard.NodeID) {
	hook := func(env group.Env, w string) {
		if w == word && slices.Contains(on, env.Node) {
			panic("broken by " + word)
		}
	}
	c.onApply.Store(&hook)
}

func (c *cluster) mend() { c.onApply.Store(nil) }

// inQuarantine waits until a node's replica of group 1 is in quarantine, and returns why.
func (c *cluster) inQuarantine(at raftyard.NodeID) *Quarantine {
	c.t.Helper()
	var q *Quarantine
	c.eventually(fmt.Sprintf("the replica of group 1 on node %d is in quarantine", at),
		func() bool { q = c.status(at, 1).Quarantine; return q != nil })
	return q
}

// retry has a replica opened again and waits until it holds some words.
func (c *cluster) retry(at raftyard.NodeID, g raftyard.GroupID, want ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	if _, err := c.anyNode().RetryReplica(ctx, g, at); err != nil {
		c.t.Fatalf("RetryReplica(%d, %d) = %v", g, at, err)
	}
	c.eventually("the replica is up", func() bool { return slices.Equal(c.stale(at, g), want) })
}

// stale returns what a node's own replica holds, or the error of reading it.
func (c *cluster) stale(at raftyard.NodeID, g raftyard.GroupID) []string {
	c.t.Helper()
	answer, err := c.nodes[at].queryLocal(c.t.Context(), here(g), Stale, nil)
	if err != nil {
		return []string{err.Error()}
	}
	return strings.Split(string(answer), "\n")
}

// TestBrokenMachineKeepsItsVote breaks the state machine of the leader. The group goes on
// under another one, and the vote of the broken one still counts when a third is down.
func TestBrokenMachineKeepsItsVote(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"hooked", "brittle"} {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t, 3)
			c.createSpec(Spec{ID: 1, Kind: kind, Voters: []raftyard.NodeID{1, 2, 3}})
			c.add(1, 1, "a")
			broken := c.leader(1)
			c.breakWord("b", broken)
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			_, err := c.nodes[broken].Propose(ctx, 1, []byte("b"))
			if !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("Propose = %v, want ErrUnknownOutcome", err)
			}
			q := c.inQuarantine(broken)
			if q.Reason != MachinePanicked || !q.Votes || q.Index == 0 {
				t.Errorf("quarantine = %+v, want a panic at an index, and a vote", q)
			}
			c.eventually("another one leads", func() bool { return c.leader(1) != broken })
			third := broken%3 + 1
			if c.leader(1) == third {
				third = third%3 + 1
			}
			c.close(third)
			c.add(broken, 1, "c")
			if got := c.words(broken, 1); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("the group holds %q, want a, b and c", got)
			}
			_, err = c.nodes[broken].RetryReplica(ctx, 1, c.leader(1))
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("RetryReplica of a sound replica = %v, want ErrInvalid", err)
			}
			c.mend()
			c.retry(broken, 1, "a", "b", "c")
		})
	}
}

// TestFailingEntryIsFound has several entries applied at once, one of which fails.
func TestFailingEntryIsFound(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	there, release := c.holdWord(1, "hold")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var ended sync.WaitGroup
	propose := func(word string) {
		ended.Go(func() {
			if _, err := c.nodes[1].Propose(ctx, 1, []byte(word)); NotApplied(err) {
				t.Errorf("Propose(%q) = %v, which says that it is not applied", word, err)
			}
		})
	}
	propose("hold")
	<-there
	r := c.nodes[1].replica(1)
	for i, word := range []string{"a", "panic", "b"} {
		propose(word)
		c.eventually("the word waits to be applied", func() bool {
			return r.machine.queued() == i+1
		})
	}
	close(release)
	ended.Wait()
	var q *Quarantine
	c.eventually("the entry is found", func() bool {
		q = c.status(1, 1).Quarantine
		return q != nil && q.Index != 0
	})
	e, err := c.nodes[1].store.Log(1).Entries(q.Index, q.Index+1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	commands, err := group.DecodeEntry(e[0])
	if err != nil || len(commands) != 1 || string(commands[0].Data) != "panic" {
		t.Errorf("entry %d holds %v, %v; want the word that breaks it", q.Index, commands, err)
	}
}

// TestRebuildTakesTheStateOfAnother throws the state of a replica away whose state machine
// has gone wrong.
func TestRebuildTakesTheStateOfAnother(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"hooked", "brittle"} {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t, 3)
			c.createSpec(Spec{ID: 1, Kind: kind, Voters: []raftyard.NodeID{1, 2, 3}})
			c.add(1, 1, "a", "b")
			at := c.leader(1)%3 + 1
			c.breakWord("c", at)
			c.add(c.leader(1), 1, "c", "d")
			c.inQuarantine(at)
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			// The word still breaks it: it must come with the state.
			st, err := c.nodes[c.leader(1)].RebuildReplica(ctx, 1, at)
			if err != nil || st.Quarantine != nil {
				t.Fatalf("RebuildReplica = %+v, %v", st, err)
			}
			c.add(c.leader(1), 1, "e")
			want := []string{"a", "b", "c", "d", "e"}
			c.eventually("the replica follows", func() bool {
				return slices.Equal(c.stale(at, 1), want)
			})
			c.close(at)
			c.open(at, nil)
			c.eventually("it has it after a restart, too", func() bool {
				return slices.Equal(c.stale(at, 1), want)
			})
		})
	}
}

// TestReplicaStartsWithoutItsMachine breaks the factory on one node.
func TestReplicaStartsWithoutItsMachine(t *testing.T) {
	c := newCluster(t, 3)
	c.createSpec(Spec{ID: 1, Kind: "brittle", Voters: []raftyard.NodeID{1, 2, 3}})
	c.add(1, 1, "a")
	c.close(3)
	c.breakWord("open", 3)
	c.open(3, nil)
	if q := c.inQuarantine(3); q.Reason != MachinePanicked || !q.Votes {
		t.Errorf("quarantine = %+v, want a panic, and a vote", q)
	}
	c.close(c.leader(1)%2 + 1) // of the two others one leads
	c.add(3, 1, "b")
	c.mend()
	c.retry(3, 1, "a", "b")
}
