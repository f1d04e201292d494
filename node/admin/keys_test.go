package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// newServer serves a handler on loopback and returns a client of it.
func newServer(t *testing.T) (*httptest.Server, *client.Client, *fakeKV) {
	t.Helper()
	h, _, data := newHandler(t, Config{})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{Addrs: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return server, c, data
}

// TestKeysArriveAsTheyAre: any bytes go through the client, the path, the
// handler and back, and the JSON of a list too.
func TestKeysArriveAsTheyAre(t *testing.T) {
	_, c, data := newServer(t)
	ctx := t.Context()
	check := func(t rapidOrTest, key, value []byte) {
		data.mu.Lock()
		data.items = nil
		data.mu.Unlock()
		if _, err := c.Put(ctx, 7, key, value, client.Cond{}); err != nil {
			t.Fatalf("Put(%q): %v", key, err)
		}
		if _, ok := data.items[string(key)]; !ok {
			t.Fatalf("Put(%q) stored %v", key, data.items)
		}
		got, err := c.Get(ctx, 7, key, client.Linearizable)
		if err != nil || !bytes.Equal(got.Value, value) {
			t.Fatalf("Get(%q) = %v, %v, want %q", key, got, err, value)
		}
		list, err := c.List(ctx, 7, client.ListRequest{Prefix: key})
		if err != nil || len(list.Items) != 1 || !bytes.Equal(list.Items[0].Key, key) ||
			!bytes.Equal(list.Items[0].Value, value) {
			t.Fatalf("List(%q) = %v, %v, want %q", key, list, err, value)
		}
		if done, err := c.Delete(ctx, 7, key, client.Cond{}); err != nil || !done.Deleted {
			t.Fatalf("Delete(%q) = %v, %v", key, done, err)
		}
	}
	for _, key := range []string{
		"plain", "a/b", "/", "//", "a//b", ".", "..", "../..", "a/./b", "%", "%2F", "a%00",
		"\x00", "\xff\xfe", "+", " ", "?", "#", ";", "ключ", "\u2028", strings.Repeat("k", 4096),
	} {
		check(t, []byte(key), []byte("value of "+key))
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "key"),
			rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "value"))
	})
}

type rapidOrTest interface {
	Fatalf(format string, args ...any)
}

// TestRawPaths: what curl sends, without a client that escapes everything.
func TestRawPaths(t *testing.T) {
	for path, want := range map[string]string{
		"a/b":              "a/b",
		"a%2Fb":            "a/b",
		"a%2fb":            "a/b",
		"a//b":             "a//b",
		"a/../b":           "a/../b",
		"a+b":              "a+b",
		"a%20b":            "a b",
		"%00":              "\x00",
		"%ff":              "\xff",
		"kv/x":             "kv/x",
		"a%3Fb?timeout=5s": "a?b",
		"a/":               "a/",
	} {
		h, _, data := newHandler(t, Config{})
		resp := ask(h, "PUT", "/v1/groups/7/kv/"+path, "v")
		if _, ok := data.items[want]; !ok || resp.StatusCode != 201 {
			t.Errorf("PUT kv/%s = %d, stored %v, want %q", path, resp.StatusCode, data.items, want)
		}
	}
}

