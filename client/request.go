package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// maxAnswerBytes bounds what is read of an answer.
const maxAnswerBytes = 64 << 20

// A request is what is sent to whichever node answers.
type request struct {
	method string
	path   string // escaped
	query  url.Values
	header http.Header
	body   []byte
	wait   time.Duration // what the node shall wait beside its timeout
	grace  time.Duration // how much longer the call waits for the node's answer
}

// changes reports whether the request may change something.
func (r *request) changes() bool {
	return r.method != http.MethodGet && r.method != http.MethodHead
}

// withJSON returns the request with v as its body.
func (r request) withJSON(v any) (request, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return r, fmt.Errorf("client: encode request: %w", err)
	}
	r.body = body
	r.header = http.Header{"Content-Type": {"application/json"}}
	return r, nil
}

// An answer is one with a status below 400.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// decode reads the answer's JSON into v.
func (a *answer) decode(v any) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("client: the node's answer is not what was expected: %w", err)
	}
	return nil
}

// revision returns the ETag as a number; zero: there is none.
func (a *answer) revision() uint64 {
	text, err := strconv.Unquote(a.header.Get("ETag"))
	if err != nil {
		return 0
	}
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// maxNodeTimeout is the longest that a node may be asked to take.
const maxNodeTimeout = 5 * time.Minute

// A reply is what a node has said: one of both is set.
type reply struct {
	answer  *answer
	problem *Problem
}

// attempt asks one node once. A read ends after limit; a change does when it
// could not be sent by then, and else has all the time of ctx: nobody could say
// what became of it. An error means that the node has not answered: it is an
// [*UnknownError], or the request had no effect.
//
// Whether the node has answered is never looked for in an error: that may hold
// the cause of ctx, and with it what a node has said to another request.
func (c *Client) attempt(
	ctx context.Context, base *url.URL, r request, limit time.Duration,
) (reply, error) {
	var cancel context.CancelFunc
	if r.changes() {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	fl := newFlight(c.cfg.HTTP.Transport)
	var late atomic.Bool
	timer := time.AfterFunc(limit, func() {
		if r.changes() && !fl.sent() {
			late.Store(true)
			cancel()
		}
	})
	defer timer.Stop()
	rep, err := c.send(httptrace.WithClientTrace(ctx, fl.trace()), base, r)
	if err == nil {
		return rep, nil
	}
	switch ended := ctx.Err(); {
	case ended != nil && late.Load():
		err = context.DeadlineExceeded
	case ended != nil:
		err = ended // without its cause, which says nothing about this request
	}
	if r.changes() && fl.sent() {
		err = &UnknownError{Err: err}
	}
	return reply{}, err
}

// times divides the time that is left into what the node gets for the request and
// what it waits afterwards, so that its own answer comes before the end.
func (r *request) times(left time.Duration) (timeout, wait time.Duration) {
	left = max(left-min(r.grace, left/2), time.Millisecond)
	wait = min(r.wait, maxNodeTimeout)
	timeout = max(left-wait, min(left/2, time.Second))
	return min(timeout, maxNodeTimeout), min(wait, left-timeout)
}

// send sends the request and reads the reply.
func (c *Client) send(ctx context.Context, base *url.URL, r request) (reply, error) {
	query := url.Values{}
	maps.Copy(query, r.query)
	if deadline, ok := ctx.Deadline(); ok {
		timeout, wait := r.times(time.Until(deadline))
		query.Set("timeout", timeout.Round(time.Millisecond).String())
		if wait > 0 {
			query.Set("wait", wait.Round(time.Millisecond).String())
		}
	}
	target := base.String() + r.path + "?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return reply{}, fmt.Errorf("client: %w", err)
	}
	maps.Copy(req.Header, r.header)
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return reply{}, err
	}
	body, readErr := readBody(resp)
	failed := errors.Join(readErr, resp.Body.Close())
	if failed != nil {
		return reply{}, failed
	}
	if len(body) > maxAnswerBytes {
		return reply{}, fmt.Errorf("client: the answer is over %d bytes", maxAnswerBytes)
	}
	if resp.StatusCode >= http.StatusMultipleChoices || resp.StatusCode < http.StatusOK {
		return reply{problem: readProblem(resp, body, r.changes())}, nil
	}
	ans := &answer{status: resp.StatusCode, header: resp.Header, body: body}
	return reply{answer: ans}, nil
}

// readBody reads what a node has answered. Where the length is known it takes no more memory
// than that.
func readBody(resp *http.Response) ([]byte, error) {
	if length := resp.ContentLength; length >= 0 && length <= maxAnswerBytes {
		body := make([]byte, length)
		_, err := io.ReadFull(resp.Body, body)
		return body, err
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
}

// readProblem makes a [Problem] of an answer. One that comes from somebody else,
// such as a proxy, says nothing about what the node did.
func readProblem(resp *http.Response, body []byte, changes bool) *Problem {
	p := &Problem{}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && kind == ProblemType && json.Unmarshal(body, p) == nil && p.Code != "" {
		if changes && p.Outcome == "" { // a node always says
			p.Outcome = OutcomeUnknown
		}
		return p
	}
	p = &Problem{
		Status: resp.StatusCode,
		Title:  http.StatusText(resp.StatusCode),
		Detail: fmt.Sprintf("HTTP status %d of what is not a raftyard node", resp.StatusCode),
	}
	p.Outcome = OutcomeNotApplied
	if changes {
		p.Outcome = OutcomeUnknown
	}
	return p
}

// escapeKey returns key as the rest of a path. Whatever a proxy might fold or
// interpret is escaped, so that every key arrives as it is.
func escapeKey(key []byte) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(key))
	for _, b := range key {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-', b == '_':
			out = append(out, b)
		default:
			out = append(out, '%', digits[b>>4], digits[b&15])
		}
	}
	return string(out)
}
