package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

func TestUnknownParameters(t *testing.T) {
	h, n, data := newHandler(t, Config{})
	for target, want := range map[string]string{
		"/v1/groups?problems=any":         `unknown parameter "problems", there are: timeout,`,
		"/v1/groups/7/kv/k?consistancy=x": `unknown parameter "consistancy"`,
		"/v1/status?x=1":                  `unknown parameter "x", there are: timeout`,
	} {
		p := problemOf(t, ask(h, "GET", target, ""))
		if p.Code != client.CodeInvalid || !strings.HasPrefix(p.Detail, want) {
			t.Errorf("%s: %s %q, want %q", target, p.Code, p.Detail, want)
		}
	}
	if p := problemOf(t, ask(h, "PUT", "/v1/groups/7/kv/k?wait=1", "v")); p.Status != 400 ||
		len(n.calls) > 0 || len(data.items) > 0 {
		t.Errorf("a put with an unknown parameter = %+v, stored %v", p, data.items)
	}
	// Who asks for health must not be told that the process is to be killed.
	for _, target := range []string{"/livez?exclude=x", "/readyz?exclude=x", "/metrics?name=x"} {
		if resp := ask(h, "GET", target, ""); resp.StatusCode != 200 {
			t.Errorf("%s = %d, want 200", target, resp.StatusCode)
		}
	}
}

// TestNoTimeAtAll: a deadline that has passed says so, and nothing is begun.
func TestNoTimeAtAll(t *testing.T) {
	h, n, data := newHandler(t, Config{})
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		p := problemOf(t, ask(h, method, "/v1/groups/7/kv/k?timeout=1ns", "v"))
		if p.Code != client.CodeTimeout || len(n.calls) > 0 || len(data.items) > 0 {
			t.Errorf("%s with timeout=1ns = %+v, want %s", method, p, client.CodeTimeout)
		}
	}
}

// TestEveryProblemHasAnOutcome: a read never leaves it unknown.
func TestEveryProblemHasAnOutcome(t *testing.T) {
	h, _, data := newHandler(t, Config{})
	data.err = node.ErrNoLeader
	for method, want := range map[string]string{
		"GET": client.OutcomeNotApplied, "PUT": client.OutcomeNotApplied,
		"DELETE": client.OutcomeNotApplied,
		"PATCH":  client.OutcomeNotApplied,
	} {
		p := problemOf(t, ask(h, method, "/v1/groups/7/kv/k", "v"))
		if p.Outcome != want || !client.NotApplied(&p) {
			t.Errorf("%s: outcome %q, want %q", method, p.Outcome, want)
		}
	}
	if p := problemOf(t, ask(Starting(), "PUT", "/v1/groups/7", "{}")); p.Outcome == "" {
		t.Error("a change while the node starts has no outcome")
	}
}

// TestFailureAfterTheCommit: what goes wrong once the transaction is applied does
// not say that it is not.
func TestFailureAfterTheCommit(t *testing.T) {
	h, _, data := newHandler(t, Config{})
	data.short = true
	p := problemOf(t, ask(h, "POST", "/v1/groups/7/txn",
		`{"then":[{"op":"put","key":"k","value":"v"}]}`))
	if p.Code != client.CodeInternal || p.Outcome != client.OutcomeUnknown {
		t.Errorf("applied, and answered %s %s", p.Code, p.Outcome)
	}
}

// TestEveryProblemNamesItsGroup, however early it is found.
func TestEveryProblemNamesItsGroup(t *testing.T) {
	h, _, _ := newHandler(t, Config{})
	for request, want := range map[string]raftyard.GroupID{
		"PUT /v1/groups/7/kv/k?bogus=1": 7, "GET /v1/groups/7/kv/k?timeout=0": 7,
		"POST /v1/groups/7/kv/k": 7, "PATCH /v1/groups/7": 7, "PUT /v1/groups/7/snapshot": 7,
		"DELETE /v1/groups/7?x=1": 7, "GET /v1/groups/7/": 7, "PUT /v1/groups/0": 0,
	} {
		method, target, _ := strings.Cut(request, " ")
		p := problemOf(t, ask(h, method, target, ""))
		if p.Group == nil || *p.Group != want {
			t.Errorf("%s: group %v in %v, want %d", request, p.Group, p, want)
		}
	}
	for _, target := range []string{"/v1/groups/x", "/v1/groups/07", "/v1/nodes/0", "/v1/group/7"} {
		if p := problemOf(t, ask(h, "GET", target, "")); p.Group != nil {
			t.Errorf("%s: group %d, want none", target, *p.Group)
		}
	}
}

// TestDetails: the detail does not repeat the title, nor what Go calls things.
func TestDetails(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&kv.PreconditionError{Current: 4}, "the key is at revision 4"},
		{fmt.Errorf("group 7: %w", node.ErrNoLeader), "group 7"},
		{
			fmt.Errorf("group 7: %w within the deadline: %w", node.ErrNoLeader,
				context.DeadlineExceeded),
			"group 7: within the deadline",
		},
		{
			fmt.Errorf("%w: node 2 at 127.0.0.1:9 is down", node.ErrTransfer),
			"node 2 at 127.0.0.1:9 is down",
		},
		{
			fmt.Errorf("group 7: %w; the last attempt: node 2 is down", node.ErrNoLeader),
			"group 7: the last attempt: node 2 is down",
		},
		{node.ErrDiskFull, ""},
		{
			fmt.Errorf("%w: it has not read the registry yet", node.ErrNotReady),
			"it has not read the registry yet",
		},
	} {
		if p := toProblem(tt.err); p.Detail != tt.want {
			t.Errorf("%v: detail %q, want %q", tt.err, p.Detail, tt.want)
		}
	}
}

