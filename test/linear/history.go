package linear

import "sync"

// A History is what clients asked and were told. The zero value is empty. It is
// safe for concurrent use.
type History struct {
	mu  sync.Mutex
	ops []operation
}

// A Pending is an operation that has been begun. One that is never ended counts as
// unknown. It is for one goroutine at a time.
type Pending struct {
	history *History
	index   int
}

// Begin writes down that a client begins an operation at a time. A client is any
// number; it does one thing at a time, until an outcome is unknown. Stamps are of
// one clock for all clients, in any unit; those of a picture are best in
// nanoseconds.
func (h *History) Begin(client int, op Op, at int64) Pending {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, operation{Op: op, client: client, call: at, back: forever})
	return Pending{history: h, index: len(h.ops) - 1}
}

// Key returns the key of the operation.
func (p Pending) Key() string {
	p.history.mu.Lock()
	defer p.history.mu.Unlock()
	return p.history.ops[p.index].Key
}

// Done ends the operation at a time with what the client was told: also that a
// condition did not hold, or that there was nothing to read.
func (p Pending) Done(at int64, r Result) {
	p.end(func(o *operation) { o.state, o.back, o.result = done, at, r })
}

// Refused takes the operation back: it certainly has no effect, now or later, and
// told nothing about the key.
func (p Pending) Refused() { p.end(func(o *operation) { o.state = refused }) }

// Unknown says that the operation may have its effect, or may still get it.
func (p Pending) Unknown() { p.end(func(o *operation) { o.state = unknown }) }

// Note adds words to the operation that are shown with it, such as whom it was
// sent to.
func (p Pending) Note(text string) { p.end(func(o *operation) { o.note = text }) }

func (p Pending) end(set func(*operation)) {
	p.history.mu.Lock()
	defer p.history.mu.Unlock()
	set(&p.history.ops[p.index])
}

// Len returns how many operations were begun.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// part is the history of one key.
type part struct {
	key string
	ops []operation
}

// parts returns what counts of the history, key by key, in the order in which
// keys came up.
func (h *History) parts() []part {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := make(map[string]int)
	var parts []part
	for i := range h.ops {
		o := &h.ops[i]
		if !o.counts() {
			continue
		}
		index, known := at[o.Key]
		if !known {
			index = len(parts)
			at[o.Key] = index
			parts = append(parts, part{key: o.Key})
		}
		parts[index].ops = append(parts[index].ops, *o)
	}
	return parts
}
