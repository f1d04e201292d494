package admin

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard/node"
)

// numbers gives every figure another value.
type numbers struct{ last int64 }

// fill sets all figures in v. Flags become true, and lists as long as the next value.
func (n *numbers) fill(v reflect.Value) {
	n.last++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		switch v.Type() {
		case reflect.TypeFor[time.Duration]():
			v.SetInt(n.last * int64(time.Second))
		default:
			v.SetInt(n.last)
		}
	case reflect.Uint64:
		v.SetUint(uint64(n.last))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), int(n.last), int(n.last)))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(n.last, 0)))
			return
		}
		for _, field := range v.Fields() {
			if field.CanSet() {
				n.fill(field)
			}
		}
	default: // maps have keys of their own
	}
}

// TestEveryFigureMoves: each metric of the node shows a figure of the node, and no two show
// the same one.
func TestEveryFigureMoves(t *testing.T) {
	figures := numbers{last: 1}
	var m node.Metrics
	figures.fill(reflect.ValueOf(&m).Elem())
	m.Peers = nil
	m.Wakes = make(map[string]uint64)
	for _, why := range []string{"request", "awake_member", "node", "time"} {
		figures.last++
		m.Wakes[why] = uint64(figures.last)
	}
	h, _, _ := newHandler(t, Config{Metrics: func() node.Metrics { return m }})
	families, err := h.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[float64]string)
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "raftyard_") || strings.HasPrefix(name, "raftyard_http_") {
			continue
		}
		for _, s := range f.GetMetric() {
			series, value := name, s.GetGauge().GetValue()+s.GetCounter().GetValue()
			for _, l := range s.GetLabel() {
				series += " " + l.GetValue()
			}
			if strings.Contains(series, " http_") {
				continue // TestLimitsOfTheServer
			}
			switch other, twice := shown[value]; {
			case value == 0:
				t.Errorf("%s does not move", series)
			case value == 1: // a flag
			case twice:
				t.Errorf("%s and %s show the same", series, other)
			default:
				shown[value] = series
			}
		}
	}
	if len(shown) < 100 {
		t.Errorf("%d series, want all: %v", len(shown), shown)
	}
}
