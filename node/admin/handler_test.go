package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// problemOf reads the problem that an answer must be.
func problemOf(t *testing.T, resp answer) client.Problem {
	t.Helper()
	body := resp.Body
	if kind := resp.Header.Get("Content-Type"); kind != client.ProblemType {
		t.Errorf("Content-Type = %q, want %q; body %q", kind, client.ProblemType, body)
	}
	var p client.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("problem %q: %v", body, err)
	}
	if p.Status != resp.StatusCode {
		t.Errorf("problem says status %d, the answer is %d", p.Status, resp.StatusCode)
	}
	if p.Title == "" || p.Code == "" {
		t.Errorf("problem %q lacks title or code", body)
	}
	return p
}

func TestRoutes(t *testing.T) {
	const members = `{"voters":[1,2,3]}`
	tests := []struct {
		method, target, body string
		headers              []string
		wantStatus           int
		wantBody             string // a part of it
		wantCall             string // the last of the node
	}{
		{method: "GET", target: "/v1/status", wantStatus: 200, wantBody: `"cluster":"c"`},
		{method: "GET", target: "/v1/nodes", wantStatus: 200, wantBody: `{"nodes":[]}`},
		{method: "GET", target: "/v1/nodes/2", wantStatus: 200, wantBody: `"id":2`},
		{method: "GET", target: "/v1/nodes/0", wantStatus: 400, wantBody: "decimal number from 1"},
		{
			method: "GET", target: "/v1/groups?limit=5&cursor=9&problem=no_leader&node=2",
			wantStatus: 200, wantBody: `"groups":[{"id":10`, wantCall: "groups 9,2,no_leader,5",
		},
		{method: "GET", target: "/v1/groups?limit=0", wantStatus: 400, wantBody: "limit is"},
		{method: "GET", target: "/v1/groups?limit=1001", wantStatus: 400, wantBody: "1 to 1000"},
		{method: "GET", target: "/v1/groups?limit=1&limit=2", wantStatus: 400, wantBody: "2 times"},
		{method: "GET", target: "/v1/groups?cursor=x", wantStatus: 400, wantBody: "next_cursor"},
		{method: "GET", target: "/v1/groups?problem=odd", wantStatus: 400, wantBody: "one of any"},
		{method: "GET", target: "/v1/groups?a=%zz", wantStatus: 400, wantBody: "the query"},
		{method: "GET", target: "/v1/groups/7", wantStatus: 200, wantBody: `"id":7`},
		{method: "GET", target: "/v1/groups/0", wantStatus: 200, wantBody: `"id":0`},
		{method: "GET", target: "/v1/groups/07", wantStatus: 400, wantBody: "decimal"},
		{method: "GET", target: "/v1/groups/x", wantStatus: 400, wantBody: "decimal"},
		{method: "GET", target: "/v1/groups/18446744073709551616", wantStatus: 400},
		{
			method: "PUT", target: "/v1/groups/7", body: `{"kind":"kv","voters":[1,2,3]}`,
			wantStatus: 201, wantBody: `"created":true`, wantCall: "group 7",
		},
		{method: "PUT", target: "/v1/groups/7", body: members, wantStatus: 400, wantBody: "kind"},
		{
			method: "PUT", target: "/v1/groups/7", body: `{"kind":"kv","voters":[]}`,
			wantStatus: 400, wantBody: "voters is empty",
		},
		{
			method: "PUT", target: "/v1/groups/7", body: `{"kind":"kv","voters":[1,1]}`,
			wantStatus: 400, wantBody: "node 1 is listed twice",
		},
		{
			method: "PUT", target: "/v1/groups/7", body: `{"kind":"kv","voters":[0]}`,
			wantStatus: 400, wantBody: "want a node id",
		},
		{
			method: "PUT", target: "/v1/groups/0", body: `{"kind":"kv","voters":[1]}`,
			wantStatus: 400, wantBody: "system group",
		},
		{
			method: "DELETE", target: "/v1/groups/7", wantStatus: 200,
			wantBody: `{"group":7,"deleted":true}`, wantCall: "delete 7",
		},
		{
			method: "PUT", target: "/v1/groups/7/members?wait=3s", body: members,
			wantStatus: 200, wantCall: "members 7 wait",
		},
		{
			method: "PUT", target: "/v1/groups/7/members", body: members,
			wantStatus: 200, wantCall: "members 7",
		},
		{method: "PUT", target: "/v1/groups/7/members?wait=x", body: members, wantStatus: 400},
		{
			method: "POST", target: "/v1/groups/7/transfer", body: `{"to":2}`,
			wantStatus: 200, wantBody: `{"group":7,"leader":2}`, wantCall: "transfer 7 2",
		},
		{method: "POST", target: "/v1/groups/7/transfer", body: `{}`, wantStatus: 400},
		{
			method: "POST", target: "/v1/groups/7/replicas/2/retry",
			wantStatus: 200, wantCall: "retry 7 2",
		},
		{
			method: "POST", target: "/v1/groups/7/replicas/2/rebuild",
			wantStatus: 200, wantCall: "rebuild 7 2",
		},
		{method: "POST", target: "/v1/groups/0/replicas/2/rebuild", wantStatus: 400},
		{method: "POST", target: "/v1/groups/7/replicas/0/retry", wantStatus: 400},
		{
			method: "POST", target: "/v1/groups/7/skip", body: `{"index":9,"confirm":"x"}`,
			wantStatus: 200, wantBody: `{"group":7,"index":9,"term":3}`,
			wantCall: "skip 7 9 x false",
		},
		{method: "POST", target: "/v1/groups/7/skip", body: `{"confirm":"x"}`, wantStatus: 400},
		{method: "POST", target: "/v1/groups/7/skip", body: `{"index":9}`, wantStatus: 400},
		{
			method: "POST", target: "/v1/groups/7/snapshot", wantStatus: 200,
			wantBody: `"index":9`, wantCall: "snapshot 7",
		},
		{method: "GET", target: "/v1/groups/7/raft", wantStatus: 200, wantCall: "raft 7"},
		{
			method: "GET", target: "/v1/groups/7/hash?index=4", wantStatus: 200,
			wantBody: `"index":4,"hash":"ab"`,
		},
		{method: "GET", target: "/v1/groups/7/kv", wantStatus: 200, wantBody: `"items":[]`},
		{method: "GET", target: "/v1/groups/7/kv?cursor=*", wantStatus: 400},
		{method: "GET", target: "/v1/groups/7/kv/k", wantStatus: 404, wantBody: "key_not_found"},
		{method: "GET", target: "/v1/groups/7/kv/", wantStatus: 400, wantBody: "the key is empty"},
		{method: "GET", target: "/v1/groups/0/kv/k", wantStatus: 501, wantBody: "system group"},
		{method: "PUT", target: "/v1/groups/7/kv/k", body: "v", wantStatus: 201},
		{method: "DELETE", target: "/v1/groups/7/kv/k", wantStatus: 200, wantBody: `"deleted"`},
		{method: "GET", target: "/livez", wantStatus: 200, wantBody: `{"live":true}`},
		{method: "GET", target: "/readyz", wantStatus: 200, wantBody: `"ready":true`},
		{method: "GET", target: "/readyz?verbose", wantStatus: 200, wantBody: "ready\n"},
		{method: "GET", target: "/metrics", wantStatus: 200, wantBody: "raftyard_http_requests"},
		{method: "GET", target: "/debug/pprof/", wantStatus: 200, wantBody: "goroutine"},
		{method: "GET", target: "/debug/pprof/goroutine?debug=1", wantStatus: 200},
		{method: "GET", target: "/debug/pprof/none", wantStatus: 404},
		{method: "GET", target: "/debug/pprof/profile?seconds=0", wantStatus: 400},
		{method: "GET", target: "/v1/events", wantStatus: 501, wantBody: "GET /v1/events"},
		{method: "GET", target: "/", wantStatus: 200, wantBody: `"path":"/v1/groups/{id}/txn"`},
		{method: "GET", target: "/v1/groups/7/snapshot", wantStatus: 501},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			h, n, _ := newHandler(t, Config{})
			resp := ask(h, tt.method, tt.target, tt.body, tt.headers...)
			if resp.StatusCode >= 400 {
				problemOf(t, resp)
			}
			if resp.StatusCode != tt.wantStatus || !strings.Contains(resp.Body, tt.wantBody) {
				t.Errorf("answer = %d %s\nwant %d with %q",
					resp.StatusCode, resp.Body, tt.wantStatus, tt.wantBody)
			}
			if tt.wantCall == "" {
				return
			}
			if len(n.calls) == 0 || n.calls[len(n.calls)-1] != tt.wantCall {
				t.Errorf("node was asked %q, want %q", n.calls, tt.wantCall)
			}
		})
	}
}

