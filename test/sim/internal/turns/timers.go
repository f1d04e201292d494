package turns

// A timer does something at a time. Of two with the same time the one that was set
// first comes first.
type timer struct {
	at  int64
	seq uint64
	fn  func()   // nil: look at the station again
	st  *Station // nil when fn is set
}

func (t *timer) before(o *timer) bool {
	return t.at < o.at || (t.at == o.at && t.seq < o.seq)
}

// timers are a heap. They are values, so setting one allocates nothing.
type timers []timer

func (h *timers) push(t timer) {
	*h = append(*h, t)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q[i].before(&q[up]) {
			return
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *timers) pop() timer {
	q := *h
	top, last := q[0], len(q)-1
	q[0], q[last] = q[last], timer{}
	q = q[:last]
	*h = q
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(q); c++ {
			if q[c].before(&q[least]) {
				least = c
			}
		}
		if least == i {
			return top
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}
