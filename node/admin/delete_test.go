package admin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

const someUUID = "5e1d8c02-93a4-4c55-8f0b-6b7e2f1a9d10"

func TestDeletionRoutes(t *testing.T) {
	checkRoutes(t, []routeTest{
		{"DELETE /v1/groups/7", "", 200, `{"group":7,"deleted":true}`, "delete 7"},
		{"DELETE /v1/groups/7?force=false", "", 200, "", "delete 7"},
		{
			"DELETE /v1/groups/7?force=true&confirm=" + someUUID, "", 200, `"deleted":true`,
			"force delete 7 " + someUUID,
		},
		// Who has not looked at the group is told what to look at.
		{"DELETE /v1/groups/7?force=true", "", 400, "confirm=the incarnation", "group 7"},
		{"DELETE /v1/groups/7?confirm=" + someUUID, "", 400, "goes with force=true", ""},
		{"DELETE /v1/groups/7?force=true&confirm=7", "", 400, "want the group's incarnation", ""},
		{
			"DELETE /v1/groups/7?force=true&confirm=00000000-0000-0000-0000-000000000000", "", 400,
			"want the group's incarnation", "",
		},
		{"DELETE /v1/groups/0?force=true", "", 400, "system group", ""},
		{"POST /v1/groups/7/forget", "", 200, `{"group":7,"forgotten":true}`, "forget 7"},
		{"POST /v1/groups/0/forget", "", 400, "system group", ""},
		{"GET /v1/groups/7/forget", "", 405, "POST", ""},
	})
}

// TestRefusedDeletion: what is refused has not happened, and says what can be done.
func TestRefusedDeletion(t *testing.T) {
	h, n, _ := newHandler(t, Config{})
	n.err = node.ErrNoQuorum
	p := problemOf(t, ask(h, "DELETE", "/v1/groups/7", ""))
	if p.Code != client.CodeNoQuorum || p.Outcome != client.OutcomeNotApplied {
		t.Errorf("refused with %+v", p)
	}
	// What is decided is a success, though not all is over yet.
	n.err = fmt.Errorf("group 7: %w: its voters on node 2 are not known to have stopped",
		node.ErrNotReached)
	for _, query := range []string{"", "?force=true&confirm=" + someUUID} {
		resp := ask(h, "DELETE", "/v1/groups/7"+query, "")
		if resp.StatusCode != 200 || !strings.Contains(resp.Body,
			`"deleted":true,"pending":"group 7: its voters on node 2 are not known`) {
			t.Errorf("a deletion%s that is decided = %d %s", query, resp.StatusCode, resp.Body)
		}
	}
	n.err = errors.Join(node.ErrNotReached, node.ErrUnknownOutcome)
	p = problemOf(t, ask(h, "DELETE", "/v1/groups/7?force=true&confirm="+someUUID, ""))
	if p.Code != client.CodeOutcomeUnknown {
		t.Errorf("a forced deletion of which nobody knows = %+v", p)
	}
	n.err = node.ErrGroupNotFound
	p = problemOf(t, ask(h, "DELETE", "/v1/groups/7?force=true", ""))
	if p.Code != client.CodeGroupNotFound {
		t.Errorf("an unknown group is not deleted by force with %+v", p)
	}
}