func TestCreateExistingGroup(t *testing.T) {
	h, n, _ := newHandler(t, Config{})
	n.exists = true
	n.stored = node.GroupStatus{TrailingEntries: 5000}
	resp := ask(h, "PUT", "/v1/groups/7", `{"kind":"kv","voters":[1]}`)
	if resp.StatusCode != 200 || !strings.Contains(resp.Body, `"created":false`) ||
		!strings.Contains(resp.Body, `"trailing_entries":5000`) {
		t.Errorf("create again = %d %s, want 200, created false and what is stored",
			resp.StatusCode, resp.Body)
	}
	// It is there, also when it cannot be read back.
	n.groupErr = node.ErrNoLeader
	resp = ask(h, "PUT", "/v1/groups/7", `{"kind":"kv","voters":[1]}`)
	if resp.StatusCode != 200 || !strings.Contains(resp.Body, `"voters":[1]`) {
		t.Errorf("create again = %d %s, want 200 and the spec", resp.StatusCode, resp.Body)
	}
}

func TestErrorMapping(t *testing.T) {
	unknown := fmt.Errorf("propose: %w: %w", node.ErrUnknownOutcome, context.DeadlineExceeded)
	tests := []struct {
		err         error
		wantStatus  int
		wantCode    string
		wantUnknown bool
		wantRetry   bool
	}{
		{err: unknown, wantStatus: 504, wantCode: client.CodeOutcomeUnknown, wantUnknown: true},
		{
			err: errors.Join(node.ErrClosed, node.ErrUnknownOutcome), wantStatus: 504,
			wantCode: client.CodeOutcomeUnknown, wantUnknown: true,
		},
		{
			err: kv.ErrReplayed, wantStatus: 504, wantCode: client.CodeOutcomeUnknown,
			wantUnknown: true,
		},
		{err: node.ErrNoLeader, wantStatus: 503, wantCode: client.CodeNoLeader, wantRetry: true},
		{
			err: &node.NotLeaderError{Group: 7, Leader: 3}, wantStatus: 503,
			wantCode: client.CodeNotLeader, wantRetry: true,
		},
		{
			err: &node.NotLeaderError{Group: 7}, wantStatus: 503, wantCode: client.CodeNoLeader,
			wantRetry: true,
		},
		{err: node.ErrGroupNotFound, wantStatus: 404, wantCode: client.CodeGroupNotFound},
		{err: node.ErrNodeNotFound, wantStatus: 404, wantCode: client.CodeNodeNotFound},
		{err: node.ErrNoReplica, wantStatus: 404, wantCode: client.CodeNoReplica},
		{err: node.ErrGroupExists, wantStatus: 409, wantCode: client.CodeGroupExists},
		{err: node.ErrEpochMismatch, wantStatus: 409, wantCode: client.CodeEpochMismatch},
		{
			err: node.ErrChangeInProgress, wantStatus: 409, wantCode: client.CodeChangeUnderWay,
			wantRetry: true,
		},
		{err: node.ErrNoQuorum, wantStatus: 409, wantCode: client.CodeNoQuorum},
		{err: node.ErrUnhealthy, wantStatus: 409, wantCode: client.CodeUnhealthy},
		{err: node.ErrNodeInUse, wantStatus: 409, wantCode: client.CodeNodeInUse},
		{err: node.ErrNodeRemoved, wantStatus: 410, wantCode: client.CodeNodeRemoved},
		{err: node.ErrNoState, wantStatus: 503, wantCode: client.CodeNoState, wantRetry: true},
		{
			err: node.ErrNotReached, wantStatus: 504, wantCode: client.CodeNotReached,
			wantUnknown: true,
		},
		{err: node.ErrTransfer, wantStatus: 409, wantCode: client.CodeTransferFailed},
		{
			err: node.ErrOverloaded, wantStatus: 429, wantCode: client.CodeOverloaded,
			wantRetry: true,
		},
		{err: node.ErrTooLarge, wantStatus: 413, wantCode: client.CodeTooLarge},
		{err: node.ErrInvalid, wantStatus: 400, wantCode: client.CodeInvalid},
		{
			err: node.ErrFaulty, wantStatus: 503, wantCode: client.CodeReplicaStopped,
			wantRetry: true,
		},
		{err: node.ErrUnsupported, wantStatus: 501, wantCode: client.CodeUnsupported},
		{err: node.ErrDiskFull, wantStatus: 507, wantCode: client.CodeDiskFull},
		{err: node.ErrClosed, wantStatus: 503, wantCode: client.CodeClosing, wantRetry: true},
		{
			err: context.DeadlineExceeded, wantStatus: 503, wantCode: client.CodeTimeout,
			wantRetry: true,
		},
		{err: context.Canceled, wantStatus: 503, wantCode: client.CodeClientCancelled},
		{
			err: &kv.PreconditionError{Current: 4}, wantStatus: 412,
			wantCode: client.CodePrecondition,
		},
		{
			err:        &kv.LimitError{Reason: kv.ErrTxnTooLarge, Limit: 9, Actual: 10},
			wantStatus: 413, wantCode: client.CodeTooLarge,
		},
		{err: kv.ErrEmptyKey, wantStatus: 400, wantCode: client.CodeInvalid},
		{err: kv.ErrFailed, wantStatus: 503, wantCode: client.CodeStoreFailed},
		{err: node.ErrDropped, wantStatus: 503, wantCode: client.CodeNotLeader, wantRetry: true},
		{
			err: errors.Join(node.ErrClosed, group.ErrUnknown), wantStatus: 504,
			wantCode: client.CodeOutcomeUnknown, wantUnknown: true,
		},
		{
			err: errors.New("odd"), wantStatus: 500, wantCode: client.CodeInternal,
			wantUnknown: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.err.Error(), func(t *testing.T) {
			h, _, data := newHandler(t, Config{})
			data.err = fmt.Errorf("wrapped: %w", tt.err)
			resp := ask(h, "PUT", "/v1/groups/7/kv/k", "v")
			p := problemOf(t, resp)
			want := client.OutcomeNotApplied
			if tt.wantUnknown {
				want = client.OutcomeUnknown
			}
			if p.Status != tt.wantStatus || p.Code != tt.wantCode || p.Outcome != want {
				t.Errorf("problem = %d %s %s, want %d %s %s",
					p.Status, p.Code, p.Outcome, tt.wantStatus, tt.wantCode, want)
			}
			hasRetry := p.RetryAfterMS > 0 && resp.Header.Get("Retry-After") != ""
			if hasRetry != tt.wantRetry {
				t.Errorf("retry hint = %t, want %t", hasRetry, tt.wantRetry)
			}
			if p.Group == nil || *p.Group != raftyard.GroupID(7) {
				t.Errorf("problem names group %v, want 7", p.Group)
			}
		})
	}
}

