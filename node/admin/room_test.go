package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/client"
)

// TestAnswersInMemoryAreBounded: values that are on their way to who asked for them have
// a bound of all together, and what they took is given back.
func TestAnswersInMemoryAreBounded(t *testing.T) {
	const most = mostAnswer + 10
	h, _, _ := newHandler(t, Config{MaxAnswerBytes: most})
	if r := ask(h, "PUT", "/v1/groups/7/kv/k", strings.Repeat("v", 20)); r.StatusCode >= 300 {
		t.Fatal(r.StatusCode)
	}
	for range 3 {
		for _, ok := range []string{"GET /v1/groups/7/kv/k", "GET /v1/groups/7/kv"} {
			method, path, _ := strings.Cut(ok, " ")
			if r := ask(h, method, path, ""); r.StatusCode != http.StatusOK {
				t.Errorf("%s = %d", ok, r.StatusCode)
			}
		}
	}
	if !h.answers.take(most - 15) {
		t.Fatal("not all that was taken has been given back")
	}
	const get = `{"then":[{"op":"get","key":"k"}]}`
	for _, full := range []struct{ method, path, body string }{
		{"GET", "/v1/groups/7/kv/k", ""},
		{"GET", "/v1/groups/7/kv", ""},
		{"POST", "/v1/groups/7/txn", get},
	} {
		p := problemOf(t, ask(h, full.method, full.path, full.body))
		if p.Code != client.CodeOverloaded || p.Outcome != client.OutcomeNotApplied {
			t.Errorf("%s %s beyond the bound: %s, %s", full.method, full.path, p.Code, p.Outcome)
		}
	}
	const put = `{"then":[{"op":"put","key":"k","value":"v"}]}`
	if r := ask(h, "POST", "/v1/groups/7/txn", put); r.StatusCode != http.StatusOK {
		t.Errorf("a transaction that returns nothing = %d", r.StatusCode)
	}
}

// TestCrowded: a connection that is one too many is told so, and probes are answered.
func TestCrowded(t *testing.T) {
	h, _, _ := newHandler(t, Config{})
	get := func(path string) answer {
		r := httptest.NewRequestWithContext(Crowded(t.Context()), "GET", path, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return answer{StatusCode: w.Code, Header: w.Header(), Body: w.Body.String()}
	}
	if p := problemOf(t, get("/v1/groups/7/kv/k")); p.Code != client.CodeOverloaded {
		t.Errorf("a read = %s, want %s", p.Code, client.CodeOverloaded)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if got := get(path); got.StatusCode != http.StatusOK {
			t.Errorf("GET %s = %d", path, got.StatusCode)
		}
	}
}
