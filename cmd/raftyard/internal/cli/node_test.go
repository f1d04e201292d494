package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard/client"
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

// TestNodeDetails: what a node has done about its files is below its row.
func TestNodeDetails(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v := nodeDetails(&client.Node{ID: 3, Databases: []client.Database{
		{
			Name: "log", TableBytes: 3 << 20, ValueBytes: 40 << 20, LiveValueBytes: 7 << 20,
			Reclaims: 2, ReclaimedBytes: 5 << 20, Reclaimed: at,
			Scrubs: 1, Scrubbed: at.Add(time.Hour), Damaged: []string{"log/000003.sst is missing"},
		},
		{Name: "state", TableBytes: 100, ReclaimsFailed: 4},
	}})
	want := "\nlog: 3.0 MiB in tables, 40.0 MiB in files of values, of which 7.0 MiB count; " +
		"5.0 MiB given back, the last time at 2026-01-02 03:04:05 UTC; " +
		"all read and compared at 2026-01-02 04:04:05 UTC; damaged: log/000003.sst is missing\n" +
		"state: 100 B in tables; giving back has failed 4 times\n"
	if !strings.HasPrefix(v.text, "NODE") || !strings.HasSuffix(v.text, want) || v.header != nil {
		t.Errorf("it shows\n%s\nwant at its end\n%s", v.text, want)
	}
}
