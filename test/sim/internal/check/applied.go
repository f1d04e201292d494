package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard/group"
)

// A machine is what is known of a replica's state machine.
type machine struct {
	open    bool
	index   uint64 // of the last command that it has applied
	durable uint64 // up to here it has said that it is durable
	syncs   bool   // it has said so since it was opened: it keeps its state on disk
}

// A sequence is what a group's state machines apply: one list for all of them.
type sequence struct {
	items []item // by index
	floor uint64 // up to here all is forgotten
}

// An item is the commands of one index, and what was answered.
type item struct {
	index    uint64
	commands []digest
}

// A digest stands for a command and its result.
type digest struct {
	command, result uint64
	open            bool // nobody has seen the result yet
}

// after returns the position of the first item behind an index.
func (q *sequence) after(index uint64) int {
	at, _ := slices.BinarySearchFunc(q.items, index+1, func(i item, index uint64) int {
		return cmp.Compare(i.index, index)
	})
	return at
}

// top is the newest index that was ever applied.
func (q *sequence) top() uint64 {
	if n := len(q.items); n > 0 {
		return q.items[n-1].index
	}
	return q.floor
}

// forget forgets what all running machines have passed, but for the newest.
func (q *sequence) forget(keep uint64, replicas []*replicaState) {
	if uint64(len(q.items)) <= 2*keep {
		return
	}
	cut := len(q.items) - int(keep)
	for _, s := range replicas {
		if s.shown && s.machine.open && s.seen.serving && len(q.items) < maxKept {
			cut = min(cut, q.after(s.machine.index))
		}
	}
	if cut > 0 {
		q.floor = q.items[cut-1].index
		q.items = slices.Delete(q.items, 0, cut)
	}
}

// MachineOpened tells that a state machine was opened, with the index up to which
// it has applied all commands; zero for one that begins empty.
//
// Rule 5, [NoRegress]: it has all of which it has said that it is durable.
func (c *Checker) MachineOpened(id Identity, index uint64) {
	s := c.replica(id)
	m := &s.machine
	if n := s.home.node; index < m.durable && n.loss == LostNothing && !s.excused && !s.dead {
		text := fmt.Sprintf("%v: the state machine begins at %d, it was durable up to %d",
			s, index, m.durable)
		back := regress{s, text}
		if n.up {
			c.fail(NoRegress, "%s", back.text)
		} else {
			// It may be opened to be deleted: what the log store says of it is seen later.
			n.regresses = append(n.regresses, back)
		}
	}
	*m = machine{open: true, index: index, durable: index}
	if index > 0 {
		c.tally.Durable++
	}
	c.checkKnown(s, index)
}

// MachineDurable tells that a state machine has said that it is durable up to an
// index.
//
// Rule 12, [Bounds]: not beyond what it has applied.
func (c *Checker) MachineDurable(id Identity, index uint64) {
	s := c.replica(id)
	m := &s.machine
	if index > m.index || index < m.durable {
		c.fail(Bounds, "%v: the state machine says that %d is durable, it was %d, applied is %d",
			s, index, m.durable, m.index)
	}
	m.durable, m.syncs = max(m.durable, index), true
}

// Unsynced returns how many entries of a log that ends at last a replica's state machine
// needs from it after a crash: those behind the index that it has made durable. It is
// zero for a state machine that keeps no state on disk.
func (c *Checker) Unsynced(id Identity, last uint64) uint64 {
	m := &c.replica(id).machine
	if !m.syncs || last < m.durable {
		return 0
	}
	return last - m.durable
}

// Restored tells that a state machine was replaced by a snapshot of an index.
//
// Rule 3, [AppliedOnce]: a state never goes back.
func (c *Checker) Restored(id Identity, index uint64) {
	s := c.replica(id)
	if index < s.machine.index {
		c.fail(AppliedOnce, "%v: the state machine goes back from %d to %d",
			s, s.machine.index, index)
	}
	s.machine.index = index
	c.tally.Restored++
	c.checkKnown(s, index)
}

// checkKnown looks for states that no state machine can have come to.
func (c *Checker) checkKnown(s *replicaState, index uint64) {
	if index > s.group.applied.top() {
		c.fail(AppliedOnce, "%v: the state machine is at %d, and none has applied more than %d",
			s, index, s.group.applied.top())
	}
}

// Applied tells what a state machine has applied, and answered.
//
// Rule 3, [AppliedOnce]: without a gap, without repetition within the life of its
// state, and the same on all replicas.
func (c *Checker) Applied(id Identity, batch []group.Command, results []group.Result) {
	s := c.replica(id)
	if len(results) != len(batch) {
		c.fail(AppliedOnce, "%v answers %d commands with %d results", s, len(batch), len(results))
		return
	}
	for begun := 0; begun < len(batch); {
		end := begun + 1
		for end < len(batch) && batch[end].Index == batch[begun].Index {
			end++
		}
		c.applyIndex(s, batch[begun:end], results[begun:end])
		begun = end
	}
}