func TestConditions(t *testing.T) {
	tests := []struct {
		name       string
		headers    []string
		wantPut    int // with the key at revision 1
		wantAbsent int // without the key
	}{
		{"none", nil, 200, 201},
		{"absent", []string{"If-None-Match: *"}, 412, 201},
		{"present", []string{"If-Match: *"}, 200, 412},
		{"revision", []string{`If-Match: "1"`}, 200, 412},
		{"bare revision", []string{"If-Match: 1"}, 200, 412},
		{"other revision", []string{`If-Match: "2"`}, 412, 412},
		{"weak", []string{`If-Match: W/"1"`}, 400, 400},
		{"half quoted", []string{`If-Match: "1`}, 400, 400},
		{"zero", []string{`If-Match: "0"`}, 400, 400},
		{"list", []string{`If-Match: "1", "2"`}, 400, 400},
		{"twice", []string{`If-Match: "1"`, `If-Match: "1"`}, 400, 400},
		{"not a star", []string{`If-None-Match: "1"`}, 400, 400},
		{"both", []string{"If-Match: *", "If-None-Match: *"}, 400, 400},
		{"empty", []string{"If-Match: "}, 400, 400},
		{"blank", []string{"If-Match:  "}, 400, 400},
		{"empty none", []string{"If-None-Match: "}, 400, 400},
		{"both empty", []string{"If-Match: ", "If-None-Match: "}, 400, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _, data := newHandler(t, Config{})
			if got := ask(h, "PUT", "/v1/groups/7/kv/k", "v", tt.headers...); got.StatusCode !=
				tt.wantAbsent {
				t.Errorf("put of an absent key = %d, want %d", got.StatusCode, tt.wantAbsent)
			}
			data.items = map[string]kv.Value{"k": {Revision: 1}}
			if got := ask(h, "PUT", "/v1/groups/7/kv/k", "v", tt.headers...); got.StatusCode !=
				tt.wantPut {
				t.Errorf("put of a key at revision 1 = %d, want %d", got.StatusCode, tt.wantPut)
			}
			data.items = map[string]kv.Value{"k": {Revision: 1}}
			got := ask(h, "DELETE", "/v1/groups/7/kv/k", "", tt.headers...)
			_, kept := data.items["k"]
			if got.StatusCode != tt.wantPut || kept != (tt.wantPut >= 300) {
				t.Errorf("delete of a key at revision 1 = %d, kept %t, want %d",
					got.StatusCode, kept, tt.wantPut)
			}
		})
	}
}

func TestGetHeaders(t *testing.T) {
	h, _, data := newHandler(t, Config{})
	data.items = map[string]kv.Value{"k": {Data: []byte("v"), Revision: 9, CreateRevision: 4}}
	resp := ask(h, "GET", "/v1/groups/7/kv/k?consistency=stale", "")
	if !data.stale || resp.Header.Get(client.HeaderConsistency) != "stale" {
		t.Errorf("a stale get: stale %t, label %q", data.stale,
			resp.Header.Get(client.HeaderConsistency))
	}
	if resp.Header.Get("ETag") != `"9"` || resp.Header.Get(client.HeaderCreateRevision) != "4" {
		t.Errorf("headers = %v", resp.Header)
	}
	if ask(h, "GET", "/v1/groups/7/kv/k", ""); data.stale {
		t.Error("a get is stale without being asked for it")
	}
	resp = ask(h, "GET", "/v1/groups/7/kv/k", "", `If-None-Match: "8", "9"`)
	if resp.StatusCode != http.StatusNotModified || resp.Body != "" {
		t.Errorf("get of what the client has = %d, want 304", resp.StatusCode)
	}
	if p := problemOf(t, ask(h, "GET", "/v1/groups/7/kv/k?consistency=odd", "")); p.Status != 400 {
		t.Errorf("consistency=odd = %d, want 400", p.Status)
	}
}

