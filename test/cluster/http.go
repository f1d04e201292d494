//go:build unix

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/raftyard/raftyard/client"
)

// A Request is sent once.
type Request struct {
	Method string
	Path   string // escaped, from /
	Query  url.Values
	Header http.Header
	Body   []byte

	// Timeout is the node's, ?timeout=. Default: the node's own, 10s. The client
	// waits a little longer.
	Timeout time.Duration
	// Wait is how long, besides, the node waits for the end of what it has begun,
	// ?wait=. Zero: it does not.
	Wait time.Duration
}

// Outcome says what is known of a request's effect.
type Outcome uint8

const (
	// Applied says that it is done, or of a read that it has an answer.
	Applied Outcome = iota + 1
	// NotApplied says that it certainly has no effect, and will have none.
	NotApplied
	// Unknown says that it may have its effect, or may still get it.
	Unknown
)

func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case NotApplied:
		return "not_applied"
	default:
		return "unknown"
	}
}

// An Answer is how a request ended.
type Answer struct {
	Outcome Outcome
	// Why is the code of the problem, or a word for how the connection ended.
	Why    string
	Status int // zero: there was no answer
	Header http.Header
	Body   []byte
	// Problem is why the node did not do it; nil: it did, or did not answer.
	Problem *client.Problem
	// Err is why there is no answer, or what is wrong with the one that came.
	Err error
	// Malformed: an answer came that no node may give: a failure that is not a
	// problem document with a known code and an outcome.
	Malformed bool
}

func (a Answer) String() string {
	switch {
	case a.Err != nil:
		return a.Err.Error()
	case a.Problem != nil:
		return a.Problem.Error()
	default:
		return fmt.Sprintf("%d %.200s", a.Status, a.Body)
	}
}

// Error returns the answer as an error; nil if it is one of success.
func (a Answer) Error() error {
	switch {
	case a.Err != nil:
		return a.Err
	case a.Problem != nil:
		return a.Problem
	default:
		return nil
	}
}

// Decode reads the JSON of an answer of success into v.
func (a Answer) Decode(v any) error {
	if err := a.Error(); err != nil {
		return err
	}
	return json.Unmarshal(a.Body, v)
}

const (
	nodeTimeout = 10 * time.Second
	// patience is how much longer than the node the client waits.
	patience = 3 * time.Second
)

func newHTTPClient() *http.Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	return &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 256,
	}}
}

// CloseConnections drops the connections to the node that are idle.
func (n *Node) CloseConnections() { n.client.CloseIdleConnections() }

// Do sends a request once and says how it ended.
func (n *Node) Do(ctx context.Context, r Request) Answer {
	query := url.Values{}
	maps.Copy(query, r.Query)
	if r.Timeout > 0 {
		query.Set("timeout", r.Timeout.String())
	}
	if r.Wait > 0 {
		query.Set("wait", r.Wait.String())
	}
	limit := cmp.Or(r.Timeout, nodeTimeout) + r.Wait + patience
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	target := "http://" + n.HTTPAddr() + r.Path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return Answer{Outcome: NotApplied, Why: "bad_request", Err: err, Malformed: true}
	}
	maps.Copy(req.Header, r.Header)
	resp, err := n.client.Do(req)
	if err != nil {
		return unanswered(r.Method, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return unanswered(r.Method, err)
	}
	a := Answer{Outcome: Applied, Status: resp.StatusCode, Header: resp.Header, Body: body}
	if resp.StatusCode >= http.StatusBadRequest {
		a.refused(changes(r.Method))
	}
	return a
}

// unanswered says what is known when no answer came: nothing, unless there was no
// connection at all, or the request was to change nothing.
func unanswered(method string, err error) Answer {
	a := Answer{Outcome: Unknown, Why: "connection_lost", Err: err}
	op, isOp := errors.AsType[*net.OpError](err)
	timeout, isTimeout := errors.AsType[net.Error](err)
	switch {
	case isOp && op.Op == "dial":
		a.Outcome, a.Why = NotApplied, "connection_refused"
	case isTimeout && timeout.Timeout():
		a.Why = "no_answer"
	}
	if !changes(method) {
		a.Outcome = NotApplied
	}
	return a
}

// changes reports whether a request with the method may change something.
func changes(method string) bool { return method != http.MethodGet && method != http.MethodHead }

// refused reads the problem out of an answer, and checks that it is one. That of a
// request that may change something must tell the outcome.
func (a *Answer) refused(changes bool) {
	p := &client.Problem{}
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err == nil && kind != client.ProblemType {
		err = fmt.Errorf("its type is %s", kind)
	}
	if err == nil {
		err = json.Unmarshal(a.Body, p)
	}
	known := slices.Contains(client.Codes(), p.Code)
	if err == nil && (!known || p.Status != a.Status || p.Title == "") {
		err = fmt.Errorf("its code is %q, its status %d, its title %q", p.Code, p.Status, p.Title)
	}
	switch {
	case err != nil:
	case p.Outcome == client.OutcomeNotApplied:
		a.Outcome = NotApplied
	case p.Outcome == client.OutcomeUnknown:
		a.Outcome = Unknown
	default:
		err = fmt.Errorf("its outcome is %q", p.Outcome)
	}
	if err != nil {
		a.Outcome, a.Why, a.Malformed = Unknown, "malformed", true
		if !changes {
			a.Outcome = NotApplied
		}
		a.Err = fmt.Errorf("status %d without a proper problem document: %w: %.300s",
			a.Status, err, a.Body)
		return
	}
	a.Why, a.Problem = p.Code, p
}
