package admin

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/transport"
)

// TestMetrics: the names follow the rules, and docs/metrics.md lists all of them.
func TestMetrics(t *testing.T) {
	h, _, _ := newHandler(t, Config{Metrics: func() node.Metrics {
		m := node.Metrics{Replicas: 3, Peers: []transport.PeerStatus{{Node: 2, Up: true}}}
		kinds := map[string]uint64{"MsgApp": 4}
		m.Transport.Sent, m.Transport.Received = kinds, kinds
		m.Quarantined = map[string]uint64{"damaged_log": 1}
		m.Transport.DroppedBy, m.Transport.RefusedBy = kinds, kinds
		return m
	}, Connections: func() int { return 3 }})
	for _, method := range []string{"GET", "BREW"} {
		ask(h, method, "/v1/status", "")
		ask(h, method, "/no/such/path/"+method, "")
	}
	families, err := h.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "raftyard_") {
			continue
		}
		found[f.GetName()] = true
		if !strings.Contains(string(page), "`"+f.GetName()+"`") {
			t.Errorf("docs/metrics.md does not list %s", f.GetName())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if strings.Contains(l.GetValue(), "such") || l.GetValue() == "BREW" {
					t.Errorf("%s has a label that a client chose: %v", f.GetName(), l)
				}
			}
		}
	}
	for line := range strings.Lines(string(page)) {
		_, rest, ok := strings.Cut(line, "| `raftyard_")
		name, _, closed := strings.Cut("raftyard_"+rest, "`")
		if ok && closed && !found[name] {
			t.Errorf("docs/metrics.md lists %s, which is not there", name)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "raftyard_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestClientTypes: the client's documents have the fields of the node's, by the
// same names and of the same kinds.
func TestClientTypes(t *testing.T) {
	for _, tt := range []struct{ server, client any }{
		{node.Status{}, client.Status{}},
		{node.NodeStatus{}, client.Node{}},
		{node.GroupStatus{}, client.Group{}},
		{listing{}, client.Groups{}},
		{nodeListing{}, client.Nodes{}},
		{node.SnapshotInfo{}, client.Snapshot{}},
		{node.HashInfo{}, client.Hash{}},
		{node.Members{}, client.Members{}},
		{node.Check{}, client.Check{}},
	} {
		server, other := shape(reflect.TypeOf(tt.server)), shape(reflect.TypeOf(tt.client))
		if server != other {
			t.Errorf("%T:\n%s\n%T:\n%s", tt.server, server, tt.client, other)
		}
	}
}

// shape describes the JSON of a type.
func shape(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.Slice:
		return "[" + shape(typ.Elem()) + "]"
	case reflect.Map:
		return "map " + shape(typ.Elem())
	case reflect.Struct:
		if typ.Implements(reflect.TypeFor[json.Marshaler]()) {
			return typ.String()
		}
		return "{" + fields(typ) + "}"
	default:
		return typ.Kind().String()
	}
}

func fields(typ reflect.Type) string {
	var b strings.Builder
	for f := range typ.Fields() {
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			b.WriteString(fields(f.Type))
			continue
		}
		b.WriteString(name + " " + shape(f.Type) + "; ")
	}
	return b.String()
}
