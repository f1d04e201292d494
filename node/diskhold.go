package node

// The databases wait when there is too little disk space to be written. A node that closes
// does not: what waits is in the log, or nobody was told of it.

// A waiter is a state machine whose changes may wait for disk space.
type waiter interface {
	// StopWaiting has changes that wait, now or later, end with an error. It may be called
	// at any time, beside everything else.
	StopWaiting()
}

// noteWaiter remembers the state machine if it may wait.
func (m *machine) noteWaiter() {
	if w, ok := m.sm.(waiter); ok {
		m.waiter.Store(&w)
	}
}

// stopWaiting ends what waits for disk space.
func (n *Node) stopWaiting() {
	if n.store != nil {
		n.store.StopWaiting()
	}
	for _, r := range n.allReplicas() {
		if w := r.machine.waiter.Load(); w != nil {
			(*w).StopWaiting()
		}
	}
}
