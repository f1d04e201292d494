package transport

import (
	"context"
	"fmt"
	"net"

	"github.com/raftyard/raftyard"
)

// connect dials a peer and shakes hands as the dialler. On success the
// connection is registered with the admission; leave must be called at its end.
func (t *Transport) connect(
	ctx context.Context, p *peer, class Class,
) (_ *frameConn, w welcome, err error) {
	addr, ok := p.seeker.Next(p.addresses())
	if !ok {
		return nil, welcome{}, fmt.Errorf("no address of node %d is known", p.node)
	}
	defer func() {
		if err != nil {
			p.seeker.Missed(addr)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, t.cfg.DialTimeout)
	defer cancel()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}()
	raw, err := t.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, welcome{}, err
	}
	// The handshake ends early when ctx does.
	stop := context.AfterFunc(ctx, func() { closeQuietly(raw) })
	defer stop()

	w, err = t.greet(raw, p.node, class, addr)
	if err != nil {
		closeQuietly(raw)
		return nil, welcome{}, err
	}
	if ref := t.enter(&w.from, class, false, raw); ref != nil {
		closeQuietly(raw)
		t.count.refusals[ref.Code].Add(1)
		return nil, welcome{}, ref
	}
	if !stop() { // ctx has ended meanwhile, and raw is closed
		t.admission.leave(p.node, raw)
		return nil, welcome{}, net.ErrClosed
	}
	t.admission.tell(p.node, w.at)
	return newFrameConn(raw, t.cfg.MaxFrameBytes, t.cfg.DeadAfter, &t.count), w, nil
}

// greet is the dialler's side of the handshake.
func (t *Transport) greet(
	c net.Conn, node raftyard.NodeID, class Class, addr string,
) (welcome, error) {
	h := hello{
		minVersion: minVersion, maxVersion: maxVersion,
		class: class, from: t.self, expect: node, addr: addr,
		maxFrame: uint64(t.cfg.MaxFrameBytes), at: t.cfg.Advertise,
	}
	if err := writeHandshake(c, frameHello, encodeHello(&h), t.cfg.DialTimeout); err != nil {
		return welcome{}, fmt.Errorf("handshake: %w", err)
	}
	typ, body, err := readHandshake(c, t.cfg.DialTimeout)
	if err != nil {
		return welcome{}, fmt.Errorf("handshake: %w", err)
	}
	switch typ {
	case frameWelcome:
		w, err := decodeWelcome(body)
		if err != nil {
			return welcome{}, err
		}
		if ref := t.checkWelcome(&w, node); ref != nil {
			t.count.refusals[ref.Code].Add(1)
			return welcome{}, ref
		}
		return w, nil
	case frameRefusal:
		ref, err := decodeRefusal(body)
		if err != nil {
			return welcome{}, err
		}
		t.count.refused.Add(1)
		return welcome{}, ref
	default:
		return welcome{}, fmt.Errorf("%w: frame type %d in a handshake", errProtocol, typ)
	}
}

// checkWelcome makes sure of what the acceptor should have checked.
func (t *Transport) checkWelcome(w *welcome, node raftyard.NodeID) *RefusalError {
	switch {
	case w.from.Cluster != t.self.Cluster:
		return refuse(RefusedCluster, "node %d belongs to cluster %s, this node to %s",
			w.from.Node, w.from.Cluster, t.self.Cluster)
	case w.from.Node != node:
		return refuse(RefusedWrongNode, "node %d was expected there, node %d is", node, w.from.Node)
	}
	return nil
}
