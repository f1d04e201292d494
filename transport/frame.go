package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"
)

// A frame is a header of 12 bytes and a body:
//
//	0  4  length of the body, big endian
//	4  1  type
//	5  1  zero
//	6  2  low half of the CRC32C of bytes 0 to 5
//	8  4  CRC32C of bytes 0 to 7 and the body
//
// The header has a check of its own, because a damaged length would otherwise
// have us wait for bytes that nobody has sent.
const frameHeader = 12

type frameType uint8

const (
	frameHello     frameType = 1  // dialler: who I am, and whom I want
	frameWelcome   frameType = 2  // acceptor: who I am
	frameRefusal   frameType = 3  // acceptor: why I do not want this connection
	framePing      frameType = 4  // dialler; of class snapshot also the acceptor
	framePong      frameType = 5  // acceptor, but not of class snapshot
	frameEnvelopes frameType = 6  // class raft
	frameRequest   frameType = 7  // class request, dialler
	frameCancel    frameType = 8  // class request, dialler
	frameAnswer    frameType = 9  // class request, acceptor
	frameSnapshot  frameType = 10 // class snapshot, dialler: what is coming
	frameAccept    frameType = 11 // class snapshot, acceptor: send it
	frameChunk     frameType = 12 // class snapshot, dialler
	frameEnd       frameType = 13 // class snapshot, dialler: length and hash
	frameAbort     frameType = 14 // class snapshot, dialler: there is no more
	frameVerdict   frameType = 15 // class snapshot, acceptor
)

const (
	readBuffer = 64 << 10

	// writeSlice is how much is written under one deadline, so that the deadline
	// bounds the least rate and not the time that a large frame takes.
	writeSlice = 256 << 10

	// readSlice is how much is allocated for a body before any of it has come.
	readSlice = 1 << 20
)

// beginFrame appends the header of a frame whose body is appended next.
func beginFrame(b []byte, t frameType) []byte {
	return append(b, 0, 0, 0, 0, byte(t), 0, 0, 0, 0, 0, 0, 0)
}

// endFrame completes the frame that begins at b[start].
func endFrame(b []byte, start int) []byte {
	head, body := b[start:start+frameHeader], b[start+frameHeader:]
	binary.BigEndian.PutUint32(head[0:], uint32(len(body)))
	binary.BigEndian.PutUint16(head[6:], headSum(head))
	binary.BigEndian.PutUint32(head[8:], frameSum(head, body))
	return b
}

func headSum(head []byte) uint16 {
	return uint16(crc32.Checksum(head[:6], crc32.MakeTable(crc32.Castagnoli)))
}

func frameSum(head, body []byte) uint32 {
	// MakeTable returns the same table for Castagnoli each time.
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(head[:8], table), table, body)
}

func appendFrame(b []byte, t frameType, body []byte) []byte {
	start := len(b)
	return endFrame(append(beginFrame(b, t), body...), start)
}

// frameReader reads frames of a limited length.
type frameReader struct {
	r     io.Reader
	limit int
	head  [frameHeader]byte
}

// read returns the next frame. The body is in buf if that has the capacity,
// and in new memory otherwise. An error that wraps errProtocol means that the
// other end, or the network, has sent what is no frame; io.EOF is returned only
// between frames.
func (fr *frameReader) read(buf []byte) (frameType, []byte, error) {
	if _, err := io.ReadFull(fr.r, fr.head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(fr.head[0:])
	switch {
	case fr.head[5] != 0, binary.BigEndian.Uint16(fr.head[6:]) != headSum(fr.head[:]):
		return 0, nil, fmt.Errorf("%w: frame header % x", errProtocol, fr.head)
	case int64(n) > int64(fr.limit):
		return 0, nil, fmt.Errorf("%w: frame of %d bytes, at most %d are allowed",
			errProtocol, n, fr.limit)
	}
	body, err := fr.readBody(buf, int(n))
	if err != nil {
		return 0, nil, err
	}
	if frameSum(fr.head[:], body) != binary.BigEndian.Uint32(fr.head[8:]) {
		return 0, nil, fmt.Errorf("%w: checksum of a frame of %d bytes does not hold",
			errProtocol, n)
	}
	return frameType(fr.head[4]), body, nil
}

// readBody reads n bytes. Memory for a large body is taken as the body comes,
// so that a header alone cannot make us allocate much.
func (fr *frameReader) readBody(buf []byte, n int) ([]byte, error) {
	if n > cap(buf) && n > readSlice {
		return fr.readLarge(n)
	}
	body := buf[:0]
	if n > cap(buf) {
		body = make([]byte, 0, n)
	}
	body = body[:n]
	_, err := io.ReadFull(fr.r, body)
	return body, noEOF(err)
}

func (fr *frameReader) readLarge(n int) ([]byte, error) {
	body := make([]byte, 0, readSlice)
	for len(body) < n {
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(n, 4*cap(body)))
			copy(grown, body)
			body = grown
		}
		part := body[len(body):min(n, cap(body))]
		if _, err := io.ReadFull(fr.r, part); err != nil {
			return nil, noEOF(err)
		}
		body = body[:len(body)+len(part)]
	}
	return body, nil
}

// noEOF turns io.EOF into io.ErrUnexpectedEOF: inside a frame there is no clean
// end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// frameConn is a connection that carries frames. Reading is for one goroutine
// at a time, and so is writing.
type frameConn struct {
	net.Conn
	frames frameReader

	readTimeout  time.Duration // longest wait for the next byte; 0: for ever
	writeTimeout time.Duration // longest time until writeSlice bytes are taken
	count        *counters
}

func newFrameConn(c net.Conn, limit int, timeout time.Duration, count *counters) *frameConn {
	fc := &frameConn{Conn: c, readTimeout: timeout, writeTimeout: timeout, count: count}
	fc.frames = frameReader{r: bufio.NewReaderSize(deadlineReader{fc}, readBuffer), limit: limit}
	return fc
}

func (c *frameConn) readFrame(buf []byte) (frameType, []byte, error) {
	t, body, err := c.frames.read(buf)
	if err == nil {
		c.count.framesReceived.Add(1)
		c.count.bytesReceived.Add(uint64(frameHeader + len(body)))
	}
	return t, body, err
}

// writeFrames writes b, which holds n whole frames. It fails when the other end
// takes longer than the write timeout for a slice of writeSlice bytes.
func (c *frameConn) writeFrames(b []byte, n int) error {
	for rest := b; len(rest) > 0; {
		part := rest[:min(len(rest), writeSlice)]
		if err := c.SetWriteDeadline(time.Now().Add(c.writeTimeout)); err != nil {
			return err
		}
		if _, err := c.Write(part); err != nil {
			return err
		}
		rest = rest[len(part):]
	}
	c.count.framesSent.Add(uint64(n))
	c.count.bytesSent.Add(uint64(len(b)))
	return nil
}

// deadlineReader allows each read as long as the connection's read timeout.
type deadlineReader struct{ c *frameConn }

func (d deadlineReader) Read(p []byte) (int, error) {
	var deadline time.Time
	if d.c.readTimeout > 0 {
		deadline = time.Now().Add(d.c.readTimeout)
	}
	if err := d.c.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	return d.c.Read(p)
}
