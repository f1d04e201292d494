//go:build unix

package crash

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/raftyard/raftyard"
)

// A fate is what is known of something that was asked for.
type fate uint8

const (
	none    fate = iota // it was not asked for, or certainly is not done
	asked               // it may be done, now or later
	certain             // it is done
)

// A piece is one write: what it was to do, and what became of it.
type piece struct {
	op      string // opAppend, opPut or opPair
	written fate
	deleted fate
}

// parts returns under which names the write is found, all of them or none.
func (p *piece) parts() []string {
	if p.op == opPair {
		return []string{"a", "b"}
	}
	return []string{"-"}
}

// A book is what is known of one group.
type book struct {
	exists bool
	// creating and destroying say that it may have come to exist, or to exist no
	// more, since exists was known.
	creating, destroying bool
	// voters are the lists of wanted voters that there may be.
	voters map[string]bool
	pieces map[string]*piece
}

// An attempt is a call that has begun.
type attempt struct {
	op    string
	group raftyard.GroupID
	arg   string // the token of a write, the voters of a group
}

// A view is what a child has shown of one group so far.
type view struct {
	present bool
	voters  string
	found   map[string]map[string]int // token, part: how often
	hashes  map[string]string         // node: content
}

// A ledger knows what was acknowledged, over all lives of the child, and compares
// it with what the child shows. It is told the child's lines, in their order.
type ledger struct {
	books    map[raftyard.GroupID]*book
	attempts map[string]attempt // of this life, by number
	views    map[raftyard.GroupID]*view

	acknowledged, compared int
	complaints             []string
}

func newLedger() *ledger {
	return &ledger{books: make(map[raftyard.GroupID]*book)}
}

// begin starts a life: what was under way in the one before has no answer any more.
func (l *ledger) begin() {
	l.attempts = make(map[string]attempt)
	l.views = make(map[raftyard.GroupID]*view)
}

func (l *ledger) complain(format string, args ...any) {
	l.complaints = append(l.complaints, fmt.Sprintf(format, args...))
}

func (l *ledger) book(g raftyard.GroupID) *book {
	b := l.books[g]
	if b == nil {
		b = &book{voters: make(map[string]bool), pieces: make(map[string]*piece)}
		l.books[g] = b
	}
	return b
}

// hear takes one line of the child. It reports whether the line was for the ledger.
func (l *ledger) hear(line string) bool {
	words := strings.Fields(line)
	if len(words) == 0 {
		return false
	}
	rest := words[1:]
	known := true
	switch {
	case words[0] == sayTry && len(rest) == 4:
		l.try(rest)
	case words[0] == sayOK && len(rest) == 1:
		l.answered(rest[0], certain)
	case words[0] == sayNo && len(rest) == 1:
		l.answered(rest[0], none)
	case words[0] == sayState && len(rest) == 3:
		l.views[l.group(rest[0])] = &view{
			present: rest[1] == "present", voters: rest[2],
			found: make(map[string]map[string]int), hashes: make(map[string]string),
		}
	case words[0] == sayItem && len(rest) == 4:
		l.item(rest)
	case words[0] == sayHash && len(rest) == 3:
		l.views[l.group(rest[0])].hashes[rest[1]] = rest[2]
	case words[0] == sayEnd && len(rest) == 1:
		g := l.group(rest[0])
		l.compare(g, l.views[g])
	default:
		known = false
	}
	return known
}

func (l *ledger) group(text string) raftyard.GroupID {
	g, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		l.complain("the child says group %q", text)
	}
	return raftyard.GroupID(g)
}

// try notes that a call begins: number, operation, group, argument.
func (l *ledger) try(words []string) {
	a := attempt{op: words[1], group: l.group(words[2]), arg: words[3]}
	l.attempts[words[0]] = a
	b := l.book(a.group)
	switch a.op {
	case opCreate:
		if !b.exists { // whoever wrote to the one before has ended
			b.pieces = make(map[string]*piece)
		}
		b.creating = true
		b.voters[a.arg] = true
	case opDestroy:
		b.destroying = true
	case opMembers:
		b.voters[a.arg] = true
	case opDelete:
		if p := b.pieces[a.arg]; p != nil {
			p.deleted = asked
		}
	default:
		b.pieces[a.arg] = &piece{op: a.op, written: asked}
	}
}

