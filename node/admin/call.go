package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

// A call is one request while it is served.
type call struct {
	handler *Handler
	w       *recorder
	r       *http.Request
	came    *http.Request // r as it came, whose context has no deadline of ours
	started time.Time
	limit   time.Duration // from started to the deadline
	route   *route        // nil until it is known
	rawKey  string        // the escaped key of a path that has one
	query   url.Values

	cleanup []func() // in reverse order, when the request ends
	abort   bool     // the answer is half sent and cannot be mended

	reserved   int64 // bytes of room for the answer
	bodyFailed bool  // the rest of the body is not worth waiting for
}

// linger is how long after its deadline an answer may still take to be sent.
const linger = 5 * time.Second

// drain is how long the rest of a body that nobody wants may take to arrive.
const drain = time.Second

// begin checks what all requests have in common, takes a slot and starts the
// deadline.
func (c *call) begin(rt *route) error {
	c.route = rt
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return newProblem(client.CodeInvalid, "the query cannot be read: %s",
			strings.TrimPrefix(err.Error(), "net/url: "))
	}
	c.query = query
	err = c.checkParams(rt)
	if err != nil {
		return err
	}
	slots := c.handler.slots
	if rt.vital != nil {
		slots = rt.vital
	} else if IsCrowded(c.r.Context()) {
		return newProblem(client.CodeOverloaded, "there are too many connections")
	}
	select {
	case slots <- struct{}{}:
		c.cleanup = append(c.cleanup, func() { <-slots })
	default:
		if rt.vital == nil {
			c.handler.busy.Add(1)
		}
		return newProblem(client.CodeOverloaded,
			"%d requests are being served, which is the limit", cap(slots))
	}
	timeout, err := c.timeout(rt)
	if err != nil {
		return err
	}
	c.limitTo(timeout)
	if c.r.Context().Err() != nil {
		return newProblem(client.CodeTimeout, "the time was over before the request was begun")
	}
	return nil
}