// applyIndex takes in the commands of one index.
func (c *Checker) applyIndex(s *replicaState, batch []group.Command, results []group.Result) {
	m, q := &s.machine, &s.group.applied
	c.tally.Indexes++
	index := batch[0].Index
	last := m.index
	for i := range batch {
		if batch[i].Offset != i {
			c.fail(AppliedOnce, "%v applies command %d of index %d in place of command %d",
				s, batch[i].Offset, index, i)
		}
	}
	switch {
	case !m.open:
		c.fail(AppliedOnce, "%v applies index %d to a state machine that is not open", s, index)
	case index <= last:
		c.fail(AppliedOnce, "%v applies index %d again, it is at %d", s, index, last)
		return
	}
	if s.home.node.up && index > s.group.commit {
		c.fail(Bounds, "%v applies index %d, only %d is committed", s, index, s.group.commit)
	}
	m.index = index
	if index <= q.floor {
		return
	}
	at := q.after(max(last, q.floor))
	switch {
	case at == len(q.items):
		q.items = append(q.items, newItem(batch, results))
	case q.items[at].index < index:
		c.fail(AppliedOnce, "%v leaves index %d out: it goes on from %d with %d",
			s, q.items[at].index, last, index)
	case q.items[at].index > index:
		c.fail(AppliedOnce, "%v applies index %d, which others have left out", s, index)
	default:
		c.compareItem(s, &q.items[at], batch, results)
	}
}

func newItem(batch []group.Command, results []group.Result) item {
	it := item{index: batch[0].Index, commands: make([]digest, len(batch))}
	for i := range batch {
		it.commands[i] = digestOf(batch[i].Data, results[i].Data)
	}
	return it
}

func (c *Checker) compareItem(
	s *replicaState, it *item, batch []group.Command, results []group.Result,
) {
	if len(batch) != len(it.commands) {
		c.fail(AppliedOnce, "%v applies %d commands at index %d, others %d",
			s, len(batch), it.index, len(it.commands))
		return
	}
	c.tally.Compared++
	for i, want := range it.commands {
		switch got := digestOf(batch[i].Data, results[i].Data); {
		case want.open && got.command == want.command:
			it.commands[i] = got
		case got.command != want.command:
			c.fail(AppliedOnce, "%v applies another command %d at index %d than others: %q",
				s, i, it.index, batch[i].Data)
		case got.result != want.result:
			c.fail(SameState, "%v answers command %d at index %d in another way than others: %q",
				s, i, it.index, results[i].Data)
		}
	}
}

// Began tells that a node has died while a state machine applied a batch: nobody has
// seen the results, but some of it may be on the disk. Without that, a state that
// begins behind it would be one that no state machine can have come to.
func (c *Checker) Began(id Identity, batch []group.Command) {
	q := &c.replica(id).group.applied
	top := q.top()
	for i := range batch {
		index := batch[i].Index
		if index <= top {
			continue // others have been there
		}
		if n := len(q.items); n == 0 || q.items[n-1].index != index {
			q.items = append(q.items, item{index: index})
		}
		it := &q.items[len(q.items)-1]
		it.commands = append(it.commands, digest{command: sum(batch[i].Data), open: true})
	}
}

// HashedBytes is Hashed for hashes of any size.
func (c *Checker) HashedBytes(id Identity, index uint64, hash []byte) {
	c.Hashed(id, index, sum(hash))
}

// Hashed tells the hash of a state machine that has applied all up to index: the
// index of the last command that it has seen.
//
// Rule 11, [SameState]: state machines that are equally far have equal contents.
func (c *Checker) Hashed(id Identity, index, hash uint64) {
	s := c.replica(id)
	hashes := s.group.hashes
	other, known := hashes[index]
	switch {
	case !known:
		hashes[index] = hash
	case other != hash:
		c.fail(SameState, "%v has hash %016x at index %d, others have %016x", s, hash, index, other)
	default:
		c.tally.Hashes++
	}
}

// Acked tells that a client was told that its write is done.
//
// Rule 9, [AckedSurvives]: it is among what is applied at its index, with the
// result that the client was told.
func (c *Checker) Acked(w Write) {
	g := c.group(groupKey{w.Group, w.Incarnation})
	q := &g.applied
	g.acked = max(g.acked, w.Index)
	if w.Index <= q.floor {
		return
	}
	c.tally.Acked++
	at := q.after(w.Index - 1)
	if at == len(q.items) || q.items[at].index != w.Index {
		c.fail(AckedSurvives, "group %d: a write at index %d was acknowledged, and is not applied",
			w.Group, w.Index)
		return
	}
	told := digestOf(w.Data, w.Result)
	other := false // the command is there, with another result
	for _, d := range q.items[at].commands {
		if d == told || d.open && d.command == told.command {
			return
		}
		other = other || d.command == told.command
	}
	what := "was not applied there"
	if other {
		what = "has another result there"
	}
	c.fail(AckedSurvives, "group %d: a client was told that %q gives %q at index %d: it %s",
		w.Group, w.Data, w.Result, w.Index, what)
}

func digestOf(command, result []byte) digest {
	return digest{command: sum(command), result: sum(result)}
}

// sum is FNV-1a of 64 bits.
func sum(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, x := range b {
		h = (h ^ uint64(x)) * 1099511628211
	}
	return h
}
