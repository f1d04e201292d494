package admin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

// Config holds the settings of a [Handler]. The zero value of every field but
// Node means "use the default".
type Config struct {
	// Node is what is served.
	Node Node

	// KV serves the keys of groups of kind kv. Default: those routes answer that
	// they are not supported.
	KV KeyValues

	// Metrics returns the node's part of /metrics. It is called for every
	// scrape and must not block. Default: none.
	Metrics func() node.Metrics

	// Logger receives what an operator should know, and each request at level
	// debug. Default: discard.
	Logger *slog.Logger

	// DefaultTimeout ends a request that names no timeout. Default: 10s.
	DefaultTimeout time.Duration

	// MaxTimeout is the longest that a request may ask for. Default: 5m.
	MaxTimeout time.Duration

	// MaxInFlight bounds the requests that are served at once; probes on the one
	// hand, and metrics and profiles on the other, are counted apart, 64 of each.
	// More are answered 429. Default: 4096.
	MaxInFlight int

	// MaxBodyBytes bounds the bodies that are in memory at once. More are
	// answered 429. Default: 256 MiB.
	MaxBodyBytes int64

	// MaxAnswerBytes bounds the values that are in memory because their answers are not
	// sent yet: of keys, lists and transactions. Reads and transactions that would be more
	// are answered 429, and not done. Default: 256 MiB.
	MaxAnswerBytes int64

	// Connections returns how many connections there are, for the metrics. It must not
	// block. Default: nobody knows.
	Connections func() int

	// ConnectionLimit returns how many connections there may be, and how often there was one
	// too many, for the metrics. It must not block. Default: nobody knows.
	ConnectionLimit func() (most int, refused uint64)

	// DisableProfiles turns /debug/pprof/ off.
	DisableProfiles bool

	// CheckHost refuses requests for hosts other than localhost, addresses of
	// the loopback network and Hosts. It is for a server that only this machine
	// can reach: a web page could have a name of its own lead there. Default: off.
	CheckHost bool

	// Hosts are further names and addresses, without port.
	Hosts []string
}

func (c Config) withDefaults() Config {
	c.DefaultTimeout = cmp.Or(c.DefaultTimeout, 10*time.Second)
	c.MaxTimeout = cmp.Or(c.MaxTimeout, 5*time.Minute)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 4096)
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 256<<20)
	c.MaxAnswerBytes = cmp.Or(c.MaxAnswerBytes, 256<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Handler serves a node. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	mux     *http.ServeMux
	keys    []methodRoute // of paths of keys
	index   []indexed
	origins *http.CrossOriginProtection
	slots   chan struct{} // one for each request that is being served
	busy    atomic.Uint64 // requests for which there was none
	bodies  *room         // bytes of bodies in memory
	answers *room         // bytes of answers in memory
	metrics *metrics
	refresh func(context.Context) error // see refresher
}

// New returns a handler. It has no goroutine and nothing to close.
func New(cfg Config) (*Handler, error) {
	cfg = cfg.withDefaults()
	if cfg.Node == nil {
		return nil, errors.New("admin: config: Node must be given")
	}
	h := &Handler{
		cfg:     cfg,
		mux:     http.NewServeMux(),
		origins: http.NewCrossOriginProtection(),
		slots:   make(chan struct{}, cfg.MaxInFlight),
		refresh: refresher(cfg.Node),
	}
	m, err := newMetrics(cfg.Metrics, cfg.Connections, h.limits)
	if err != nil {
		return nil, err
	}
	h.metrics = m
	h.bodies = newRoom(cfg.MaxBodyBytes, m.bodies)
	h.answers = newRoom(cfg.MaxAnswerBytes, m.answers)
	h.routes()
	return h, nil
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{handler: h, w: &recorder{ResponseWriter: w}, r: r, came: r, started: time.Now()}
	h.metrics.inFlight.Inc()
	defer func() { //nolint:contextcheck // the call holds it
		if reason := recover(); reason != nil {
			c.panicked(reason)
		}
		c.release()
		h.metrics.inFlight.Dec()
		h.observe(c)
		if c.abort {
			panic(http.ErrAbortHandler) // the server's way to cut a half-sent answer off
		}
	}()
	if err := h.serve(c); err != nil { //nolint:contextcheck // the call holds it
		c.fail(err) //nolint:contextcheck // the call holds it
	}
}

func (h *Handler) serve(c *call) error {
	if h.cfg.CheckHost && !h.knows(c.r.Host) {
		return newProblem(client.CodeBadHost,
			"%q, want localhost, a loopback address or a configured one", c.r.Host)
	}
	if err := h.origins.Check(c.r); err != nil {
		return newProblem(client.CodeCrossOrigin, "the request comes from another site")
	}
	found := h.find(c)
	if found.err != nil {
		return found.err
	}
	if err := c.begin(found.route); err != nil {
		return err
	}
	if err := h.outside(found.route); err != nil {
		return err
	}
	return found.route.serve(c)
}