func TestHints(t *testing.T) {
	h, _, _ := newHandler(t, Config{})
	for target, want := range map[string]string{
		"/healthz":    "/livez",
		"/v1/groups/": "without the slash",
		"/v1":         "GET / lists",
		"/v1/nothing": "/v1/nothing",
	} {
		if p := problemOf(t, ask(h, "GET", target, "")); p.Status != 404 ||
			!strings.Contains(p.Detail, want) {
			t.Errorf("%s = %d %q, want 404 with %q", target, p.Status, p.Detail, want)
		}
	}
}

func TestExpectedEpochZero(t *testing.T) {
	h, n, _ := newHandler(t, Config{})
	p := problemOf(t, ask(h, "PUT", "/v1/groups/7/members", `{"voters":[1],"expect_epoch":0}`))
	if p.Code != client.CodeInvalid || len(n.calls) > 0 {
		t.Errorf("expect_epoch 0 = %+v, want %s and no change", p, client.CodeInvalid)
	}
}

// TestNotReached: a change that is decided and not there in time goes on by itself,
// so nobody may read that it was not made. One that is refused has not been made,
// waited for or not.
func TestNotReached(t *testing.T) {
	h, n, _ := newHandler(t, Config{})
	for _, tt := range []struct {
		err                   error
		wantCode, wantOutcome string
	}{
		{node.ErrChangeInProgress, client.CodeChangeUnderWay, client.OutcomeNotApplied},
		{node.ErrNotReached, client.CodeNotReached, client.OutcomeUnknown},
	} {
		n.err = fmt.Errorf("group 7: %w", tt.err)
		for _, request := range []string{
			"PUT /v1/groups/7/members", "PUT /v1/groups/7/members?wait=1s",
		} {
			method, target, _ := strings.Cut(request, " ")
			p := problemOf(t, ask(h, method, target, `{"voters":[1]}`))
			if p.Code != tt.wantCode || p.Outcome != tt.wantOutcome {
				t.Errorf("%s with %v = %s %s, want %s %s",
					request, tt.err, p.Code, p.Outcome, tt.wantCode, tt.wantOutcome)
			}
		}
	}
}

// TestWaitIsBesideTheTimeout: a wait that is longer than the timeout is had whole.
func TestWaitIsBesideTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, n, _ := newHandler(t, Config{})
		for query, want := range map[string]time.Duration{
			"?wait=30s": 40 * time.Second, "?wait=30s&timeout=2s": 32 * time.Second,
			"": 10 * time.Second, "?timeout=2s": 2 * time.Second,
			"?wait=5m&timeout=5m": 10 * time.Minute,
		} {
			ask(h, "PUT", "/v1/groups/7/members"+query, `{"voters":[1]}`)
			if n.left != want {
				t.Errorf("%s is given %v, want %v", query, n.left, want)
			}
		}
	})
}

// TestHosts: what a name of another site leads here for is refused.
func TestHosts(t *testing.T) {
	h, _, _ := newHandler(t, Config{CheckHost: true, Hosts: []string{"node1.test", "192.0.2.7"}})
	open, _, _ := newHandler(t, Config{})
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8700": 200, "LOCALHOST.": 200, "a.localhost:1": 200,
		"127.0.0.1:8700": 200, "127.9.9.9": 200, "[::1]:8700": 200, "[::1]": 200, "": 200,
		"node1.test:8700": 200, "192.0.2.7:1": 200,
		"evil.test": 403, "evil.test:8700": 403, "192.0.2.8": 403, "localhost.evil.test": 403,
		"127.0.0.1.evil.test": 403, "notlocalhost": 403,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/status", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || want == 403 && !strings.Contains(w.Body.String(), "bad_host") {
			t.Errorf("host %q = %d %s, want %d", host, w.Code, w.Body, want)
		}
		w = httptest.NewRecorder()
		open.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Errorf("host %q without the check = %d, want 200", host, w.Code)
		}
	}
}

// TestIndexIsWhole: each line of the index leads somewhere.
func TestIndexIsWhole(t *testing.T) {
	h, _, _ := newHandler(t, Config{})
	if len(h.index) < 20 {
		t.Errorf("the index has %d lines", len(h.index))
	}
	for _, line := range h.index {
		path := strings.NewReplacer("{id}", "7", "{key}", "k").Replace(line.Path)
		resp := ask(h, line.Method, path, "")
		if resp.StatusCode == 405 || strings.Contains(resp.Body, `"not_found"`) {
			t.Errorf("%s %s = %d %s", line.Method, path, resp.StatusCode, resp.Body)
		}
	}
}

func TestNotModifiedWithoutQuotes(t *testing.T) {
	h, _, data := newHandler(t, Config{})
	data.items = map[string]kv.Value{"k": {Data: []byte("v"), Revision: 38}}
	for tag, want := range map[string]int{"38": 304, `"38"`: 304, "W/\"38\"": 304, "37": 200} {
		resp := ask(h, "GET", "/v1/groups/7/kv/k", "", "If-None-Match: "+tag)
		if resp.StatusCode != want {
			t.Errorf("If-None-Match: %s = %d, want %d", tag, resp.StatusCode, want)
		}
	}
}
