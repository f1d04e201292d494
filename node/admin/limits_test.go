package admin

import (
	"strings"
	"testing"

	"github.com/raftyard/raftyard/node"
)

// TestLimitsOfTheServer: what is used of each limit of the server is shown, and what was
// refused for it.
func TestLimitsOfTheServer(t *testing.T) {
	h, _, _ := newHandler(t, Config{
		Metrics:     func() node.Metrics { return node.Metrics{} },
		MaxInFlight: 3, MaxBodyBytes: 30, MaxAnswerBytes: mostAnswer + 10,
		Connections:     func() int { return 7 },
		ConnectionLimit: func() (int, uint64) { return 8, 9 },
	})
	want := map[string]node.Limited{
		"http_connections": {Used: 7, Most: 8, Refused: 9},
		"http_requests":    {Used: 3, Most: 3, Refused: 1},
		"http_body_bytes":  {Used: 20, Most: 30, Refused: 1},
		"http_answer_bytes": {
			Used: mostAnswer, Most: mostAnswer + 10, Refused: 1,
		},
	}
	if !h.bodies.take(20) || !h.answers.take(mostAnswer) {
		t.Fatal("there is no room")
	}
	for _, full := range []struct{ method, path, body string }{
		{"PUT", "/v1/groups/7/kv/k", "eleven bytes"},
		{"GET", "/v1/groups/7/kv", ""},
	} {
		if r := ask(h, full.method, full.path, full.body); r.StatusCode != 429 {
			t.Errorf("%s %s = %d, want 429", full.method, full.path, r.StatusCode)
		}
	}
	for range cap(h.slots) {
		h.slots <- struct{}{}
	}
	if r := ask(h, "GET", "/v1/status", ""); r.StatusCode != 429 {
		t.Errorf("one request too many = %d, want 429", r.StatusCode)
	}
	if r := ask(h, "GET", "/livez", ""); r.StatusCode != 200 {
		t.Errorf("a probe = %d, want 200", r.StatusCode)
	}
	wantLimits(t, h, want)

	h.bodies.give(20)
	h.answers.give(mostAnswer)
	for range cap(h.slots) {
		<-h.slots
	}
	for name, l := range want {
		if l.Used = 0; name == "http_connections" {
			l.Used = 7
		}
		want[name] = l
	}
	wantLimits(t, h, want)
}

// wantLimits compares the metrics of the limits of the server.
func wantLimits(t *testing.T, h *Handler, want map[string]node.Limited) {
	t.Helper()
	families, err := h.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]node.Limited)
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if len(s.GetLabel()) != 1 || !strings.HasPrefix(s.GetLabel()[0].GetValue(), "http_") {
				continue
			}
			name := s.GetLabel()[0].GetValue()
			l := got[name]
			switch f.GetName() {
			case "raftyard_limit":
				l.Most = int64(s.GetGauge().GetValue())
			case "raftyard_limit_used":
				l.Used = int64(s.GetGauge().GetValue())
			case "raftyard_limit_refusals_total":
				l.Refused = uint64(s.GetCounter().GetValue())
			}
			got[name] = l
		}
	}
	for name, l := range want {
		if got[name] != l {
			t.Errorf("%s is %+v, want %+v", name, got[name], l)
		}
	}
	if len(got) != len(want) {
		t.Errorf("limits of the server: %v, want %v", got, want)
	}
}
