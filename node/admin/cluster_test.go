package admin

import (
	"errors"
	"strings"
	"testing"
)

// checkRoutes asks for each request once, and compares the answer and what the node
// was asked last.
func checkRoutes(t *testing.T, tests []routeTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.request, func(t *testing.T) {
			h, n, _ := newHandler(t, Config{})
			n.stored.Incarnation = "the incarnation"
			method, target, _ := strings.Cut(tt.request, " ")
			resp := ask(h, method, target, tt.body)
			if resp.StatusCode >= 400 {
				problemOf(t, resp)
			}
			if resp.StatusCode != tt.wantStatus || !strings.Contains(resp.Body, tt.wantBody) {
				t.Errorf("answer = %d %s\nwant %d with %q",
					resp.StatusCode, resp.Body, tt.wantStatus, tt.wantBody)
			}
			last := ""
			if len(n.calls) > 0 {
				last = n.calls[len(n.calls)-1]
			}
			if last != tt.wantCall {
				t.Errorf("the node was asked %q last, want %q", last, tt.wantCall)
			}
		})
	}
}

type routeTest struct {
	request, body string // method and path
	wantStatus    int
	wantBody      string // a part of it
	wantCall      string // the last of the node; empty: none
}

func TestNodeRoutes(t *testing.T) {
	const one = `{"peer":"n4:1","http":"n4:2","labels":{"zone":"a"}}`
	checkRoutes(t, []routeTest{
		{"PUT /v1/nodes/4", one, 201, `"created":true`, "node 4"},
		{"PUT /v1/nodes/4", `{"http":"n4:2"}`, 400, "peer is missing", ""},
		{"PUT /v1/nodes/4", `{"peer":"n4:1","id":4}`, 400, `unknown field \"id\"`, ""},
		{"PUT /v1/nodes/4", `{"peer":"n4"}`, 400, "peer is ", ""},
		{"PUT /v1/nodes/4", `{"peer":"n4:0"}`, 400, "want host:port", ""},
		{"PUT /v1/nodes/4", `{"peer":"n4:65536"}`, 400, "want host:port", ""},
		{"PUT /v1/nodes/4", `{"peer":"n4:http"}`, 400, "want host:port", ""},
		{"PUT /v1/nodes/4", `{"peer":":8701"}`, 400, "want host:port", ""},
		{"PUT /v1/nodes/4", `{"peer":"http://n4:1"}`, 400, "want host:port", ""},
		{"PUT /v1/nodes/4", `{"peer":"0.0.0.0:1"}`, 400, "others cannot dial", ""},
		{"PUT /v1/nodes/4", `{"peer":"[::]:1"}`, 400, "others cannot dial", ""},
		{"PUT /v1/nodes/4", `{"peer":"[fe80::1]:1","http":"n4"}`, 400, "http is ", ""},
		{"PUT /v1/nodes/4", `{"peer":"[fe80::1]:1"}`, 201, "", "node 4"},
		{"PUT /v1/nodes/4", "", 400, "the body is empty", ""},
		{"PUT /v1/nodes/0", one, 400, "decimal number from 1", ""},
		{"PUT /v1/nodes/x", one, 400, "decimal number from 1", ""},
		{"POST /v1/nodes/4/drain", "", 200, `"state":"drained"`, "drain 4"},
		{"POST /v1/nodes/4/undrain", "", 200, `"state":"active"`, "undrain 4"},
		{"POST /v1/nodes/0/drain", "", 400, "decimal number from 1", ""},
		{"DELETE /v1/nodes/4", "", 200, `"state":"removed"`, "remove 4 force false"},
		{"DELETE /v1/nodes/4?force=true", "", 200, "", "remove 4 force true"},
		{"DELETE /v1/nodes/4?force", "", 200, "", "remove 4 force true"},
		{"DELETE /v1/nodes/4?force=odd", "", 400, "want true or false", ""},
		{"DELETE /v1/nodes/4?confirm=x", "", 400, "unknown parameter", ""},
		{"GET /v1/nodes/4/drain", "", 405, "POST", ""},
		{"POST /v1/nodes/4/rest", "", 404, "not_found", ""},
		{"PATCH /v1/nodes/4", "", 405, "DELETE, GET, HEAD, PUT", ""},
		{"POST /v1/nodes/4/rest", "", 404, "not_found", ""},
	})
}

// TestPutNodeAgain: a node that is there already is no error, and neither is not
// being able to read it back.
func TestPutNodeAgain(t *testing.T) {
	h, n, _ := newHandler(t, Config{})
	n.exists = true
	n.nodeErr = errors.New("odd")
	resp := ask(h, "PUT", "/v1/nodes/4", `{"peer":"n4:1"}`)
	if resp.StatusCode != 200 || !strings.Contains(resp.Body, `"created":false`) ||
		!strings.Contains(resp.Body, `"peer":"n4:1"`) {
		t.Errorf("put again = %d %s, want 200 and the spec", resp.StatusCode, resp.Body)
	}
	if n.calls[0] != "put node 4 n4:1  map[]" {
		t.Errorf("the node was asked %q", n.calls[0])
	}
}

func TestLearnerRoutes(t *testing.T) {
	checkRoutes(t, []routeTest{
		{"PUT /v1/groups/7/learners/4", "", 200, `"the incarnation"`, "attach 7 4"},
		{"DELETE /v1/groups/7/learners/4", "", 200, `"the incarnation"`, "detach 7 4"},
		{"PUT /v1/groups/7/learners/0", "", 400, "node id", ""},
		{"PUT /v1/groups/0/learners/4", "", 400, "system group", ""},
		{"GET /v1/groups/7/learners/4", "", 405, "DELETE, PUT", ""},
		{"GET /v1/groups/7/learners", "", 404, "not_found", ""},
	})
}

func TestForcedMembers(t *testing.T) {
	const path = "PUT /v1/groups/7/members"
	checkRoutes(t, []routeTest{
		{path, `{"voters":[1],"force":true}`, 200, "", "members 7 force"},
		{path, `{"voters":[1],"force":false}`, 200, "", "members 7"},
		{path, `{"voters":[1],"force":1}`, 400, "want true or false", ""},
	})
}
