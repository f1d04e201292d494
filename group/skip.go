package group

import (
	"bytes"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/wire"
)

// An entry at which every state machine of a group fails can be skipped: an entry of its
// own says so, further on in the log. Once that is committed the entry is skipped by
// whoever has not applied it, and nobody applies it any more: a replica that comes to the
// entry looks ahead in its log. See docs/decisions/0017-a-poisoned-entry-is-skipped.md.

// A Skip says that a committed entry is not applied: every state machine of the group has
// failed at it. It is a fact once the entry at At is committed that says so.
type Skip struct {
	Index uint64 // of the entry that is skipped
	Term  uint64 // of that entry
	At    uint64 // index of the entry that says so
}

// A Stop is where a run of entries ends for a state machine: at an entry that it must not
// apply, or cannot be given.
type Stop struct {
	Index, Term uint64
	// Held: an entry further on says that this one is skipped, and may not be committed.
	Held bool
	// Err is why the entry cannot be read; nil if it is held.
	Err error
}

func encodeSkip(index, term uint64) []byte {
	b := wire.AppendUvarint([]byte{skipVersion}, index)
	return wire.AppendUvarint(b, term)
}

// isSkip reports whether an entry has another one skipped.
func isSkip(e *raftpb.Entry) bool {
	data := e.GetData()
	return e.GetType() == raftpb.EntryNormal && len(data) > 0 && data[0] == skipVersion
}

// decodeSkip reads an entry of which isSkip holds.
func decodeSkip(e *raftpb.Entry) (Skip, error) {
	r := wire.NewReader(e.GetData())
	checkVersion(r, skipVersion)
	s := Skip{Index: r.Uvarint(), Term: r.Uvarint(), At: e.GetIndex()}
	if r.Err() == nil && (s.Index == 0 || s.Index >= s.At) {
		r.Fail("entry %d cannot have entry %d skipped", s.At, s.Index)
	}
	if err := r.Close(); err != nil {
		return Skip{}, fmt.Errorf("group: decode entry %d: %w", e.GetIndex(), err)
	}
	return s, nil
}

// skips are those that the log has after what was applied at the start, by At; also such
// as are not committed.
type skips struct {
	list []Skip
	// known are those that were committed before the start.
	known []Skip
}

// add takes in a skip. A second one of an entry says nothing: the first is before it in the
// log, so that it is committed earlier, and stays for as long as the second does.
func (s *skips) add(skip Skip) {
	same := func(o Skip) bool { return o.Index == skip.Index && o.Term == skip.Term }
	if !slices.ContainsFunc(s.known, same) && !slices.ContainsFunc(s.list, same) {
		s.list = append(s.list, skip)
	}
}

// compact forgets what the log has no more.
func (s *skips) compact(index uint64) {
	gone := func(s Skip) bool { return s.At <= index }
	s.list = slices.DeleteFunc(s.list, gone)
	s.known = slices.DeleteFunc(slices.Clone(s.known), gone)
}

// noteSkips takes the skips out of entries that are appended to the log, and returns the
// greatest At of them, or zero.
func (r *Replica) noteSkips(entries []*raftpb.Entry) (at uint64) {
	if len(entries) == 0 {
		return 0
	}
	cut := entries[0].GetIndex()
	r.skips.list = slices.DeleteFunc(r.skips.list, func(s Skip) bool { return s.At >= cut })
	for _, e := range entries {
		if !isSkip(e) {
			continue
		}
		if s, err := decodeSkip(e); err == nil {
			r.skips.add(s)
		}
		at = e.GetIndex()
	}
	return at
}

// Skipped reports whether an entry is skipped for certain, or may turn out to be.
func (r *Replica) Skipped(index uint64) (s Skip, decided, pending bool) {
	for _, s := range r.skips.known {
		if s.Index == index {
			return s, true, false
		}
	}
	for _, s := range r.skips.list {
		if s.Index == index {
			return s, s.At <= r.view.hard.commit, s.At > r.view.hard.commit
		}
	}
	return Skip{}, false, false
}