func TestProblemData(t *testing.T) {
	h, _, data := newHandler(t, Config{})
	data.err = &node.NotLeaderError{Group: 7, Leader: 3}
	if p := problemOf(t, ask(h, "PUT", "/v1/groups/7/kv/k", "v")); p.Leader != 3 {
		t.Errorf("leader = %v, want 3", p.Leader)
	}
	data.err = &kv.PreconditionError{Current: 4}
	resp := ask(h, "PUT", "/v1/groups/7/kv/k", "v")
	if p := problemOf(t, resp); p.Revision != 4 || resp.Header.Get("ETag") != `"4"` {
		t.Errorf("revision = %d, ETag %s, want 4", p.Revision, resp.Header.Get("ETag"))
	}
}

func TestNoSuchPathOrMethod(t *testing.T) {
	tests := []struct {
		method, target string
		wantStatus     int
		wantAllow      string
	}{
		{method: "GET", target: "/nothing", wantStatus: 404},
		{method: "GET", target: "/v1/", wantStatus: 404},
		{method: "GET", target: "/v1/status/", wantStatus: 404},
		{method: "GET", target: "/v1//status", wantStatus: 404},
		{method: "GET", target: "/v1/./status", wantStatus: 404},
		{method: "GET", target: "/v1/groups/../status", wantStatus: 404},
		{method: "GET", target: "/v1/groups/7/", wantStatus: 404},
		{method: "GET", target: "/v1/groups/7/nothing", wantStatus: 404},
		{method: "POST", target: "/v1/status", wantStatus: 405, wantAllow: "GET, HEAD"},
		{
			method: "PATCH", target: "/v1/groups/7", wantStatus: 405,
			wantAllow: "DELETE, GET, HEAD, PUT",
		},
		{method: "GET", target: "/v1/groups/7/txn", wantStatus: 405, wantAllow: "POST"},
		{
			method: "POST", target: "/v1/groups/7/kv/k", wantStatus: 405,
			wantAllow: "DELETE, GET, HEAD, PUT",
		},
		{method: "OPTIONS", target: "/v1/groups", wantStatus: 405, wantAllow: "GET, HEAD"},
		{method: "OPTIONS", target: "*", wantStatus: 404},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			h, _, _ := newHandler(t, Config{})
			resp := ask(h, tt.method, tt.target, "")
			problemOf(t, resp)
			if resp.StatusCode != tt.wantStatus || resp.Header.Get("Allow") != tt.wantAllow {
				t.Errorf("answer = %d, Allow %q, want %d, %q", resp.StatusCode,
					resp.Header.Get("Allow"), tt.wantStatus, tt.wantAllow)
			}
		})
	}
}

