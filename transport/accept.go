package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// maxPending bounds the connections that have not shaken hands yet, so that
// something that connects and says nothing cannot pile up.
const maxPending = 128

// accept takes connections until the listener is closed.
func (t *Transport) accept() {
	pending := make(chan struct{}, maxPending)
	pauses := newBackoff(5*time.Millisecond, time.Second)
	for {
		c, err := t.listener.Accept()
		if err != nil {
			if t.ctx.Err() != nil {
				return
			}
			// Out of file descriptors, most likely: others are closed in time.
			t.log.warn("cannot accept connections", 0, slog.Any("error", err))
			if errors.Is(err, net.ErrClosed) || !sleep(t.ctx, pauses.pause()) {
				return
			}
			continue
		}
		pauses.reset()
		select {
		case pending <- struct{}{}:
		default:
			t.count.refusals[RefusedFull].Add(1)
			closeQuietly(c)
			continue
		}
		if !t.track(c) {
			closeQuietly(c)
			return
		}
		t.wg.Go(func() {
			defer t.untrack(c)
			h, err := t.acceptHello(c)
			<-pending
			if err == nil {
				err = t.serve(c, &h)
				t.admission.leave(h.from.Node, c)
			}
			t.note(c, &h, err)
		})
	}
}

// track has Close close c. It fails when Close has begun.
func (t *Transport) track(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.conns[c] = struct{}{}
	return true
}

func (t *Transport) untrack(c net.Conn) {
	closeQuietly(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// note logs what an operator should know about the end of a connection.
func (t *Transport) note(c net.Conn, h *hello, err error) {
	var ref *RefusalError
	switch {
	case t.ctx.Err() != nil:
	case errors.As(err, &ref):
		t.log.warn("connection of peer refused: "+ref.Code.String(), uint64(h.from.Node),
			slog.Uint64("node", uint64(h.from.Node)), slog.String("from", c.RemoteAddr().String()),
			slog.String("reason", ref.Text))
	case errors.Is(err, errProtocol):
		t.count.badFrames.Add(1)
		t.log.warn("connection closed for what came on it", uint64(h.from.Node),
			slog.Uint64("node", uint64(h.from.Node)), slog.String("from", c.RemoteAddr().String()),
			slog.Any("error", err))
	}
}

// serve reads a connection that a peer has dialled.
func (t *Transport) serve(raw net.Conn, h *hello) error {
	c := newFrameConn(raw, t.cfg.MaxFrameBytes, t.cfg.DeadAfter, &t.count)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	switch h.class {
	case ClassRaft:
		return t.serveRaft(c, h.from)
	case ClassRequest:
		return t.serveRequests(ctx, c, h)
	default:
		return t.serveSnapshot(ctx, cancel, c, h.from)
	}
}

func (t *Transport) serveRaft(c *frameConn, from Identity) error {
	ts, turn, ok := t.admission.turn(from.Node, c.Conn)
	if !ok {
		return errOutdated
	}
	var buf, out []byte
	var batch []Envelope
	for {
		typ, body, err := c.readFrame(buf)
		if err != nil {
			return err
		}
		buf = trim(body)
		switch typ {
		case framePing:
			if out, err = t.answerPing(c, from, out, body); err != nil {
				return err
			}
		case frameEnvelopes:
			if batch, err = decodeBatch(batch, body); err != nil {
				return fmt.Errorf("%w: %w", errProtocol, err)
			}
			if err = ts.deliver(turn, func() { t.deliver(from, batch) }); err != nil {
				return err
			}
			batch = trimBatch(batch)
		default:
			return unexpected(typ, ClassRaft)
		}
	}
}

// keepBatch is how many envelopes' memory a connection keeps.
const keepBatch = 1024

// trimBatch returns the memory of batch to be used again, unless it is large, and lets go
// of what it holds.
func trimBatch(batch []Envelope) []Envelope {
	if cap(batch) > keepBatch {
		return nil
	}
	clear(batch)
	return batch[:0]
}

// readmit asks, with every ping, whether a peer is wanted still: the program may have
// learned meanwhile that another process speaks for the node.
func (t *Transport) readmit(peer Identity) *RefusalError {
	ref := t.cfg.admit(peer)
	if ref != nil {
		t.count.refusals[ref.Code].Add(1)
	}
	return ref
}

// answerPing sends the pong, to a peer that is wanted still. out is a buffer to use.
func (t *Transport) answerPing(c *frameConn, from Identity, out, body []byte) ([]byte, error) {
	if len(body) != pingBody {
		return nil, fmt.Errorf("%w: ping of %d bytes", errProtocol, len(body))
	}
	if ref := t.readmit(from); ref != nil {
		return nil, ref
	}
	out = appendFrame(out[:0], framePong, body)
	return out, c.writeFrames(out, 1)
}

// deliver gives the handler those envelopes that it may see.
func (t *Transport) deliver(from Identity, batch []Envelope) {
	good := batch[:0]
	for i := range batch {
		env := &batch[i]
		if why := checkEnvelope(env, from.Node, t.self.Node); why != dropNothing {
			t.refuseEnvelope(from, env, why)
			continue
		}
		t.count.received[typeIndex(env)].Add(1)
		good = append(good, *env)
	}
	if len(good) > 0 {
		t.cfg.Handler.HandleEnvelopes(from, good)
	}
}

func (t *Transport) refuseEnvelope(from Identity, env *Envelope, why Reason) {
	t.count.refusedIn[why].Add(1)
	t.log.warn("envelope from peer not let through: "+why.String(), uint64(from.Node),
		slog.Uint64("node", uint64(from.Node)), slog.Uint64("group", uint64(env.Group)),
		slog.String("type", env.Message.GetType().String()))
}

func unexpected(typ frameType, class Class) error {
	return fmt.Errorf("%w: frame type %d on a connection of class %s", errProtocol, typ, class)
}
