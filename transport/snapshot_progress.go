package transport

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// progress is what the sender of a snapshot knows of the receiver's handler. That
// the receiver's process lives says nothing about it, and neither does that bytes
// are taken from the connection: those may be in the buffers of sockets.
type progress struct {
	stall   time.Duration // longest standstill with something left to take
	verdict time.Duration // longest wait for the verdict after everything was taken

	mu    sync.Mutex
	sent  uint64    // bytes of the stream that are, or are being, written
	whole bool      // there are no more
	taken uint64    // bytes that the handler has taken, as the last ping has said
	since time.Time // when that was other, or all there was
}

// sending tells how much of the stream is written now; whole, that this is all.
func (p *progress) sending(sent uint64, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent, p.whole = sent, whole
}

// begin tells that the receiver's handler is called.
func (p *progress) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = now
}

// heard takes what a ping of the receiver says. An error means that the sender
// shall not wait any longer.
func (p *progress) heard(taken uint64, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case taken > p.sent || taken < p.taken:
		return fmt.Errorf("%w: %d bytes of a snapshot taken, after %d, of %d",
			errProtocol, taken, p.taken, p.sent)
	case taken > p.taken, taken == p.sent && !p.whole:
		p.taken, p.since = taken, now
		return nil
	}
	waited := now.Sub(p.since)
	switch {
	case taken < p.sent && waited > p.stall:
		return fmt.Errorf("the receiver has taken %d of %d bytes, and no more for %v",
			taken, p.sent, waited.Round(time.Millisecond))
	case taken == p.sent && waited > p.verdict:
		return fmt.Errorf("the receiver has taken all %d bytes, and said nothing for %v",
			taken, waited.Round(time.Millisecond))
	}
	return nil
}

// appendTaken appends the body of a receiver's ping.
func appendTaken(b []byte, taken uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, taken), 0)
}

func decodeTaken(body []byte) (uint64, error) {
	if len(body) != pingBody {
		return 0, fmt.Errorf("ping of %d bytes", len(body))
	}
	return binary.BigEndian.Uint64(body), nil
}