func TestMalformedJSON(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"empty", "  ", "the body is empty"},
		{"no JSON", "kind=kv", "line 1, column 1: invalid character 'k'"},
		{"cut off", `{"kind":`, "line 1, column 8: the JSON ends too early"},
		{"second line", "{\n \"kind\" 1}", "line 2, column 9"},
		{"null", "null", "the body is null"},
		{"unknown field", `{"kindd":"kv"}`, `line 1, column 2: unknown field "kindd"`},
		{
			"unknown field further down", "{\"kind\": \"kv\",\n  \"voterz\": [1]}",
			`line 2, column 3: unknown field "voterz"`,
		},
		{"wrong type", `{"kind": 77}`, "line 1, column 10: kind is a number, want a string"},
		{"negative", `{"voters":[-1]}`, "a whole number that is not negative"},
		{"fraction", `{"voters":[1.5]}`, "a whole number"},
		{"no list", `{"voters":1}`, "voters is a number, want a list"},
		{"no object", `[1]`, "the body is a list, want an object"},
		{"more", `{"kind":"kv"}{}`, "more after the JSON object"},
		{
			"twice", "{\"kind\":\"kv\",\n\"voters\":[1],\"voters\":[1,2]}",
			`line 2, column 14: "voters" is given twice`,
		},
		{
			"another case", `{"kind":"kv","Voters":[1]}`,
			`line 1, column 14: unknown field "Voters", did you mean "voters"?`,
		},
		{
			"half of a pair", `{"kind":"kv\\\ud83d","voters":[1]}`,
			"line 1, column 9: kind has half of a surrogate pair",
		},
		{"half of a pair in a name", `{"\udc00":"kv"}`, "a name has half of a surrogate pair"},
		{"twice in two cases", `{"kind":"kv","KIND":"sql","voters":[1]}`, `unknown field "KIND"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _, _ := newHandler(t, Config{})
			p := problemOf(t, ask(h, "PUT", "/v1/groups/7", tt.body))
			if p.Code != client.CodeMalformed || !strings.Contains(p.Detail, tt.want) {
				t.Errorf("problem = %s %q, want %s with %q",
					p.Code, p.Detail, client.CodeMalformed, tt.want)
			}
		})
	}
}

func TestMediaTypes(t *testing.T) {
	for kind, want := range map[string]int{
		"":                                  201,
		"application/json":                  201,
		"application/json; charset=utf-8":   201,
		"application/merge-patch+json":      201,
		"application/x-www-form-urlencoded": 201, // curl -d
		"text/plain":                        415,
		"application/xml":                   415,
		";":                                 415,
	} {
		h, _, _ := newHandler(t, Config{})
		var headers []string
		if kind != "" {
			headers = append(headers, "Content-Type: "+kind)
		}
		resp := ask(h, "PUT", "/v1/groups/7", `{"kind":"kv","voters":[1]}`, headers...)
		if resp.StatusCode != want {
			t.Errorf("Content-Type %q: status %d, want %d", kind, resp.StatusCode, want)
		}
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	h, n, _ := newHandler(t, Config{})
	resp := ask(h, "POST", "/v1/groups/7/transfer", `{"to":2}`, "Sec-Fetch-Site: cross-site")
	if p := problemOf(t, resp); p.Code != client.CodeCrossOrigin || len(n.calls) > 0 {
		t.Errorf("problem = %s, calls %v, want %s and none",
			p.Code, n.calls, client.CodeCrossOrigin)
	}
}

func TestPanicFailsItsOwnRequest(t *testing.T) {
	var log bytes.Buffer
	h, n, _ := newHandler(t, Config{Logger: logTo(&log)})
	n.panics = true
	p := problemOf(t, ask(h, "DELETE", "/v1/groups/7", ""))
	if p.Status != 500 || p.Outcome != client.OutcomeUnknown || strings.Contains(p.Detail, "fake") {
		t.Errorf("problem = %+v, want 500 with an unknown outcome and no inner details", p)
	}
	if !strings.Contains(log.String(), "the fake panics") {
		t.Errorf("log %q does not say why", log.String())
	}
	n.panics = false
	n.calls = nil
	if resp := ask(h, "GET", "/v1/groups/7", ""); resp.StatusCode != 200 {
		t.Errorf("the next request = %d, want 200", resp.StatusCode)
	}
	if len(h.slots) != 0 {
		t.Errorf("%d slots are still taken", len(h.slots))
	}
}

func TestDeadline(t *testing.T) {
	h, n, _ := newHandler(t, Config{})
	n.block = make(chan struct{})
	begun := time.Now()
	p := problemOf(t, ask(h, "GET", "/v1/groups/7?timeout=0.02", ""))
	if p.Code != client.CodeTimeout || time.Since(begun) > 5*time.Second {
		t.Errorf("problem = %s after %v, want %s at once",
			p.Code, time.Since(begun), client.CodeTimeout)
	}
	for _, bad := range []string{"0", "-1s", "soon", "6m", ""} {
		p := problemOf(t, ask(h, "GET", "/v1/groups/7?timeout="+bad, ""))
		if p.Code != client.CodeInvalid {
			t.Errorf("timeout=%s: %s, want %s", bad, p.Code, client.CodeInvalid)
		}
	}
}

func TestInFlightIsBounded(t *testing.T) {
	h, n, _ := newHandler(t, Config{MaxInFlight: 1})
	n.block = make(chan struct{})
	first := make(chan int)
	go func() { first <- ask(h, "GET", "/v1/groups/7", "").StatusCode }()
	for len(h.slots) == 0 {
		select {
		case status := <-first:
			t.Fatalf("the first request ended with %d", status)
		default:
		}
	}
	if p := problemOf(t, ask(h, "GET", "/v1/groups/8", "")); p.Code != client.CodeOverloaded {
		t.Errorf("the second request: %s, want %s", p.Code, client.CodeOverloaded)
	}
	if resp := ask(h, "GET", "/livez", ""); resp.StatusCode != 200 {
		t.Errorf("livez while overloaded = %d, want 200", resp.StatusCode)
	}
	close(n.block)
	if status := <-first; status != 200 {
		t.Errorf("the first request = %d, want 200", status)
	}
}

func TestHealth(t *testing.T) {
	h, n, _ := newHandler(t, Config{})
	n.ready = false
	n.checks = []node.Check{{Name: "store", OK: true}, {Name: "replicas", Detail: "3 of 7 open"}}
	p := problemOf(t, ask(h, "GET", "/readyz", ""))
	if p.Code != client.CodeNotReady || p.Detail != "replicas: 3 of 7 open" || len(p.Checks) != 2 {
		t.Errorf("readyz = %+v, want not_ready with its reason", p)
	}
	resp := ask(h, "GET", "/readyz?verbose", "")
	want := "[+]store ok\n[-]replicas 3 of 7 open\nnot ready\n"
	if resp.StatusCode != 503 || resp.Body != want {
		t.Errorf("readyz?verbose = %d %q, want 503 %q", resp.StatusCode, resp.Body, want)
	}
	n.live = errors.New("sync failed")
	if p := problemOf(t, ask(h, "GET", "/livez", "")); p.Code != client.CodeStoreFailed {
		t.Errorf("livez = %s, want %s", p.Code, client.CodeStoreFailed)
	}
	if resp := ask(Starting(), "GET", "/livez", ""); resp.StatusCode != 200 {
		t.Errorf("livez while starting = %d, want 200", resp.StatusCode)
	}
	if p := problemOf(t, ask(Starting(), "GET", "/v1/status", "")); p.Code != client.CodeNotReady {
		t.Errorf("status while starting = %s, want %s", p.Code, client.CodeNotReady)
	}
}

// TestHead: whatever answers GET answers HEAD, with the same header and no body.
func TestHead(t *testing.T) {
	h, _, data := newHandler(t, Config{})
	data.items = map[string]kv.Value{"k": {Data: []byte("value"), Revision: 3}}
	server := httptest.NewServer(h)
	defer server.Close()
	for _, path := range []string{
		"/v1/status", "/v1/groups/7/kv/k", "/v1/groups/7/kv/none", "/livez", "/nothing",
	} {
		get, head := fetch(t, "GET", server.URL+path), fetch(t, "HEAD", server.URL+path)
		for _, name := range []string{"Content-Length", "Content-Type", "ETag"} {
			if get.Header.Get(name) != head.Header.Get(name) {
				t.Errorf("%s: %s is %q for GET and %q for HEAD", path, name,
					get.Header.Get(name), head.Header.Get(name))
			}
		}
		if get.StatusCode != head.StatusCode || head.Body != "" {
			t.Errorf("%s: GET %d, HEAD %d %q", path, get.StatusCode, head.StatusCode, head.Body)
		}
	}
}

func fetch(t *testing.T, method, url string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer{StatusCode: resp.StatusCode, Header: resp.Header, Body: text(t, resp)}
}

// TestDocumented: docs/http.md names every route and every code.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	h, _, _ := newHandler(t, Config{})
	for _, line := range h.index {
		if !strings.Contains(string(page), line.Path) {
			t.Errorf("docs/http.md does not have %s", line.Path)
		}
	}
	for _, code := range client.Codes() {
		if !strings.Contains(string(page), "`"+code+"`") {
			t.Errorf("docs/http.md does not name code %s", code)
		}
		if status, title, _ := describe(code); status == 500 && code != client.CodeInternal {
			t.Errorf("code %s has no status of its own, only %s", code, title)
		}
	}
}
