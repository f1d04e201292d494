package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/raftyard/raftyard/internal/wire"
)

// requestGate bounds the requests of all peers that are being handled, and then
// their answers until they are written, in number and in bytes.
type requestGate struct {
	maxCount int
	maxBytes int64

	mu    sync.Mutex
	count int
	bytes int64
}

// enter takes a place for a request of so many bytes, if there is one, and says what it was
// that there was not enough of.
func (g *requestGate) enter(size int) (ok, byBytes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.count >= g.maxCount:
		return false, false
	case g.bytes+int64(size) > g.maxBytes:
		return false, true
	}
	g.count++
	g.bytes += int64(size)
	return true, false
}

// held returns how much is held now, in number and in bytes.
func (g *requestGate) held() (count int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count, g.bytes
}

// exchange counts an answer in place of its request, if there is room for it.
func (g *requestGate) exchange(request, answer int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	more := int64(answer) - int64(request)
	if more > 0 && g.bytes+more > g.maxBytes {
		return false
	}
	g.bytes += more
	return true
}

func (g *requestGate) leave(size int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	g.bytes -= int64(size)
}

// requestServer answers the requests that come on one connection. Each is
// handled on a goroutine of its own; the answers are written by one more.
type requestServer struct {
	t        *Transport
	conn     *frameConn
	from     Identity
	maxFrame uint64        // that the peer takes
	wake     chan struct{} // for the writer: there is something to write
	room     chan struct{} // for the reader: something was taken to be written
	handlers sync.WaitGroup

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
	open    int // handled here or waiting to be written
	out     []pending
	answers int64 // bytes of answers that wait to be written
	broken  bool  // nothing is written any more
}

// pending is a frame that waits to be written.
type pending struct {
	frame []byte
	size  int  // as the gate counts it
	kept  int  // of size, what counts as an answer that waits
	held  bool // it holds a place in the gate
}

// serveRequests serves until the connection fails or ctx ends.
func (t *Transport) serveRequests(ctx context.Context, c *frameConn, h *hello) error {
	s := &requestServer{
		t: t, conn: c, from: h.from, maxFrame: h.maxFrame,
		wake:    make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
		running: make(map[uint64]context.CancelFunc),
	}
	ctx, cancel := context.WithCancel(ctx)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		defer s.drop()
		s.write(ctx)
	}()
	err := s.read(ctx)
	cancel()
	closeQuietly(c)
	s.handlers.Wait()
	<-wrote
	return err
}

func (s *requestServer) read(ctx context.Context) error {
	for {
		// Bodies go to handlers, so no buffer is used twice.
		typ, body, err := s.conn.readFrame(nil)
		if err != nil {
			return err
		}
		switch typ {
		case framePing:
			if len(body) != pingBody {
				return fmt.Errorf("%w: ping of %d bytes", errProtocol, len(body))
			}
			if ref := s.t.readmit(s.from); ref != nil {
				return ref
			}
			err = s.reply(appendFrame(nil, framePong, body))
		case frameRequest:
			err = s.request(ctx, body)
		case frameCancel:
			err = s.cancel(body)
		default:
			err = unexpected(typ, ClassRequest)
		}
		if err != nil {
			return err
		}
	}
}

