package admin

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

// TestOutside: a node that takes no part in its cluster says so at once, whatever is asked
// that it cannot know, and still tells of itself.
func TestOutside(t *testing.T) {
	for _, tt := range []struct {
		request            string
		ifRemoved, ifWaits bool // whether it is refused
	}{
		{"GET /v1/groups", true, true},
		{"GET /v1/groups/7", true, true},
		{"PUT /v1/groups/7/members", true, true},
		{"GET /v1/groups/7/kv/k", true, true},
		{"PUT /v1/groups/7/kv/k", true, true},
		{"POST /v1/nodes/2/drain", true, true},
		{"GET /v1/nodes", true, false},
		{"GET /v1/nodes/2", true, false},
		{"GET /v1/status", false, false},
		{"GET /readyz", false, false},
		{"GET /livez", false, false},
		{"GET /metrics", false, false},
		{"GET /", false, false},
	} {
		method, target, _ := strings.Cut(tt.request, " ")
		for _, away := range []error{node.ErrNodeRemoved, node.ErrInvalid, node.ErrNotReady} {
			h, n, _ := newHandler(t, Config{})
			n.away = away
			resp := ask(h, method, target, "")
			refused := resp.StatusCode == http.StatusServiceUnavailable
			want, final := tt.ifWaits, !errors.Is(away, node.ErrNotReady)
			if final {
				want = tt.ifRemoved
			}
			if refused != want {
				t.Errorf("%s with %v = %d %s", tt.request, away, resp.StatusCode, resp.Body)
			}
			if !refused {
				continue
			}
			p := problemOf(t, resp)
			if p.Code != client.CodeNotReady || p.Outcome != client.OutcomeNotApplied ||
				final == (p.RetryAfterMS != 0) {
				t.Errorf("%s with %v = %+v", tt.request, away, p)
			}
		}
	}
}
