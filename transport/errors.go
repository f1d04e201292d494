package transport

import (
	"errors"
	"fmt"
)

// Each error here is one reaction of the caller.
var (
	// ErrUnreachable: the peer certainly has not been given the request. Try
	// another peer, or again later.
	ErrUnreachable = errors.New("peer unreachable")

	// ErrUnknown: the request was on its way when the connection or the time was
	// lost. The peer may have handled it, may yet, or may not.
	ErrUnknown = errors.New("outcome unknown")

	// ErrBusy: the peer, or this node on its behalf, has too much to do and has
	// certainly not handled the request. Try again later, with back-off.
	ErrBusy = errors.New("too busy")

	// ErrTooLarge: what should be sent exceeds Config.MaxFrameBytes, here or at
	// the peer. Nothing was handled, and trying again is of no use.
	ErrTooLarge = errors.New("too large")

	// ErrInvalid: an envelope that no peer would accept. Nothing was sent.
	ErrInvalid = errors.New("invalid envelope")

	// ErrClosed: the transport is closed.
	ErrClosed = errors.New("transport is closed")
)

// errProtocol is wrapped by errors that say that a peer has sent what it must
// not send. The connection is closed.
var errProtocol = errors.New("protocol violated")

// NotDelivered reports whether the request that ended with err was certainly
// not handled by the peer and never will be. It is false for nil, for errors of
// the peer's handler, which were delivered, and whenever err holds [ErrUnknown].
func NotDelivered(err error) bool {
	if errors.Is(err, ErrUnknown) || errors.Is(err, errBody) {
		return false
	}
	for _, known := range []error{ErrUnreachable, ErrBusy, ErrTooLarge, ErrInvalid} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// RemoteError is an error of the peer's handler.
//
// A handler that returns an error wrapping a *RemoteError decides about all its
// fields. Of any other error the text arrives as Message, and Body is what its
// MarshalWire() []byte method returns, if it has one.
type RemoteError struct {
	Code    uint16
	Message string
	Body    []byte
}

// Error returns the message.
func (e *RemoteError) Error() string { return e.Message }

// marshaler is implemented by handler errors that travel in a form of their own.
type marshaler interface{ MarshalWire() []byte }

// maxErrorText bounds the text of an error that is sent to a peer.
const maxErrorText = 4 << 10

// remoteError puts err into the form in which it is sent.
func remoteError(err error) RemoteError {
	if remote, ok := errors.AsType[*RemoteError](err); ok {
		out := *remote
		out.Message = truncate(out.Message, maxErrorText)
		return out
	}
	out := RemoteError{Message: truncate(err.Error(), maxErrorText)}
	var m marshaler
	if errors.As(err, &m) {
		out.Body = m.MarshalWire()
	}
	return out
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}

// RefusalCode says why a handshake was refused.
type RefusalCode uint8

// The reasons for refusing a connection.
const (
	RefusedVersion   RefusalCode = iota + 1 // no protocol version in common
	RefusedCluster                          // the other end belongs to another cluster
	RefusedWrongNode                        // the dialler wants another node than it has reached
	RefusedSelf                             // the dialler bears this node's own id
	RefusedClone                            // another process is connected under the same node id
	RefusedStale                            // a later start of the same directory has been seen
	RefusedMalformed                        // the handshake is not what the format says
	RefusedFull                             // too many connections
	RefusedUnknown                          // no node has this id
	RefusedRemoved                          // the node has left the cluster for ever
	RefusedReplaced                         // the node is known with another data directory
	RefusedSpent                            // and had this one before: it is never taken again
	numRefusals
)

// String returns the code in words.
func (c RefusalCode) String() string {
	switch c {
	case RefusedVersion:
		return "no common protocol version"
	case RefusedCluster:
		return "another cluster"
	case RefusedWrongNode:
		return "wrong node"
	case RefusedSelf:
		return "connection to itself"
	case RefusedClone:
		return "another process has this node id"
	case RefusedStale:
		return "older copy of a data directory"
	case RefusedMalformed:
		return "malformed handshake"
	case RefusedFull:
		return "too many connections"
	case RefusedUnknown:
		return "unknown node"
	case RefusedRemoved:
		return "removed node"
	case RefusedReplaced:
		return "another data directory"
	case RefusedSpent:
		return "earlier data directory"
	default:
		return fmt.Sprintf("refusal %d", uint8(c))
	}
}

// RefusalError is the error of a connection that one of its ends has refused. The
// dialler always gets it; the acceptor only when it has refused: a dialler that
// does not like the welcome closes the connection without a word.
type RefusalError struct {
	Code RefusalCode
	Text string // what was expected and what was found
}

// Error returns the reason and the details.
func (r *RefusalError) Error() string {
	return fmt.Sprintf("connection refused: %s: %s", r.Code, r.Text)
}

func refuse(code RefusalCode, format string, args ...any) *RefusalError {
	return &RefusalError{Code: code, Text: fmt.Sprintf(format, args...)}
}
