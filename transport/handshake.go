package transport

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// magic is what both ends send first, so that something else that listens on
// the address, or connects to it, is recognised as such.
const magic = "raftyard"

// minVersion and maxVersion are the versions of the protocol that this code
// speaks. The connection uses the greatest one that both ends speak.
const (
	minVersion = 1
	maxVersion = 1
)

const (
	maxHandshake = 4 << 10 // greatest body of a handshake frame
	maxAddress   = 512
	maxText      = 1 << 10
)

// Class says what a connection is for.
type Class uint8

// The classes of connections.
const (
	ClassRaft     Class = 1
	ClassRequest  Class = 2
	ClassSnapshot Class = 3
)

// String returns the class in one word.
func (c Class) String() string {
	switch c {
	case ClassRaft:
		return "raft"
	case ClassRequest:
		return "request"
	case ClassSnapshot:
		return "snapshot"
	default:
		return fmt.Sprintf("class %d", uint8(c))
	}
}

// hello is the first frame of the dialler.
type hello struct {
	minVersion, maxVersion uint64

	class    Class
	from     Identity
	expect   raftyard.NodeID // whom the dialler wants to reach
	addr     string          // where the dialler has reached the acceptor
	maxFrame uint64          // greatest frame that the dialler takes
	at       string          // where the dialler is reached; empty if it does not say
}

// welcome is the acceptor's answer to a hello that it accepts.
type welcome struct {
	version  uint64
	from     Identity
	maxFrame uint64 // greatest frame that the acceptor takes
	at       string // where the acceptor is reached; empty if it does not say
}

func appendIdentity(b []byte, p *Identity) []byte {
	b = wire.AppendID(b, p.Cluster)
	b = wire.AppendUvarint(b, uint64(p.Node))
	b = wire.AppendID(b, p.Store)
	b = wire.AppendUvarint(b, p.Boot)
	return wire.AppendID(b, p.Process)
}

func readIdentity(r *wire.Reader) Identity {
	return Identity{
		Cluster: r.ID(),
		Node:    raftyard.NodeID(r.Uvarint()),
		Store:   r.ID(),
		Boot:    r.Uvarint(),
		Process: r.ID(),
	}
}

func encodeHello(h *hello) []byte {
	b := wire.AppendUvarint(nil, h.minVersion)
	b = wire.AppendUvarint(b, h.maxVersion)
	b = append(b, byte(h.class))
	b = appendIdentity(b, &h.from)
	b = wire.AppendUvarint(b, uint64(h.expect))
	b = wire.AppendString(b, truncate(h.addr, maxAddress))
	b = wire.AppendUvarint(b, h.maxFrame)
	b = wire.AppendString(b, truncate(h.at, maxAddress))
	return wire.AppendString(b, h.from.Lineage)
}

// readAddress reads where the sender is reached, which nodes of the first releases do
// not say.
func readAddress(r *wire.Reader) string {
	if r.Len() == 0 {
		return ""
	}
	addr := r.String()
	if len(addr) > maxAddress {
		r.Fail("address of %d bytes", len(addr))
	}
	return addr
}

// readLineage reads what the sender shows of its earlier starts, which those do not that
// are older than the field.
func readLineage(r *wire.Reader) string {
	if r.Len() == 0 {
		return ""
	}
	shown := r.String()
	if len(shown) > MaxLineageBytes {
		r.Fail("lineage of %d bytes", len(shown))
	}
	return shown
}

// decodeHello reads a hello. What follows its known fields is ignored: later
// versions append to it.
func decodeHello(body []byte) (hello, error) {
	r := wire.NewReader(body)
	h := hello{
		minVersion: r.Uvarint(),
		maxVersion: r.Uvarint(),
		class:      Class(r.Byte()),
		from:       readIdentity(r),
		expect:     raftyard.NodeID(r.Uvarint()),
		addr:       r.String(),
		maxFrame:   r.Uvarint(),
		at:         readAddress(r),
	}
	h.from.Lineage = readLineage(r)
	switch {
	case h.class < ClassRaft || h.class > ClassSnapshot:
		r.Fail("connection %s", h.class)
	case h.from.Node == 0:
		r.Fail("node id zero")
	case len(h.addr) > maxAddress:
		r.Fail("address of %d bytes", len(h.addr))
	case h.maxFrame < minFrameBytes:
		r.Fail("frames of at most %d bytes", h.maxFrame)
	}
	if err := r.Err(); err != nil {
		return hello{}, fmt.Errorf("hello: %w", err)
	}
	return h, nil
}

func encodeWelcome(w *welcome) []byte {
	b := wire.AppendUvarint(nil, w.version)
	b = appendIdentity(b, &w.from)
	b = wire.AppendUvarint(b, w.maxFrame)
	b = wire.AppendString(b, truncate(w.at, maxAddress))
	return wire.AppendString(b, w.from.Lineage)
}

func decodeWelcome(body []byte) (welcome, error) {
	r := wire.NewReader(body)
	w := welcome{
		version: r.Uvarint(), from: readIdentity(r), maxFrame: r.Uvarint(), at: readAddress(r),
	}
	w.from.Lineage = readLineage(r)
	switch {
	case w.version < minVersion || w.version > maxVersion:
		r.Fail("protocol version %d", w.version)
	case w.from.Node == 0:
		r.Fail("node id zero")
	case w.maxFrame < minFrameBytes:
		r.Fail("frames of at most %d bytes", w.maxFrame)
	}
	if err := r.Err(); err != nil {
		return welcome{}, fmt.Errorf("welcome: %w", err)
	}
	return w, nil
}

