package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/raftyard/raftyard/client"
)

// TestWaitSaysWhatItWaitsFor: a change that takes long says why, on standard error
// and each thing once.
func TestWaitSaysWhatItWaitsFor(t *testing.T) {
	var looks atomic.Int64
	seen := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			answer := `{"id":7,"kind":"kv","steering":"learner 4 has not caught up",
				"members":[{"node":1,"replica":1,"role":"voter"},{"node":4,"replica":4,
				"role":"learner"}],"replicas":[{"node":1,"role":"leader","lag":3},
				{"node":4,"role":"learner","lag":5230}]}`
			switch {
			case r.Method == http.MethodPut:
				_, _ = io.Copy(io.Discard, r.Body)
				<-seen
			case looks.Add(1) == 2:
				close(seen)
			}
			_, _ = io.WriteString(w, answer)
		}))
	defer server.Close()
	code, stdout, stderr := run(t.Context(), "member", "set", "7", "--voters", "1,4", "--wait",
		"--addr", server.URL)
	want := "group 7: learner 4 has not caught up; node 4 is 5230 entries behind\n"
	if code != ExitOK || stderr != want {
		t.Errorf("member set --wait = %d, says %q, want %q", code, stderr, want)
	}
	if !strings.Contains(stdout, "the leader: learner 4 has not caught up\n") {
		t.Errorf("the group is shown as\n%s", stdout)
	}
}

func TestProgress(t *testing.T) {
	g := &client.Group{GroupSummary: client.GroupSummary{Members: []client.Member{
		{Node: 1, Role: "voter"}, {Node: 2, Role: "incoming"}, {Node: 3, Role: "learner"},
	}}}
	g.Replicas = []client.Replica{
		{Node: 1, Lag: 9},
		{Node: 2, Lag: 8},
		{Node: 5, Lag: 7},
		{Node: 3, Error: "node 3: request to node 3: connection refused"},
	}
	want := "node 2 is 8 entries behind; node 3: connection refused"
	if got := progress(g); got != want {
		t.Errorf("progress = %q, want %q", got, want)
	}
}

// TestForcedDeletionIsConfirmed: the refusal names what has to be given, and nothing
// is deleted before.
func TestForcedDeletionIsConfirmed(t *testing.T) {
	const incarnation = "5e1d8c02-93a4-4c55-8f0b-6b7e2f1a9d10"
	deleted := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				deleted <- r.URL.Query().Get("force") + " " + r.URL.Query().Get("confirm")
			}
			_, _ = io.WriteString(w, `{"id":7,"incarnation":"`+incarnation+`"}`)
		}))
	defer server.Close()
	command := []string{"group", "delete", "7", "--addr", server.URL, "--force"}
	code, _, stderr := run(t.Context(), command...)
	if code != ExitUsage || !strings.Contains(stderr, "--confirm "+incarnation) ||
		len(deleted) > 0 {
		t.Errorf("unconfirmed = %d %q, %d deleted", code, stderr, len(deleted))
	}
	code, stdout, _ := run(t.Context(), append(command, "--confirm", incarnation)...)
	if code != ExitOK || stdout != "group 7 deleted\n" {
		t.Errorf("confirmed = %d %q", code, stdout)
	}
	if got := <-deleted; got != "true "+incarnation {
		t.Errorf("the node was asked to delete with %q", got)
	}
}
