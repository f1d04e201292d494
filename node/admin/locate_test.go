package admin

import (
	"reflect"
	"testing"

	"github.com/raftyard/raftyard/client"
)

// TestHalvedPairs: what JSON cannot say must not become something else.
func TestHalvedPairs(t *testing.T) {
	for body, want := range map[string]bool{
		`{"kind":"plain"}`:                      false,
		`{"kind":"\ud83d\ude00"}`:               false,
		`{"kind":"` + "\ufffd" + `"}`:           false,
		`{"kind":"\uFFFD and \ufffd"}`:          false,
		`{"kind":"\\ud83d"}`:                    false,
		`{"kind":"\ud83d"}`:                     true,
		`{"kind":"\uFFFD\ud83d"}`:               true,
		`{"kind":"\ude00\ud83d"}`:               true,
		`{"kind":"\\\ud83d"}`:                   true,
		`{"kind":"\\\\ud83d ` + "\ufffd" + `"}`: false,
		`{"kind":"\\ufffd\udc00"}`:              true,
	} {
		found := locate([]byte(body), reflect.TypeFor[client.Spec]())
		if (found != nil) != want {
			t.Errorf("%s: %+v, want a finding: %t", body, found, want)
		}
	}
	labels := locate([]byte(`{"labels":{"\ud83d":"a"}}`), reflect.TypeFor[client.NodeSpec]())
	if labels == nil {
		t.Error("half of a pair in a name is taken")
	}
}
