package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/raftyard/raftyard/internal/wire"
)

// answerStatus is how a request, or a snapshot, has ended at the peer.
type answerStatus uint8

const (
	answerOK    answerStatus = 0
	answerError answerStatus = 1 // the handler's error
	answerBusy  answerStatus = 2 // not handled: too much to do
	answerLate  answerStatus = 3 // not handled: its time was over before

	answerUnknown answerStatus = 4 // the handler itself does not know
)

// requestOverhead bounds what a request or an answer takes beside its body.
const requestOverhead = 10 + 10 + 1 + 1 + 3 + 5 + maxErrorText + 5

type request struct {
	id    uint64
	left  time.Duration // until the deadline, when it was written
	kind  uint8
	body  []byte
	total int // bytes of the frame's body
}

func appendRequest(b []byte, r *request) []byte {
	b = wire.AppendUvarint(b, r.id)
	b = wire.AppendUvarint(b, uint64(max(r.left.Microseconds(), 0)))
	return append(append(b, r.kind), r.body...)
}

// maxLeft bounds the time that a peer can ask for.
const maxLeft = 24 * time.Hour

func decodeRequest(body []byte) (request, error) {
	r := wire.NewReader(body)
	req := request{id: r.Uvarint(), total: len(body)}
	req.left = time.Duration(min(r.Uvarint(), uint64(maxLeft.Microseconds()))) * time.Microsecond
	req.kind = r.Byte()
	req.body = r.Raw(uint64(r.Len()))
	if err := r.Err(); err != nil {
		return request{}, fmt.Errorf("request: %w", err)
	}
	return req, nil
}

func appendCancel(b []byte, id uint64) []byte { return wire.AppendUvarint(b, id) }

func decodeCancel(body []byte) (uint64, error) {
	r := wire.NewReader(body)
	id := r.Uvarint()
	if err := r.Close(); err != nil {
		return 0, fmt.Errorf("cancel: %w", err)
	}
	return id, nil
}

// answer is the end of a request, and without an id that of a snapshot.
type answer struct {
	status answerStatus
	body   []byte
	err    RemoteError
}

func answerOf(body []byte, err error) answer {
	if err == nil {
		return answer{status: answerOK, body: body}
	}
	if _, decided := errors.AsType[*RemoteError](err); decided {
		return answer{status: answerError, err: remoteError(err)}
	}
	text := RemoteError{Message: truncate(err.Error(), maxErrorText)}
	switch {
	case errors.Is(err, ErrUnknown): // whatever the reason for not knowing
		return answer{status: answerUnknown, err: text}
	case errors.Is(err, ErrBusy):
		return answer{status: answerBusy, err: text}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// A handler that was interrupted has not decided anything. Usually the
		// caller has given up before it could read this.
		return answer{status: answerUnknown, err: text}
	default:
		return answer{status: answerError, err: remoteError(err)}
	}
}

func appendAnswer(b []byte, a *answer) []byte {
	b = append(b, byte(a.status))
	if a.status == answerOK {
		return append(b, a.body...)
	}
	b = wire.AppendUvarint(b, uint64(a.err.Code))
	b = wire.AppendString(b, a.err.Message)
	return append(b, a.err.Body...)
}

func readAnswer(r *wire.Reader) answer {
	a := answer{status: answerStatus(r.Byte())}
	if a.status == answerOK {
		a.body = r.Raw(uint64(r.Len()))
		return a
	}
	if a.status > answerUnknown {
		r.Fail("answer status %d", a.status)
	}
	code := r.Uvarint()
	if code > 0xffff {
		r.Fail("error code %d", code)
	}
	a.err = RemoteError{Code: uint16(code), Message: r.String(), Body: r.Raw(uint64(r.Len()))}
	return a
}

func decodeAnswer(body []byte) (id uint64, a answer, err error) {
	r := wire.NewReader(body)
	id = r.Uvarint()
	a = readAnswer(r)
	if err := r.Err(); err != nil {
		return 0, answer{}, fmt.Errorf("answer: %w", err)
	}
	return id, a, nil
}

// result turns an answer into what a caller gets.
func (a *answer) result() ([]byte, error) {
	switch a.status {
	case answerOK:
		return a.body, nil
	case answerBusy:
		return nil, fmt.Errorf("%w: %s", ErrBusy, a.err.Message)
	case answerUnknown:
		return nil, fmt.Errorf("%w: %s", ErrUnknown, a.err.Message)
	case answerLate:
		return nil, fmt.Errorf("%w: %s", ErrUnreachable, a.err.Message)
	default:
		err := a.err
		return nil, &err
	}
}
