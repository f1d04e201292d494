package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// leaving serves a node that leaves: each look at it finds the next of some states.
func leaving(t *testing.T, states ...string) string {
	t.Helper()
	var looks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			at := min(int(looks.Add(1)), len(states)) - 1
			_, _ = io.WriteString(w, states[at])
		}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestRemoveWaits(t *testing.T) {
	const (
		moves = `{"id":3,"state":"leaving","problem":"2 groups want a member there"}`
		last  = `{"id":3,"state":"leaving","problem":"1 group wants a member there"}`
	)
	for _, tt := range []struct {
		name                   string
		addr, timeout          string
		wantCode               int
		wantStdout, wantStderr string
	}{
		{
			"until it is removed", leaving(t, moves, last, `{"id":3,"state":"removed"}`), "10s",
			ExitOK, "3     removed",
			"node 3: 2 groups want a member there\nnode 3: 1 group wants a member there\n",
		},
		{
			"in vain", leaving(t, moves), "100ms", ExitUnknown, "",
			"node 3: 2 groups want a member there\nraftyard: not reached: node 3 is leaving, and " +
				"goes on by itself: 2 groups want a member there\n",
		},
		{
			"until it is taken back", leaving(t, moves, `{"id":3,"state":"drained"}`), "10s",
			ExitFailed, "", "node 3: 2 groups want a member there\n" +
				"raftyard: node 3 is drained: somebody has taken it back\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := run(t.Context(), "node", "remove", "3", "--wait",
				"--addr", tt.addr, "--timeout", tt.timeout)
			if code != tt.wantCode || !strings.Contains(stdout, tt.wantStdout) ||
				stderr != tt.wantStderr {
				t.Errorf("node remove --wait = %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}
