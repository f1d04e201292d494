package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Config holds the settings of a [Client]. The zero value of every field but
// Addrs means "use the default".
type Config struct {
	// Addrs are nodes of one cluster, as host:port or http://host:port. They are
	// tried in order, beginning with the one that answered last.
	Addrs []string

	// Timeout ends a call whose context has no deadline, with all its retries. What
	// [Client.SetMembers] shall wait is added to it. Default: 10s.
	Timeout time.Duration

	// HTTP sends the requests. Default: one with a connection pool of its own. A
	// change that its Transport fails to send goes to another address only if that
	// knows net/http/httptrace, and so tells that it had no connection.
	HTTP *http.Client

	// IdleConns is how many connections to each address the default HTTP keeps when they
	// are idle: of more calls at a time each makes its own, and drops it. Default: 64.
	IdleConns int

	// UserAgent names the program. Default: raftyard-client.
	UserAgent string
}

// A Client asks the nodes of one cluster. It is safe for concurrent use.
type Client struct {
	cfg   Config
	bases []*url.URL
	last  atomic.Int64 // index of the address that answered last
}

// grace is how much longer than the node a client waits, if it has a good deal more time
// than that: the node's own answer to a deadline says more than the client could.
const grace = 500 * time.Millisecond

// New returns a client. It does not connect.
func New(cfg Config) (*Client, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.IdleConns = cmp.Or(cfg.IdleConns, 64)
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "raftyard-client")
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("client: config: Addrs is empty, want at least one address")
	}
	c := &Client{cfg: cfg}
	var errs []error
	if cfg.IdleConns < 0 {
		errs = append(errs, fmt.Errorf("client: config: IdleConns is %d, want 0 or more",
			cfg.IdleConns))
	}
	for _, addr := range cfg.Addrs {
		base, err := parseAddr(addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.bases = append(c.bases, base)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.cfg.HTTP == nil {
		c.cfg.HTTP = newHTTP(cfg.IdleConns)
	}
	return c, nil
}

// newHTTP returns a client that shares nothing with others, follows no redirect,
// and gives up on an address that does not answer a dial.
func newHTTP(idleConns int) *http.Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			MaxIdleConnsPerHost: idleConns,
			IdleConnTimeout:     60 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

func parseAddr(addr string) (*url.URL, error) {
	text := addr
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	base, err := url.Parse(text)
	if err != nil || base.Hostname() == "" || base.Port() == "" ||
		base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("client: address %q, want host:port or http://host:port", addr)
	}
	if strings.Trim(base.Path, "/") != "" || base.RawQuery != "" || base.User != nil {
		return nil, fmt.Errorf("client: address %q has more than host and port", addr)
	}
	return &url.URL{Scheme: base.Scheme, Host: base.Host}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.cfg.HTTP.CloseIdleConnections() }

// Addrs returns the base addresses of the nodes.
func (c *Client) Addrs() []string {
	addrs := make([]string, len(c.bases))
	for i, base := range c.bases {
		addrs[i] = base.String()
	}
	return addrs
}

// call sends req until it has an answer, or an error that a retry would not
// help or not be safe for.
func (c *Client) call(ctx context.Context, req request) (*answer, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout+req.wait)
		defer cancel()
	}
	deadline, _ := ctx.Deadline()
	req.grace = max(min(grace, time.Until(deadline)/4), 0)
	failed := make([]error, len(c.bases))
	for at, attempt := c.first(), 0; ; at, attempt = (at+1)%len(c.bases), attempt+1 {
		rep, err := c.attempt(ctx, c.bases[at], req, share(ctx, failed))
		if rep.answer != nil {
			c.last.Store(int64(at))
			return rep.answer, nil
		}
		if p := rep.problem; p.isAnothers() {
			err = p // as if it were not there
		} else if p != nil {
			wait, retry := p.retryAfter()
			if !retry {
				c.last.Store(int64(at))
			}
			if !retry || !pause(ctx, wait, attempt, 2*req.grace) {
				return nil, p
			}
			clear(failed)
			continue
		}
		if _, unknown := errors.AsType[*UnknownError](err); unknown {
			return nil, err
		}
		failed[at] = err
		if ctx.Err() != nil || !slices.Contains(failed, nil) {
			return nil, c.nobody(failed)
		}
	}
}

func (c *Client) first() int { return int(c.last.Load()) % len(c.bases) }

// share is how long the next address may take: what is left, in equal parts for
// all that have not failed. One that hangs leaves time for the others.
func share(ctx context.Context, failed []error) time.Duration {
	untried := 0
	for _, err := range failed {
		if err == nil {
			untried++
		}
	}
	deadline, _ := ctx.Deadline() // call has seen to it that there is one
	return time.Until(deadline) / time.Duration(max(untried, 1))
}

// nobody returns why there is no answer. What a node has said of itself is more than that
// others cannot be reached.
func (c *Client) nobody(failed []error) error {
	e := &UnreachableError{}
	for i, err := range failed {
		if p, ok := err.(*Problem); ok { //nolint:errorlint // not that of another request
			return p
		}
		if err != nil {
			e.Addrs = append(e.Addrs, c.bases[i].String())
			e.Errs = append(e.Errs, err)
		}
	}
	return e
}

// pause waits before the next attempt, longer each time, and reports whether there is
// time for one: least, for the node and for its answer to come through. With less, what a
// node has said for certain would be given away for an answer that may come too late.
func pause(ctx context.Context, wait time.Duration, attempt int, least time.Duration) bool {
	const longest = 2 * time.Second
	wait = min(wait<<min(attempt, 4), max(wait, longest))
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait+least {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