// TestOtherKindsHaveNoKeys: a command for keys never reaches another kind of
// state machine, whichever way the kind is found out.
func TestOtherKindsHaveNoKeys(t *testing.T) {
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		h, n, data := newHandler(t, Config{})
		n.kind = "ledger"
		p := problemOf(t, ask(h, method, "/v1/groups/7/kv/k", ""))
		if p.Code != client.CodeUnsupported || data.rev != 0 {
			t.Errorf("%s = %s, want %s", method, p.Code, client.CodeUnsupported)
		}
	}
	h, n, data := newHandler(t, Config{})
	n.kind = "" // not heard of yet
	n.stored.Kind = "ledger"
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		p := problemOf(t, ask(h, method, "/v1/groups/7/kv/k", ""))
		if p.Code != client.CodeUnsupported || data.rev != 0 {
			t.Errorf("%s in a group unheard of = %s", method, p.Code)
		}
	}
	n.groupErr = node.ErrGroupNotFound
	if p := problemOf(t, ask(h, "PUT", "/v1/groups/7/kv/k", "v")); p.Code !=
		client.CodeGroupNotFound {
		t.Errorf("in no group = %s, want %s", p.Code, client.CodeGroupNotFound)
	}
	h.refresh = func(context.Context) error { return node.ErrNoLeader }
	p := problemOf(t, ask(h, "PUT", "/v1/groups/7/kv/k", "v"))
	if p.Code != client.CodeNotReady || p.Outcome != client.OutcomeNotApplied || data.rev != 0 {
		t.Errorf("without a registry = %s, want %s", p.Code, client.CodeNotReady)
	}
	h.refresh = func(context.Context) error { n.kind = "kv"; return nil }
	if got := ask(h, "PUT", "/v1/groups/7/kv/k", "v"); got.StatusCode != http.StatusCreated {
		t.Errorf("in a group that was just created = %d, want 201", got.StatusCode)
	}
	h, err := New(Config{Node: &fakeNode{kind: "kv"}})
	if err != nil {
		t.Fatal(err)
	}
	if p := problemOf(t, ask(h, "GET", "/v1/groups/7/kv/k", "")); p.Code != client.CodeUnsupported {
		t.Errorf("without KV: %s, want %s", p.Code, client.CodeUnsupported)
	}
}

func TestLimitsOfBodies(t *testing.T) {
	server, _, data := newServer(t)
	url := server.URL + "/v1/groups/7/kv/k"
	put := func(body io.Reader, length int64) int {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", url, body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = length
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text(t, resp)
		return resp.StatusCode
	}
	exact := bytes.Repeat([]byte("x"), kv.MaxValueBytes)
	if got := put(bytes.NewReader(exact), int64(len(exact))); got != 201 {
		t.Errorf("a value of the longest length = %d, want 201", got)
	}
	if !bytes.Equal(data.items["k"].Data, exact) {
		t.Error("the longest value came back changed")
	}
	over := append(bytes.Clone(exact), 'x')
	if got := put(bytes.NewReader(over), int64(len(over))); got != 413 {
		t.Errorf("a value over the limit = %d, want 413", got)
	}
	if got := put(io.MultiReader(bytes.NewReader(over)), -1); got != 413 {
		t.Errorf("a chunked value over the limit = %d, want 413", got)
	}
	if got := put(bytes.NewReader(nil), 0); got != 200 || len(data.items["k"].Data) != 0 {
		t.Errorf("an empty value = %d, want 200", got)
	}
	url = server.URL + "/v1/groups/7/kv/" + strings.Repeat("k", kv.MaxKeyBytes+1)
	if got := put(strings.NewReader("v"), 1); got != 413 {
		t.Errorf("a key over the limit = %d, want 413", got)
	}
}

func TestBodiesInMemoryAreBounded(t *testing.T) {
	h, _, _ := newHandler(t, Config{MaxBodyBytes: 10})
	p := problemOf(t, ask(h, "PUT", "/v1/groups/7/kv/k", "eleven bytes"))
	if p.Code != client.CodeOverloaded {
		t.Errorf("a body beyond the budget: %s, want %s", p.Code, client.CodeOverloaded)
	}
	for range 3 { // what is taken is given back
		if resp := ask(h, "PUT", "/v1/groups/7/kv/k", "ten  bytes"); resp.StatusCode >= 300 {
			t.Errorf("a body within the budget = %d", resp.StatusCode)
		}
	}
}

