package admin

import (
	"net/http"
	"strings"

	"github.com/raftyard/raftyard/client"
)

// A methodRoute is a route with its method.
type methodRoute struct {
	method string
	route  *route
}

// routes registers everything but the paths of keys, which [Handler.find] sees to.
func (h *Handler) routes() {
	h.handle(http.MethodGet, &route{pattern: "/{$}", serve: h.getIndex, does: "this list"})
	h.clusterRoutes()
	h.groupRoutes()
	h.dataRoutes()
	h.vitalRoutes()
	h.later()
}

func (h *Handler) clusterRoutes() {
	h.handle(http.MethodGet, &route{
		pattern: "/v1/status", serve: h.getStatus,
		does: "this node and what it knows of the cluster",
	})
	h.handle(http.MethodGet, &route{
		pattern: "/v1/nodes", serve: h.listNodes, does: "the nodes",
	})
	h.nodeRoutes()
}

func (h *Handler) nodeRoutes() {
	const one = "/v1/nodes/{id}"
	h.handle(http.MethodGet, &route{pattern: one, serve: h.getNode, does: "one node"})
	h.handle(http.MethodPut, &route{
		pattern: one, serve: h.putNode, changes: true,
		does: "have a node join, or change where it is reached",
	})
	h.handle(http.MethodDelete, &route{
		pattern: one, serve: h.removeNode, changes: true, params: []string{"force"},
		does: "have a node leave for ever",
	})
	h.handle(http.MethodPost, &route{
		pattern: one + "/drain", serve: h.drainNode, changes: true,
		does: "have a node lead nothing",
	})
	h.handle(http.MethodPost, &route{
		pattern: one + "/undrain", serve: h.undrainNode, changes: true,
		does: "let a node lead again",
	})
}

func (h *Handler) groupRoutes() {
	const one = "/v1/groups/{id}"
	h.handle(http.MethodGet, &route{
		pattern: "/v1/groups", serve: h.listGroups, does: "a page of groups",
		params: []string{"limit", "cursor", "problem", "node"},
	})
	h.handle(http.MethodGet, &route{
		pattern: one, serve: h.getGroup, does: "everything about a group",
	})
	h.handle(http.MethodPut, &route{
		pattern: one, serve: h.createGroup, changes: true, does: "create a group",
	})
	h.handle(http.MethodDelete, &route{
		pattern: one, serve: h.deleteGroup, changes: true,
		params: []string{"force", "confirm"}, does: "delete a group everywhere",
	})
	h.handle(http.MethodPost, &route{
		pattern: one + "/forget", serve: h.forgetGroup, changes: true,
		does: "drop what is remembered of a deleted group",
	})
	h.memberRoutes()
	h.quarantineRoutes()
	h.handle(http.MethodPost, &route{
		pattern: one + "/transfer", serve: h.transferLeader, changes: true,
		does: "hand the leadership over",
	})
	h.handle(http.MethodPost, &route{
		pattern: one + "/snapshot", serve: h.takeSnapshot, changes: true,
		does: "take a snapshot now",
	})
	h.handle(http.MethodGet, &route{
		pattern: one + "/raft", serve: h.getRaft, does: "raft's own view on this node",
	})
	h.handle(http.MethodGet, &route{
		pattern: one + "/hash", serve: h.getHash, params: []string{"index"},
		does: "content hash of the state machine on this node",
	})
}

func (h *Handler) memberRoutes() {
	const one = "/v1/groups/{id}"
	h.handle(http.MethodPut, &route{
		pattern: one + "/members", serve: h.setMembers, changes: true,
		params: []string{"wait"}, does: "set the wanted members",
	})
	h.handle(http.MethodPut, &route{
		pattern: one + "/learners/{node}", serve: h.attachLearner, changes: true,
		does: "have a node follow a group",
	})
	h.handle(http.MethodDelete, &route{
		pattern: one + "/learners/{node}", serve: h.detachLearner, changes: true,
		does: "have a node follow a group no more",
	})
}

