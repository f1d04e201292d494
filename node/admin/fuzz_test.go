package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/raftyard/raftyard/client"
)

// FuzzBodies: whatever a body is, it is taken or refused as the request's fault,
// and what is said about malformed JSON is a place in it.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		``, `null`, `{}`, `[]`, `{"voters":[1,2,3]}`, `{"voters":[1,-2]}`, `{"voters":"1"}`,
		`{"voters":[1],"expect_epoch":0}`, `{"kind":"kv","voters":[1],"learners":[1]}`,
		`{"kind":7}`, "{\n\"odd\": {\"a\":[{}]}}", `{"to":2} {`, `{"to":18446744073709551616}`,
		`{"compare":[{"key":"a","revision":9,"is":"less"},{"key_base64":"!"}]}`,
		`{"then":[{"op":"put","key":"k","value_base64":"gA=="},{"op":"get","key":"k"}]}`,
		`{"then":[{"op":"put","key":"\ud800","value":"` + "\xff" + `"}],"else":[null]}`,
		"{\"then\":\t[\r\n{\"op\":1}]}", `{"THEN":[],"then":[]}`, `{"a":`, "\xef\xbb\xbf{}",
		`{"":0}`, `{"peer":"a:1","http":"b:2","labels":{"zone":"a","zone":"b"}}`,
	} {
		f.Add([]byte(body))
	}
	routes := []struct{ method, path string }{
		{http.MethodPut, "/v1/groups/7"},
		{http.MethodPut, "/v1/groups/7/members"},
		{http.MethodPost, "/v1/groups/7/transfer"},
		{http.MethodPost, "/v1/groups/7/txn"},
		{http.MethodPut, "/v1/nodes/4"},
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		h, _, _ := newHandler(t, Config{})
		for _, r := range routes {
			resp := ask(h, r.method, r.path, string(body))
			if resp.StatusCode < http.StatusMultipleChoices {
				continue
			}
			var p client.Problem
			if err := json.Unmarshal([]byte(resp.Body), &p); err != nil {
				t.Fatalf("%s %s: %q: %v", r.method, r.path, resp.Body, err)
			}
			if p.Status >= http.StatusInternalServerError || p.Outcome != client.OutcomeNotApplied {
				t.Errorf("%s %s: %d %s %s", r.method, r.path, p.Status, p.Code, p.Outcome)
			}
			if p.Code == client.CodeMalformed {
				checkPlace(t, body, p.Detail)
			}
		}
	})
}

// checkPlace makes sure that the line and column in a detail, if there are any,
// are those of a byte of the body, or of its end.
func checkPlace(t *testing.T, body []byte, detail string) {
	t.Helper()
	var line, column int
	if n, err := fmt.Sscanf(detail, "line %d, column %d:", &line, &column); n == 0 {
		return
	} else if err != nil {
		t.Fatalf("%q: %v", detail, err)
	}
	lines := bytes.Split(body, []byte("\n"))
	if line < 1 || line > len(lines) || column < 1 || column > len(lines[line-1])+1 {
		t.Errorf("%q is no place in %q", detail, body)
	}
}

// FuzzLocate: the second look at a document that encoding/json has refused ends,
// and names a place in it.
func FuzzLocate(f *testing.F) {
	for _, body := range []string{
		`{"then":[{"op":"put","value_base64":"x"}]}`, `[[{"a":1}],2]`, `"x"`, `{"a":{"b":[]}}`,
	} {
		f.Add([]byte(body), int64(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, offset int64) {
		if !json.Valid(body) {
			return
		}
		for _, found := range []*misfit{
			locate(body, reflect.TypeFor[client.Txn]()),
			locate(body, reflect.TypeFor[membersDoc]()),
		} {
			if found != nil && (found.offset < 1 || found.offset > int64(len(body))) {
				t.Errorf("%q is at %d of %d bytes", found.what, found.offset, len(body))
			}
		}
		if at := tokenAt(body, offset); at < 1 || at > int64(len(body))+1 {
			t.Errorf("the token at %d begins at %d of %d bytes", offset, at, len(body))
		}
	})
}