// TestSlowBody: a client that sends half a body is answered at the deadline, also
// when nobody reads the body.
func TestSlowBody(t *testing.T) {
	for request, want := range map[string]string{
		"PUT /v1/groups/7/kv/k?timeout=50ms": `"code":"timeout"`,
		"DELETE /v1/groups/7/kv/k":           `"deleted":false`,
		"PUT /no/such/path":                  `"code":"not_found"`,
	} {
		server, _, data := newServer(t)
		conn, err := new(net.Dialer).DialContext(
			t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, request+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+
			"Content-Length: 10\r\n\r\nhalf")
		err = errors.Join(err, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if !bytes.Contains(answer, []byte(want)) {
			t.Errorf("%s: answer = %q, %v, want %s", request, answer, err, want)
		}
		if len(data.items) > 0 {
			t.Error("half a value was stored")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestListPages(t *testing.T) {
	_, c, data := newServer(t)
	data.items = map[string]kv.Value{}
	want := []string{"a", "a\xff", "b/1", "b/2", "c"}
	for _, key := range want {
		data.items[key] = kv.Value{Data: []byte("v")}
	}
	var got []string
	req := client.ListRequest{Limit: 2, KeysOnly: true, Consistency: client.Stale}
	for {
		page, err := c.List(t.Context(), 7, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range page.Items {
			got = append(got, string(it.Key))
			if it.Value != nil {
				t.Errorf("key %q has a value though only keys were asked for", it.Key)
			}
		}
		if page.NextCursor == "" {
			break
		}
		req.Cursor = page.NextCursor
	}
	if diff := cmp.Diff(want, got); diff != "" || !data.stale {
		t.Errorf("pages (-want +got), stale %t:\n%s", data.stale, diff)
	}
}

func TestTxn(t *testing.T) {
	h, _, data := newHandler(t, Config{})
	body := `{"compare":[
		{"key":"a","revision":4}, {"key":"b","is":"less","create_revision":9},
		{"key":"c","exists":true}, {"key":"d","exists":false},
		{"key_base64":"/w==","is":"not_equal","value_base64":""}, {"key":"e","value":""}],
	"then":[{"op":"put","key":"p","value":"x"},{"op":"get","key":"g"},{"op":"delete","key":"d"}],
	"else":[{"op":"put","key_base64":"/w==","value_base64":"/w=="}]}`
	resp := ask(h, "POST", "/v1/groups/7/txn", body)
	want := kv.Txn{
		Compares: []kv.Compare{
			{Key: []byte("a"), Target: kv.TargetRevision, Is: kv.Equal, Revision: 4},
			{Key: []byte("b"), Target: kv.TargetCreateRevision, Is: kv.Less, Revision: 9},
			{Key: []byte("c"), Target: kv.TargetRevision, Is: kv.Greater},
			{Key: []byte("d"), Target: kv.TargetRevision, Is: kv.Equal},
			{Key: []byte("\xff"), Target: kv.TargetValue, Is: kv.NotEqual, Value: []byte{}},
			{Key: []byte("e"), Target: kv.TargetValue, Is: kv.Equal, Value: []byte{}},
		},
		Then: []kv.Op{
			{Kind: kv.OpPut, Key: []byte("p"), Value: []byte("x")},
			{Kind: kv.OpGet, Key: []byte("g")},
			{Kind: kv.OpDelete, Key: []byte("d")},
		},
		Else: []kv.Op{{Kind: kv.OpPut, Key: []byte("\xff"), Value: []byte("\xff")}},
	}
	if diff := cmp.Diff(want, data.txn); diff != "" {
		t.Errorf("transaction (-want +got):\n%s", diff)
	}
	wantBody := `{"succeeded":true,"revision":5,"results":[{"op":"put","found":true},` +
		`{"op":"get","found":true,"item":{"key":"g","value":"v","revision":3,` +
		`"create_revision":0}},{"op":"delete","found":true}]}` + "\n"
	if resp.Body != wantBody {
		t.Errorf("answer = %s\nwant %s", resp.Body, wantBody)
	}
}

func TestBadTxn(t *testing.T) {
	many := strings.Repeat(`{"op":"get","key":"k"},`, kv.MaxTxnOps) + `{"op":"get","key":"k"}`
	tests := []struct {
		body, want string
		status     int
	}{
		{`{"then":[{"op":"put","key":"k"}]}`, "then[0]: want either value or value_base64", 400},
		{`{"then":[{"op":"get","key":"k","value":"v"}]}`, "then[0]: only put has a value", 400},
		{`{"else":[{"op":"inc","key":"k"}]}`, `else[0]: op is "inc"`, 400},
		{`{"then":[{"op":"get"}]}`, "then[0]: want either key or key_base64", 400},
		{`{"then":[{"op":"get","key":"k","key_base64":"aw=="}]}`, "want either", 400},
		{`{"then":[{"op":"get","key":""}]}`, "the key is empty", 400},
		{`{"compare":[{"key":"k"}]}`, "compare[0]: want exactly one", 400},
		{`{"compare":[{"key":"k","revision":1,"exists":true}]}`, "exactly one", 400},
		{`{"compare":[{"key":"k","revision":1,"is":"like"}]}`, `is is "like"`, 400},
		{`{"compare":[{"key":"k","exists":true,"is":"less"}]}`, "does not go with", 400},
		{
			`{"compare":[{"key":"k","value_base64":"*"}]}`,
			"column 39: compare[0].value_base64 is not base64", 400,
		},
		{
			`{"then":[{"op":"get","key":"k"},{"op":"get","key_base64":"?"}]}`,
			"column 58: then[1].key_base64 is not base64", 400,
		},
		{`null`, "the body is null, want a JSON object", 400},
		{`{"then":[` + many + `]}`, "has 129 elements, the limit is 128", 413},
	}
	for _, tt := range tests {
		h, _, data := newHandler(t, Config{})
		p := problemOf(t, ask(h, "POST", "/v1/groups/7/txn", tt.body))
		if p.Status != tt.status || !strings.Contains(p.Detail, tt.want) {
			t.Errorf("%.80s\n= %d %q, want %d with %q",
				tt.body, p.Status, p.Detail, tt.status, tt.want)
		}
		if data.txn.Then != nil || data.txn.Compares != nil {
			t.Errorf("%.80s was run", tt.body)
		}
	}
}

// TestClientRetries: the client repeats what certainly had no effect, and
// nothing else.
func TestClientRetries(t *testing.T) {
	answers := make(chan *client.Problem, 8)
	var asked int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		select {
		case p := <-answers:
			writeDocument(w, r, p.Status, client.ProblemType, p)
		default:
			writeDocument(w, r, 200, "application/json", client.PutResult{Revision: 7})
		}
	}))
	defer server.Close()
	c, err := client.New(client.Config{Addrs: []string{"127.0.0.1:1", server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answers <- newProblem(client.CodeNoLeader, "")
	answers <- newProblem(client.CodeOverloaded, "")
	done, err := c.Put(ctx, 7, []byte("k"), nil, client.Cond{})
	if err != nil || done.Revision != 7 || asked != 3 {
		t.Errorf("Put = %v, %v after %d requests, want revision 7 after 3", done, err, asked)
	}
	asked = 0
	answers <- newProblem(client.CodeOutcomeUnknown, "")
	_, err = c.Put(ctx, 7, []byte("k"), nil, client.Cond{})
	if !client.IsCode(err, client.CodeOutcomeUnknown) || client.NotApplied(err) || asked != 1 {
		t.Errorf("Put = %v after %d requests, want an unknown outcome after 1", err, asked)
	}
	server.Close()
	nobody, err := client.New(client.Config{Addrs: []string{server.URL, "127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = nobody.Put(ctx, 7, []byte("k"), nil, client.Cond{})
	if _, ok := errors.AsType[*client.UnreachableError](err); !ok || !client.NotApplied(err) {
		t.Errorf("Put to nobody = %v, want unreachable", err)
	}
}