func (h *Handler) dataRoutes() {
	h.keys = h.keyRoutes()
	for _, kr := range h.keys {
		h.note(kr.method, kr.route)
	}
	h.handle(http.MethodGet, &route{
		pattern: "/v1/groups/{id}/kv", serve: h.listKeys, does: "a page of keys",
		params: []string{"prefix", "limit", "cursor", "keys_only", "consistency"},
	})
	h.handle(http.MethodPost, &route{
		pattern: "/v1/groups/{id}/txn", serve: h.txn, changes: true,
		does: "several operations on keys, all or nothing",
	})
}

// keyRoutes returns the routes of one key.
func (h *Handler) keyRoutes() []methodRoute {
	const pattern = "/v1/groups/{id}/kv/{key}"
	return []methodRoute{
		{http.MethodGet, &route{
			pattern: pattern, serve: h.getKey, params: []string{"consistency"},
			does: "the value of a key",
		}},
		{http.MethodPut, &route{
			pattern: pattern, serve: h.putKey, changes: true, does: "store a value",
		}},
		{http.MethodDelete, &route{
			pattern: pattern, serve: h.deleteKey, changes: true, does: "delete a key",
		}},
	}
}

// vitalSlots is how many probes, and how many scrapes, are served at once.
const vitalSlots = 64

// vitalRoutes registers what is asked of a node that is in trouble. Probes do not
// share slots with what has long answers, which somebody may not read: a supervisor
// would restart the process for that.
func (h *Handler) vitalRoutes() {
	probes, scrapes := make(chan struct{}, vitalSlots), make(chan struct{}, vitalSlots)
	vital := func(slots chan struct{}, path, does string, serve func(*call) error) {
		h.handle(http.MethodGet, &route{pattern: path, serve: serve, vital: slots, does: does})
	}
	vital(probes, "/livez", "whether the process works", h.livez)
	vital(probes, "/readyz", "whether the node has started", h.readyz)
	vital(scrapes, "/metrics", "metrics for Prometheus", h.metrics.serve)
	if !h.cfg.DisableProfiles {
		vital(scrapes, "/debug/pprof", "", h.profileIndex)
		vital(scrapes, "/debug/pprof/{$}", "profiles of the process", h.profileIndex)
		vital(scrapes, "/debug/pprof/{name}", "", h.profile)
	}
}

// later registers what the interface promises and a later version brings: a
// client shall read that, not that there is no such path.
func (h *Handler) later() {
	for _, l := range []struct{ method, path string }{
		{http.MethodGet, "/v1/groups/{id}/snapshot"},
		{http.MethodPut, "/v1/groups/{id}/snapshot"},
		{http.MethodGet, "/v1/events"},
	} {
		h.handle(l.method, &route{
			pattern: l.path, serve: notImplemented, params: []string{"confirm"},
		})
	}
}

func notImplemented(c *call) error {
	return newProblem(client.CodeNotImplemented,
		"this version does not have %s %s", c.r.Method, c.route.pattern)
}

func (h *Handler) handle(method string, rt *route) {
	h.mux.Handle(method+" "+rt.pattern, rt)
	rt.pattern = strings.TrimSuffix(rt.pattern, "{$}")
	h.note(method, rt)
}

// An indexed is a line of the index.
type indexed struct {
	Method string   `json:"method"`
	Path   string   `json:"path"`
	Params []string `json:"params,omitempty"`
	Does   string   `json:"does"`
}

// note adds a route to the index.
func (h *Handler) note(method string, rt *route) {
	if rt.does != "" {
		h.index = append(h.index, indexed{method, rt.pattern, rt.params, rt.does})
	}
}

// index answers what else there is.
type index struct {
	Program string    `json:"program"`
	Routes  []indexed `json:"routes"`
}

func (h *Handler) getIndex(c *call) error {
	return c.send(http.StatusOK, index{Program: "raftyard", Routes: h.index})
}