func encodeRefusal(ref *RefusalError) []byte {
	return wire.AppendString([]byte{byte(ref.Code)}, truncate(ref.Text, maxText))
}

func decodeRefusal(body []byte) (*RefusalError, error) {
	r := wire.NewReader(body)
	ref := &RefusalError{Code: RefusalCode(r.Byte()), Text: r.String()}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("refusal: %w", err)
	}
	return ref, nil
}

// commonVersion returns the greatest version in both ranges, or zero.
func commonVersion(low, high uint64) uint64 {
	v := min(high, maxVersion)
	if v < max(low, minVersion) {
		return 0
	}
	return v
}

// writeHandshake sends the magic and one frame.
func writeHandshake(c net.Conn, t frameType, body []byte, timeout time.Duration) error {
	if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := c.Write(appendFrame([]byte(magic), t, body))
	return err
}

// readHandshake receives the magic and one frame. It reads no further than
// that, and must be done within the timeout.
func readHandshake(c net.Conn, timeout time.Duration) (frameType, []byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return 0, nil, err
	}
	var got [len(magic)]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return 0, nil, err
	}
	if string(got[:]) != magic {
		return 0, nil, fmt.Errorf("%w: no raftyard node: it begins with %q", errProtocol, got)
	}
	fr := frameReader{r: c, limit: maxHandshake}
	t, body, err := fr.read(nil)
	return t, body, noEOF(err)
}

// acceptHello is the acceptor's side of the handshake. On success the connection is
// registered with the admission; leave must be called at its end. A refusal has
// been sent to the dialler when it is returned.
func (t *Transport) acceptHello(c net.Conn) (hello, error) {
	typ, body, err := readHandshake(c, t.cfg.DialTimeout)
	if err != nil {
		return hello{}, fmt.Errorf("handshake: %w", err)
	}
	if typ != frameHello {
		return hello{}, fmt.Errorf("%w: frame type %d in a handshake", errProtocol, typ)
	}
	h, err := decodeHello(body)
	var ref *RefusalError
	if err != nil {
		ref = refuse(RefusedMalformed, "%v", err)
	} else {
		ref = t.checkHello(&h)
	}
	if ref == nil {
		ref = t.enter(&h.from, h.class, true, c)
	}
	if ref != nil {
		t.count.refusals[ref.Code].Add(1)
		// The refusal is what the caller returns, whether or not it gets through.
		_ = writeHandshake(c, frameRefusal, encodeRefusal(ref), t.cfg.DialTimeout)
		return h, ref
	}
	w := welcome{
		version:  commonVersion(h.minVersion, h.maxVersion),
		from:     t.self,
		maxFrame: uint64(t.cfg.MaxFrameBytes),
		at:       t.cfg.Advertise,
	}
	err = writeHandshake(c, frameWelcome, encodeWelcome(&w), t.cfg.DialTimeout)
	if err != nil {
		t.admission.leave(h.from.Node, c)
		return hello{}, fmt.Errorf("handshake: %w", err)
	}
	t.admission.tell(h.from.Node, h.at)
	return h, nil
}

func (t *Transport) checkHello(h *hello) *RefusalError {
	self := &t.self
	switch {
	case commonVersion(h.minVersion, h.maxVersion) == 0:
		return refuse(RefusedVersion, "node %d speaks versions %d to %d, node %d %d to %d",
			h.from.Node, h.minVersion, h.maxVersion, self.Node, minVersion, maxVersion)
	case h.from.Cluster != self.Cluster:
		return refuse(RefusedCluster, "node %d belongs to cluster %s, node %d at %s to %s",
			h.from.Node, h.from.Cluster, self.Node, h.addr, self.Cluster)
	case h.from.Node == self.Node && h.from.Process == self.Process:
		return refuse(RefusedSelf, "%s is the address of node %d itself", h.addr, self.Node)
	case h.from.Node == self.Node:
		return refuse(RefusedClone, "two processes run as node %d: the one at %s with data "+
			"directory %s, and the one that calls it with %s; stop one of the two, or give it "+
			"another id", self.Node, h.addr, self.Store, h.from.Store)
	case h.expect != self.Node:
		return refuse(RefusedWrongNode, "node %d was expected at %s, node %d is there",
			h.expect, h.addr, self.Node)
	}
	return nil
}

// enter registers a connection with the process at its other end, or says why there
// must be none. What the embedding program is asked about is not in the way of a process
// that is connected.
func (t *Transport) enter(p *Identity, class Class, inbound bool, c io.Closer) *RefusalError {
	if ref := t.admission.await(t.ctx, p); ref != nil {
		return ref
	}
	if ref := t.cfg.admit(*p); ref != nil {
		return ref
	}
	return t.admission.enter(p, class, inbound, c)
}

// admit asks the embedding program about a peer.
func (c *Config) admit(peer Identity) *RefusalError {
	if c.Admit == nil {
		return nil
	}
	return c.Admit(peer)
}