// findSkips reads the skips that the log has after what is applied, at the start.
func (r *Replica) findSkips(from, last uint64) error {
	for lo := from; lo <= last; {
		entries, err := r.cfg.Storage.Entries(lo, last+1, aheadBytes)
		if err == nil && len(entries) == 0 {
			err = raft.ErrUnavailable
		}
		if err != nil {
			return fmt.Errorf("group: start: look for skipped entries: %w", err)
		}
		for _, e := range entries {
			if isSkip(e) {
				s, err := decodeSkip(e)
				if err != nil {
					return damaged("%w", err)
				}
				r.skips.add(s)
			}
		}
		lo = entries[len(entries)-1].GetIndex() + 1
	}
	return nil
}

// ProposeSkip has the group skip a committed entry. An error means that it was refused;
// otherwise exactly one outcome with the token follows. An entry that is skipped already, or
// may be by what was proposed before, is refused with [ErrInvalid]. The driver must have made
// sure that no state machine has applied the entry.
func (r *Replica) ProposeSkip(index uint64, token any) error {
	if err := r.mustLead(); err != nil {
		return err
	}
	if index < r.view.first || index > r.view.applied {
		return fmt.Errorf("%w: entry %d is not among the committed ones, %d to %d",
			ErrInvalid, index, r.view.first, r.view.applied)
	}
	if s, decided, pending := r.Skipped(index); decided || pending {
		return fmt.Errorf("%w: entry %d is skipped by entry %d", ErrInvalid, index, s.At)
	}
	entries, err := r.cfg.Storage.Entries(index, index+1, aheadBytes)
	if err != nil || len(entries) == 0 {
		return fmt.Errorf("%w: entry %d cannot be read: %w", ErrInvalid, index, err)
	}
	e := entries[0]
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 || isSkip(e) {
		return fmt.Errorf("%w: entry %d has no commands", ErrInvalid, index)
	}
	q, data := &r.proposals, encodeSkip(index, e.GetTerm())
	if slices.ContainsFunc(q.queue, func(p Proposal) bool { return bytes.Equal(p.skip, data) }) {
		return fmt.Errorf("%w: entry %d is about to be skipped", ErrInvalid, index)
	}
	if len(q.queue) >= q.limits.MaxQueuedProposals {
		return fmt.Errorf("%w: %d proposals wait", ErrOverloaded, len(q.queue))
	}
	q.queue = append(q.queue, Proposal{Token: token, skip: data})
	return nil
}

// collectNormal adds what a committed entry without a membership change has for the state
// machine to a run.
func (r *Replica) collectNormal(a *Apply, e *raftpb.Entry, tokens []any) {
	if isSkip(e) {
		s, err := decodeSkip(e)
		first, _, _ := r.Skipped(s.Index)
		if again := first.Term == s.Term && first.At < s.At && first.At != 0; err == nil && !again {
			a.Decided = append(a.Decided, s)
		}
		r.conclude(tokens, nil)
		return
	}
	s, decided, pending := r.Skipped(e.GetIndex())
	if mutant.On(mutant.SkipUnheeded) {
		decided, pending = false, false
	}
	if named := s.Term == e.GetTerm(); decided && named {
		a.Skipped = append(a.Skipped, s)
		r.conclude(tokens, ErrSkipped)
		return
	} else if pending && named && a.Stop == nil {
		a.Stop = &Stop{Index: e.GetIndex(), Term: e.GetTerm(), Held: true}
	}
	n := len(a.Commands)
	commands, err := appendCommands(a.Commands, e)
	if err != nil && a.Stop == nil {
		a.Stop = &Stop{Index: e.GetIndex(), Term: e.GetTerm(), Err: err}
	}
	if err != nil || a.Stop != nil {
		r.conclude(tokens, ErrUnknown) // it is committed
		return
	}
	a.Commands = commands
	a.addTokens(tokens, len(a.Commands)-n)
}

// conclude ends proposals.
func (r *Replica) conclude(tokens []any, err error) { outcomeAll(&r.outcomes, tokens, err) }