func (s *requestServer) cancel(body []byte) error {
	id, err := decodeCancel(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.running[id]; cancel != nil {
		cancel()
	}
	return nil
}

func (s *requestServer) request(ctx context.Context, body []byte) error {
	req, err := decodeRequest(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	if req.left <= 0 {
		late := answer{status: answerLate, err: RemoteError{Message: "arrived after its deadline"}}
		return s.reply(s.answerFrame(req.id, &late))
	}
	ctx, cancel := context.WithTimeout(ctx, req.left)
	switch err := s.begin(&req, cancel); {
	case errors.Is(err, ErrBusy):
		cancel()
		s.t.count.requestsBusy.Add(1)
		busy := answerOf(nil, err)
		return s.reply(s.answerFrame(req.id, &busy))
	case err != nil:
		cancel()
		return err
	}
	s.handlers.Go(func() {
		defer cancel()
		s.handle(ctx, &req)
	})
	return nil
}

// begin takes a place for the request, or says that there is none.
func (s *requestServer) begin(req *request, cancel context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[req.id] != nil {
		return fmt.Errorf("%w: two requests with one id", errProtocol)
	}
	if limit := s.t.cfg.MaxRequestsPerPeer; s.open >= limit {
		return fmt.Errorf("%w: %d requests of node %d are being handled",
			ErrBusy, limit, s.from.Node)
	}
	if ok, byBytes := s.t.gate.enter(req.total); !ok {
		if byBytes {
			s.t.count.requestsNoRoom.Add(1)
		}
		return fmt.Errorf("%w: as many requests as possible are being handled", ErrBusy)
	}
	s.open++
	s.running[req.id] = cancel
	return nil
}

func (s *requestServer) handle(ctx context.Context, req *request) {
	body, err := s.t.cfg.Handler.HandleRequest(ctx, s.from, req.kind, req.body)
	s.t.count.requestsHandled.Add(1)
	a := answerOf(body, err)
	p := pending{frame: s.answerFrame(req.id, &a), size: req.total, held: true}
	if s.keep(req.total, len(p.frame)) {
		p.size, p.kept = len(p.frame), len(p.frame)
	} else {
		s.t.count.answersNoRoom.Add(1)
		dropped := answerOf(nil, fmt.Errorf("%w: it was handled, and its answer of %d bytes "+
			"dropped: too many wait to be sent", ErrUnknown, len(p.frame)))
		p.frame = s.answerFrame(req.id, &dropped)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, req.id)
	if s.broken { // the caller knows: its connection is lost
		s.releaseLocked(&p)
		return
	}
	s.postLocked(p)
}

// keep reports whether there is room for an answer until it is written, and then
// counts it in place of its request. The answers of one connection get half of the
// room, or one answer, so that a peer that is slow to read leaves some for others.
func (s *requestServer) keep(request, answer int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := &s.t.gate
	if s.answers > 0 && s.answers+int64(answer) > gate.maxBytes/2 {
		return false
	}
	if !gate.exchange(request, answer) {
		return false
	}
	s.answers += int64(answer)
	return true
}

// answerFrame makes the frame of an answer. One that the peer would not take is
// replaced by an error.
func (s *requestServer) answerFrame(id uint64, a *answer) []byte {
	limit := min(s.maxFrame, uint64(s.t.cfg.MaxFrameBytes))
	if size := len(a.body) + len(a.err.Body); uint64(size+requestOverhead) > limit {
		a = &answer{status: answerError, err: RemoteError{
			Message: fmt.Sprintf("the answer of %d bytes is too large to be sent", size),
		}}
	}
	b := beginFrame(make([]byte, 0, frameHeader+requestOverhead+len(a.body)+len(a.err.Body)),
		frameAnswer)
	b = wire.AppendUvarint(b, id)
	return endFrame(appendAnswer(b, a), 0)
}

// reply queues a frame that holds no place in the gate. When many wait already it
// does so itself, and with it the reader: the peer cannot make us queue more than
// that, and if it reads nothing, writing fails.
func (s *requestServer) reply(frame []byte) error {
	for {
		s.mu.Lock()
		switch {
		case s.broken:
			s.mu.Unlock()
			return ErrClosed
		case len(s.out) < 2*s.t.cfg.MaxRequestsPerPeer+16:
			s.postLocked(pending{frame: frame})
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		<-s.room
	}
}

func (s *requestServer) postLocked(p pending) {
	s.out = append(s.out, p)
	signal(s.wake)
}

// signal leaves a value in a channel that has room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *requestServer) releaseLocked(p *pending) {
	if p.held {
		s.open--
		s.answers -= int64(p.kept)
		s.t.gate.leave(p.size)
	}
}

// write writes what is posted until the connection fails or ctx ends.
func (s *requestServer) write(ctx context.Context) {
	var buf []byte
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for n := 1; n > 0; {
			var taken []pending
			buf, taken = s.collect(buf[:0])
			if n = len(taken); n == 0 {
				break
			}
			err := s.conn.writeFrames(buf, n)
			s.mu.Lock()
			s.writtenLocked(taken)
			s.mu.Unlock()
			if err != nil {
				closeQuietly(s.conn) // the reader notices
				return
			}
			buf = trim(buf)
		}
	}
}

// collect appends posted frames to buf, up to about targetFrame bytes.
func (s *requestServer) collect(buf []byte) ([]byte, []pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.out) && (n == 0 || len(buf)+len(s.out[n].frame) <= targetFrame) {
		buf = append(buf, s.out[n].frame...)
		n++
	}
	taken := append([]pending(nil), s.out[:n]...)
	if s.out = s.out[n:]; len(s.out) == 0 {
		s.out = nil
	}
	signal(s.room)
	return buf, taken
}

// writtenLocked gives back what the frames have held.
func (s *requestServer) writtenLocked(frames []pending) {
	for i := range frames {
		s.releaseLocked(&frames[i])
	}
}

// drop gives back the places of what was not written, and ends waiting for room.
func (s *requestServer) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.writtenLocked(s.out)
	s.out = nil
	signal(s.room)
}