// answered notes how a call ended: it is done, or certainly is not.
func (l *ledger) answered(number string, how fate) {
	a, ok := l.attempts[number]
	if !ok {
		l.complain("answer to call %s, which has not begun", number)
		return
	}
	delete(l.attempts, number)
	if how == certain {
		l.acknowledged++
	}
	b := l.book(a.group)
	switch a.op {
	case opCreate:
		l.created(b, a, how)
	case opDestroy:
		if how == certain {
			b.end()
		}
		b.destroying = false
	case opMembers:
		if how == certain {
			b.voters = map[string]bool{a.arg: true}
		}
	case opDelete:
		if p := b.pieces[a.arg]; p != nil {
			p.deleted = how
		}
	default:
		if p := b.pieces[a.arg]; p != nil { // the group may be deleted meanwhile
			p.written = how
		}
	}
}

func (l *ledger) created(b *book, a attempt, how fate) {
	b.creating = false
	if how == certain {
		b.exists = true
		b.voters = map[string]bool{a.arg: true}
	}
}

// end forgets everything of a group that exists no more.
func (b *book) end() {
	*b = book{voters: make(map[string]bool), pieces: make(map[string]*piece)}
}

// item notes something that is there: group, token, part, how often.
func (l *ledger) item(words []string) {
	v := l.views[l.group(words[0])]
	times, err := strconv.Atoi(words[3])
	if v == nil || err != nil {
		l.complain("the child says %s %q", sayItem, words)
		return
	}
	if v.found[words[1]] == nil {
		v.found[words[1]] = make(map[string]int)
	}
	v.found[words[1]][words[2]] += times
}

// compare holds what the child shows of a group against what is known. From then
// on what is there is known to be there, and what is not will never be: a
// linearizable read comes after whatever was under way in an earlier life.
func (l *ledger) compare(g raftyard.GroupID, v *view) {
	b := l.book(g)
	if v == nil {
		l.complain("group %d: the child ends what it has not begun", g)
		return
	}
	l.compared++
	switch {
	case b.exists && !v.present && !b.destroying:
		l.complain("group %d is lost: it was acknowledged as created", g)
	case !b.exists && v.present && !b.creating:
		l.complain("group %d is there, but was acknowledged as deleted", g)
	}
	if !v.present {
		b.end()
		return
	}
	known := b.exists || b.creating
	b.exists, b.creating, b.destroying = true, false, false
	if known && !b.voters[v.voters] {
		l.complain("group %d wants the voters %s, acknowledged was one of %q",
			g, v.voters, slices.Sorted(maps.Keys(b.voters)))
	}
	b.voters = map[string]bool{v.voters: true}
	for _, token := range slices.Sorted(maps.Keys(b.pieces)) {
		l.comparePiece(g, token, v.found[token])
	}
	for _, token := range slices.Sorted(maps.Keys(v.found)) {
		if b.pieces[token] == nil {
			l.complain("group %d holds %s, which was not written to it, or was gone", g, token)
		}
	}
	for _, token := range slices.Collect(maps.Keys(b.pieces)) {
		if v.found[token] == nil {
			delete(b.pieces, token)
		}
	}
	contents := make(map[string]bool)
	for _, hash := range v.hashes {
		contents[hash] = true
	}
	if len(contents) > 1 {
		l.complain("group %d: the replicas differ: %v", g, v.hashes)
	}
}

// comparePiece holds one write against what is found of it.
func (l *ledger) comparePiece(g raftyard.GroupID, token string, found map[string]int) {
	p := l.books[g].pieces[token]
	parts := p.parts()
	have := 0
	for _, part := range parts {
		switch n := found[part]; {
		case n > 1:
			l.complain("group %d: %s was applied twice", g, token)
			have++
		case n == 1:
			have++
		}
	}
	switch {
	case have != 0 && have != len(parts), len(found) > have:
		l.complain("group %d: %s, a %s, is there in parts: %v", g, token, p.op, found)
	case have == 0 && p.written == certain && p.deleted == none:
		l.complain("group %d: %s is lost: it was acknowledged", g, token)
	case have != 0 && p.written == none:
		l.complain("group %d: %s is there, but was refused as not applied", g, token)
	case have != 0 && p.deleted == certain:
		l.complain("group %d: %s is there, but was acknowledged as deleted", g, token)
	}
	// What is there now was written, and is not being deleted any more.
	p.written, p.deleted = certain, none
}