// checkParams refuses parameters that the route does not have: who mistypes
// consistency must not get another one in silence. Probes and metrics take what
// comes, since their clients add things of their own.
func (c *call) checkParams(rt *route) error {
	if rt.vital != nil {
		return nil
	}
	known := append([]string{"timeout"}, rt.params...)
	for _, name := range slices.Sorted(maps.Keys(c.query)) {
		if !slices.Contains(known, name) {
			return newProblem(client.CodeInvalid,
				"unknown parameter %q, there are: %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// limitTo ends the request after a time, in place of the one before.
func (c *call) limitTo(timeout time.Duration) {
	c.limit = timeout
	deadline := c.started.Add(timeout)
	ctx, cancel := context.WithDeadline(c.came.Context(), deadline)
	c.cleanup = append(c.cleanup, cancel)
	c.r = c.r.WithContext(ctx)
	control := http.NewResponseController(c.w)
	ignoreUnsupported(control.SetWriteDeadline(deadline.Add(linger)))
}

// ignoreUnsupported drops an error of a writer that has no deadlines: then the
// server that has mounted the handler has to see to them.
func ignoreUnsupported(error) {}

// timeout returns how long the request may take.
func (c *call) timeout(rt *route) (time.Duration, error) {
	if rt.vital != nil {
		return c.handler.cfg.DefaultTimeout, nil
	}
	return c.duration("timeout", c.handler.cfg.DefaultTimeout)
}

// duration returns a parameter that is a Go duration or a number of seconds.
func (c *call) duration(name string, absent time.Duration) (time.Duration, error) {
	text, ok, err := c.param(name)
	if err != nil || !ok {
		return absent, err
	}
	most := c.handler.cfg.MaxTimeout
	got, err := time.ParseDuration(text)
	if err != nil {
		got, err = time.ParseDuration(text + "s")
	}
	if err != nil || got <= 0 || got > most {
		return 0, newProblem(client.CodeInvalid,
			"%s is %q, want a duration such as 5s, or seconds, above 0 and at most %s",
			name, text, shortDuration(most))
	}
	return got, nil
}

// shortDuration returns d as people type it: 5m, not 5m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// param returns a parameter of the query. One that comes twice is refused: which
// of both counts would be a guess.
func (c *call) param(name string) (text string, ok bool, err error) {
	values := c.query[name]
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	default:
		return "", false, newProblem(client.CodeInvalid, "%s is given %d times", name, len(values))
	}
}

// number returns a parameter that is an integer from least to most.
func (c *call) number(name string, absent, least, most uint64) (uint64, error) {
	text, ok, err := c.param(name)
	if err != nil || !ok {
		return absent, err
	}
	got, err := strconv.ParseUint(text, 10, 64)
	if err != nil || got < least || got > most {
		return 0, newProblem(client.CodeInvalid,
			"%s is %q, want an integer from %d to %d", name, text, least, most)
	}
	return got, nil
}

// flag returns a parameter that is true when given without a value.
func (c *call) flag(name string) (bool, error) {
	text, ok, err := c.param(name)
	if err != nil || !ok {
		return false, err
	}
	if text == "" {
		return true, nil
	}
	got, err := strconv.ParseBool(text)
	if err != nil {
		return false, newProblem(client.CodeInvalid, "%s is %q, want true or false", name, text)
	}
	return got, nil
}

// groupID returns the id in the path.
func (c *call) groupID() (raftyard.GroupID, error) {
	text := c.r.PathValue("id")
	id, err := raftyard.ParseGroupID(text)
	return id, badID(text, err)
}

// badID returns why an id in a request is none, or nil.
func badID(text string, err error) error {
	if err == nil {
		return nil
	}
	return newProblem(client.CodeInvalid, "%q: %v", text, err)
}

// pathGroup returns the group that the path is about, if it names one, also when
// the request gets no further than that. It is for problems.
func (c *call) pathGroup() *raftyard.GroupID {
	rest, ok := strings.CutPrefix(c.r.URL.EscapedPath(), "/v1/groups/")
	if !ok {
		return nil
	}
	text, _, _ := strings.Cut(rest, "/")
	id, err := raftyard.ParseGroupID(text)
	if err != nil {
		return nil
	}
	return &id
}

// body reads at most limit bytes; what names it in messages. What it returns may
// be kept until the end of the request.
func (c *call) body(what string, limit int64) ([]byte, error) {
	expect := c.r.ContentLength
	if expect > limit {
		return nil, tooLarge(what, limit)
	}
	if expect < 0 {
		expect = limit
	}
	bodies := c.handler.bodies
	if !bodies.take(expect) {
		return nil, newProblem(client.CodeOverloaded, "too many bodies are in memory at once")
	}
	c.cleanup = append(c.cleanup, func() { bodies.give(expect) })

	control := http.NewResponseController(c.w)
	if deadline, ok := c.r.Context().Deadline(); ok {
		ignoreUnsupported(control.SetReadDeadline(deadline))
	}
	data, err := readAll(http.MaxBytesReader(c.w, c.r.Body, limit), c.r.ContentLength)
	c.bodyFailed = err != nil
	switch {
	case err == nil:
		// What the server waits for now is the client going away.
		ignoreUnsupported(control.SetReadDeadline(time.Time{}))
		return data, nil
	case c.r.Context().Err() != nil || errors.Is(err, errTimeout):
		return nil, newProblem(client.CodeTimeout, "%s did not arrive in time", what)
	default:
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooLarge(what, limit)
		}
		return nil, newProblem(client.CodeInvalid,
			"%s cannot be read: %s", what, client.Explain(err))
	}
}

// readAll reads a body whose length is known, unless it is negative, without taking more
// memory than that.
func readAll(body io.Reader, length int64) ([]byte, error) {
	if length < 0 {
		return io.ReadAll(body)
	}
	buf := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	_, err := buf.ReadFrom(body)
	return buf.Bytes(), err
}

func tooLarge(what string, limit int64) error {
	return newProblem(client.CodeTooLarge, "%s is over %d bytes, which is the limit", what, limit)
}

// send answers with a JSON document.
func (c *call) send(status int, v any) error {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.write(status, buf.Bytes())
	return nil
}

// write sends the answer. An error means that the client is gone, which the
// server finds out too.
func (c *call) write(status int, body []byte) {
	c.settle(int64(len(body)))
	header := c.w.Header()
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return
	}
	if _, err := c.w.Write(body); err != nil {
		c.handler.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelDebug, "answer not sent",
			slog.Any("error", err))
	}
}

// fail answers with the problem that err is.
func (c *call) fail(err error) {
	if c.w.status != 0 {
		c.abort = true
		return
	}
	p := toProblem(err)
	if p.Group == nil {
		p.Group = c.pathGroup()
	}
	if isRead(c.r) { // nothing could have happened
		p.Outcome = client.OutcomeNotApplied
	}
	if p.Code == client.CodeInternal {
		c.handler.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelError, "request failed",
			slog.String("method", c.r.Method), slog.Any("error", err))
	}
	if p.RetryAfterMS > 0 {
		c.w.Header().Set("Retry-After", strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	if p.Revision > 0 {
		c.w.Header().Set("ETag", etag(p.Revision))
	}
	body, jsonErr := json.Marshal(p)
	if jsonErr != nil { // there is nothing in a problem that cannot be encoded
		body = nil
	}
	c.w.Header().Set("Content-Type", client.ProblemType)
	c.write(p.Status, append(body, '\n'))
}

// panicked turns a panic of the code that served the request into an answer.
func (c *call) panicked(reason any) {
	if err, ok := reason.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		c.abort = true
		return
	}
	c.handler.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelError, "request panicked",
		slog.String("method", c.r.Method),
		slog.Any("panic", reason),
		slog.String("stack", string(debug.Stack())))
	p := newProblem(client.CodeInternal, "the request failed inside the node, which has logged why")
	if c.route != nil && c.route.changes {
		p.Outcome = client.OutcomeUnknown
	}
	c.fail(p)
}

// release gives back what the request holds. The server reads what a handler
// has left of a body before it answers, which must not take long either.
func (c *call) release() {
	if !c.bodyFailed {
		control := http.NewResponseController(c.w)
		ignoreUnsupported(control.SetReadDeadline(time.Now().Add(drain)))
	}
	for _, undo := range slices.Backward(c.cleanup) {
		undo()
	}
}