// outside refuses what a node that takes no part in its cluster cannot know or do: other
// nodes refuse to talk to it, so that a request would only wait for its deadline. What is
// said of the node itself is answered, and what it knows of nodes for as long as that may
// pass. Whoever asked may ask again then, and else has to ask another node.
func (h *Handler) outside(rt *route) error {
	nodes := strings.HasPrefix(rt.pattern, "/v1/nodes")
	if !rt.changes && !nodes && !strings.HasPrefix(rt.pattern, "/v1/groups") {
		return nil
	}
	err := h.cfg.Node.Outside()
	passes := errors.Is(err, node.ErrNotReady)
	if err == nil || passes && nodes && !rt.changes {
		return nil
	}
	p := newProblem(client.CodeNotReady, "%v", err)
	if !passes {
		p.RetryAfterMS = 0 // waiting does not help
	}
	return p
}

// A route is what one path and method do.
type route struct {
	pattern string // without the method
	serve   func(c *call) error
	// changes: the request may change something.
	changes bool
	// vital, when not nil: it is answered however busy the node is, and has slots
	// of its own.
	vital chan struct{}
	// params are those of the query that it has beside timeout.
	params []string
	// does is a line for the index.
	does string
}

// found is what a request leads to: a route, or why there is none.
type found struct {
	route *route
	err   error
}

// find returns the route of a request. Keys may hold anything, also what a mux
// would clean away, so that paths of keys never get to it.
func (h *Handler) find(c *call) found {
	path := c.r.URL.EscapedPath()
	if id, key, ok := splitKeyPath(path); ok {
		c.r.SetPathValue("id", id)
		c.rawKey = key
		return h.findKey(c)
	}
	if path == "" || path[0] != '/' || unclean(path) {
		return found{err: newProblem(client.CodeNotFound, "%s", path)}
	}
	handler, pattern := h.mux.Handler(c.r)
	if pattern == "" {
		return found{err: h.missed(c, handler)}
	}
	h.mux.ServeHTTP(c.w, c.r)
	if c.w.matched == nil {
		return found{err: newProblem(client.CodeNotFound, "%s", path)}
	}
	return found{route: c.w.matched}
}

// ServeHTTP only notes that the mux has matched rt; the mux leaves the values
// of the path in the request.
func (rt *route) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if rec, ok := w.(*recorder); ok {
		rec.matched = rt
	}
}

// splitKeyPath splits the escaped path of a key into the group and the key.
func splitKeyPath(path string) (id, key string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/groups/")
	if !ok {
		return "", "", false
	}
	id, rest, ok = strings.Cut(rest, "/")
	if !ok {
		return "", "", false
	}
	key, ok = strings.CutPrefix(rest, "kv/")
	return id, key, ok
}

func (h *Handler) findKey(c *call) found {
	for _, kr := range h.keys {
		if c.r.Method == kr.method || c.r.Method == http.MethodHead && kr.method == http.MethodGet {
			return found{route: kr.route}
		}
	}
	return found{err: wrongMethod(c, "DELETE, GET, HEAD, PUT")}
}

// unclean reports whether a mux would redirect the path to another.
func unclean(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path+"/", "/./") ||
		strings.Contains(path+"/", "/../")
}

// missed returns why the mux has no route, which its own handler knows.
func (h *Handler) missed(c *call, handler http.Handler) error {
	probe := headerProbe{}
	handler.ServeHTTP(probe, c.r)
	if allow := http.Header(probe).Get("Allow"); allow != "" {
		return wrongMethod(c, allow)
	}
	return newProblem(client.CodeNotFound, "%s%s", c.r.URL.EscapedPath(), h.meant(c.r))
}

// meant returns a hint for a path that is nearly another.
func (h *Handler) meant(r *http.Request) string {
	switch path := r.URL.Path; {
	case path == "/healthz", path == "/health":
		return ", want /livez (restart it?) or /readyz (send requests?)"
	case len(path) > 1 && strings.HasSuffix(path, "/"):
		without := r.Clone(r.Context())
		without.URL.Path = strings.TrimRight(path, "/")
		without.URL.RawPath = ""
		if _, pattern := h.mux.Handler(without); pattern != "" {
			return ", want it without the slash at the end"
		}
	}
	return ", GET / lists the paths"
}

// isRead reports whether a request changes nothing, by its method.
func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead ||
		r.Method == http.MethodOptions
}

// knows reports whether a request may be for host, which may have a port. A
// client that names none is no browser.
func (h *Handler) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(h.cfg.Hosts, func(known string) bool {
		return strings.EqualFold(known, host)
	})
}

// A headerProbe takes an answer for its headers alone.
type headerProbe http.Header

// Header returns the headers.
func (p headerProbe) Header() http.Header { return http.Header(p) }

// Write drops b.
func (p headerProbe) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader drops the status.
func (p headerProbe) WriteHeader(int) {}

func wrongMethod(c *call, allow string) error {
	c.w.Header().Set("Allow", allow)
	return newProblem(client.CodeMethod, "%s is not one of %s", c.r.Method, allow)
}

func (h *Handler) observe(c *call) {
	pattern := "other"
	if c.route != nil {
		pattern = c.route.pattern
	}
	took := time.Since(c.started)
	h.metrics.observe(pattern, c.r.Method, c.w.code(), took)
	h.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelDebug, "request",
		slog.String("method", c.r.Method),
		slog.String("route", pattern),
		slog.Int("status", c.w.code()),
		slog.Duration("took", took))
}
