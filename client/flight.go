package client

import (
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// A flight tells whether some of a request may be on its way to a node. It
// believes so of a RoundTripper that has not said anything: only one that knows
// httptrace tells when it has no connection yet.
type flight struct {
	state atomic.Int32
}

// States of a [flight]. It only ever goes on to a later one.
const (
	flightDark    int32 = iota // nothing was heard of the RoundTripper
	flightWaiting              // it looks for a connection
	flightSent                 // it has one
)

// newFlight returns the flight of a request that transport sends. Of net/http's
// own it is known that it tells.
func newFlight(transport http.RoundTripper) *flight {
	f := &flight{}
	if _, std := transport.(*http.Transport); std || transport == nil {
		f.state.Store(flightWaiting)
	}
	return f
}

func (f *flight) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { f.state.CompareAndSwap(flightDark, flightWaiting) },
		GotConn: func(httptrace.GotConnInfo) { f.state.Store(flightSent) },
	}
}

// sent reports whether some of the request may be on its way.
func (f *flight) sent() bool { return f.state.Load() != flightWaiting }
