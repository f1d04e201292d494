package node

// maxHeld is how many clients may have been answered for a step to be held. With more of them
// half a batch is large enough, and the halves have the processor and the disk in turns, both
// of which would wait for each other if all clients were in one batch.
const maxHeld = 256

// worthHolding reports whether the next step of a replica is held when so many of its clients
// have been answered.
func worthHolding(answered int) bool { return answered > 0 && answered <= maxHeld }

// hold leaves the next step of a replica to the next round, because the one before has
// answered some of its clients. They are about to send what comes next; without that the
// commands of those who have waited longer would leave alone, and from then on two halves of
// the clients would take turns, each in a batch of half the size. The round comes at once:
// nothing waits for a state machine, or for a client.
func (w *worker) hold(r *replica) {
	r.answered = false
	w.held = append(w.held, r)
	w.box.signal()
}

// release has those that were held looked at in this round.
func (w *worker) release() {
	for i, r := range w.held {
		w.touch(r)
		w.held[i] = nil
	}
	w.held = w.held[:0]
}
