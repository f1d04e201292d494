package admin

import (
	"net/http"
	"strings"

	"github.com/raftyard/raftyard/client"
)

// routes registers everything but the paths of keys, which [Handler.find] sees to.
func (h *Handler) routes() {
	read := func(path string, serve func(*call) error) {
		h.handle(http.MethodGet, &route{pattern: path, serve: serve})
	}
	change := func(method, path string, serve func(*call) error) {
		h.handle(method, &route{pattern: path, serve: serve, changes: true})
	}
	vital := func(path string, serve func(*call) error) {
		h.handle(http.MethodGet, &route{pattern: path, serve: serve, vital: true})
	}

	read("/v1/status", h.getStatus)
	read("/v1/nodes", h.listNodes)
	read("/v1/nodes/{id}", h.getNode)

	read("/v1/groups", h.listGroups)
	read("/v1/groups/{id}", h.getGroup)
	change(http.MethodPut, "/v1/groups/{id}", h.createGroup)
	change(http.MethodDelete, "/v1/groups/{id}", h.deleteGroup)
	change(http.MethodPut, "/v1/groups/{id}/members", h.setMembers)
	change(http.MethodPost, "/v1/groups/{id}/transfer", h.transferLeader)
	change(http.MethodPost, "/v1/groups/{id}/snapshot", h.takeSnapshot)
	read("/v1/groups/{id}/raft", h.getRaft)
	read("/v1/groups/{id}/hash", h.getHash)

	read("/v1/groups/{id}/kv", h.listKeys)
	change(http.MethodPost, "/v1/groups/{id}/txn", h.txn)

	vital("/livez", h.livez)
	vital("/readyz", h.readyz)
	vital("/metrics", h.metrics.serve)
	if !h.cfg.DisableProfiles {
		vital("/debug/pprof", h.profileIndex)
		vital("/debug/pprof/{$}", h.profileIndex)
		vital("/debug/pprof/{name}", h.profile)
	}
	h.later()
}

// later registers what the interface promises and a later version brings: a
// client shall read that, not that there is no such path.
func (h *Handler) later() {
	for _, l := range []struct{ method, path string }{
		{http.MethodPut, "/v1/nodes/{id}"},
		{http.MethodDelete, "/v1/nodes/{id}"},
		{http.MethodPost, "/v1/nodes/{id}/drain"},
		{http.MethodPost, "/v1/nodes/{id}/undrain"},
		{http.MethodGet, "/v1/groups/{id}/snapshot"},
		{http.MethodPut, "/v1/groups/{id}/snapshot"},
		{http.MethodGet, "/v1/events"},
		{http.MethodGet, "/{$}"},
	} {
		h.handle(l.method, &route{pattern: l.path, serve: notImplemented})
	}
}

func notImplemented(c *call) error {
	return newProblem(client.CodeNotImplemented,
		"this version does not have %s %s yet", c.r.Method, c.route.pattern)
}

func (h *Handler) handle(method string, rt *route) {
	h.mux.Handle(method+" "+rt.pattern, rt)
	rt.pattern = strings.TrimSuffix(rt.pattern, "{$}")
}
