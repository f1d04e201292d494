//go:build unix

package test

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// oddKeys are keys that get lost or changed on the way where paths are cleaned, decoded
// twice or built anew.
var oddKeys = []string{
	"plain", "a/b", "/", "//", "a//b", "../b", ".", "a%2Fb", "%", "a?b", "a#b", "a&b=c", "a+b",
	" a b ", "ключ", "\x00", "\xff\xfe", `"`, "\\", "\r\n",
}

// TestSameAnswerEverywhere asks every node the same: the one that leads, a member that does
// not, and one that is no member and passes everything on. Keys and values are theirs to the
// byte, and what cannot be done has one status and one code, whoever is asked.
func TestSameAnswerEverywhere(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{})
	c.Start()
	const g = 1
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, kvGroup(1, 2))
	keysEverywhere(t, c.Nodes(), g)
	for _, r := range impossible(g) {
		for _, n := range c.Nodes() {
			r.check(t, n)
		}
	}
	conditionsEverywhere(t, c.Nodes(), g)
	c.Kill(c.Node(1)) // half of the members: nobody leads
	refusedWithoutLeader(t, c.Nodes()[1:], g)
}

// keysEverywhere writes each key through each node and reads it through all.
func keysEverywhere(t *testing.T, nodes []*cluster.Node, g raftyard.GroupID) {
	t.Helper()
	for i, key := range oddKeys {
		by := nodes[i%len(nodes)]
		value := append([]byte(key), 0, '\r', '\n', 0xff, byte(i))
		if err := put(t, by, g, key, value); err != nil {
			t.Error(err)
			continue
		}
		for _, n := range nodes {
			got, err := readKey(t.Context(), n, g, key, client.Linearizable)
			if err != nil || !bytes.Equal(got, value) {
				t.Errorf("%q through node %d: %q, %v, want %q", key, n.ID(), got, err, value)
			}
			a := n.Do(t.Context(), cluster.Request{
				Method: http.MethodHead, Path: cluster.KeyPath(g, key),
			})
			if a.Status != http.StatusOK || len(a.Body) > 0 ||
				a.Header.Get("ETag") == "" {
				t.Errorf("HEAD of %q through node %d: %v, %q", key, n.ID(), a, a.Header)
			}
		}
	}
	var want []string
	for _, n := range nodes {
		var listed []string
		err := n.List(t.Context(), g, client.Linearizable, func(item client.Item) {
			listed = append(listed, string(item.Key))
		})
		if want == nil {
			want = slices.Sorted(slices.Values(oddKeys))
		}
		if err != nil || !slices.Equal(listed, want) {
			t.Errorf("node %d lists %q, %v, want %q", n.ID(), listed, err, want)
		}
	}
}

// conditionsEverywhere has conditions arrive with what is passed on.
func conditionsEverywhere(t *testing.T, nodes []*cluster.Node, g raftyard.GroupID) {
	t.Helper()
	for _, n := range nodes {
		r := cluster.Request{
			Method: http.MethodPut, Path: cluster.KeyPath(g, "plain"), Body: []byte("x"),
			Header: http.Header{"If-None-Match": {"*"}},
		}
		if a := n.Do(t.Context(), r); a.Why != client.CodePrecondition {
			t.Errorf("create what is there through node %d: %v", n.ID(), a)
		}
		r = cluster.Request{
			Method: http.MethodGet, Path: cluster.GroupPath(g, "/kv"),
			Query: url.Values{"prefix": {"a+"}, "limit": {"1"}},
		}
		var page client.Items
		if err := n.Do(t.Context(), r).Decode(&page); err != nil || len(page.Items) != 1 ||
			string(page.Items[0].Key) != "a+b" {
			t.Errorf("list by prefix through node %d: %+v, %v", n.ID(), page, err)
		}
	}
}

// A refusal is a request that nobody can serve, and how it is answered.
type refusal struct {
	request cluster.Request
	status  int
	code    string
}

func impossible(g raftyard.GroupID) []refusal {
	key, json := cluster.KeyPath(g, "k"), http.Header{"Content-Type": {"application/json"}}
	return []refusal{
		{
			cluster.Request{Method: http.MethodPut, Path: key, Body: make([]byte, 10<<20)},
			http.StatusRequestEntityTooLarge, client.CodeTooLarge,
		},
		{
			cluster.Request{Method: http.MethodGet, Path: cluster.KeyPath(g, "none")},
			http.StatusNotFound, client.CodeKeyNotFound,
		},
		{
			cluster.Request{Method: http.MethodGet, Path: cluster.KeyPath(999, "k")},
			http.StatusNotFound, client.CodeGroupNotFound,
		},
		{
			cluster.Request{Method: http.MethodPut, Path: cluster.KeyPath(999, "k")},
			http.StatusNotFound, client.CodeGroupNotFound,
		},
		{
			cluster.Request{Method: http.MethodPatch, Path: key},
			http.StatusMethodNotAllowed, client.CodeMethod,
		},
		{
			cluster.Request{
				Method: http.MethodPost, Path: cluster.GroupPath(g, "/txn"), Header: json,
				Body: []byte(`{"then": [`),
			},
			http.StatusBadRequest, client.CodeMalformed,
		},
		{
			cluster.Request{
				Method: http.MethodPut, Path: cluster.GroupPath(g, "/members"), Header: json,
				Body: []byte(`{"voters": "1"}`),
			},
			http.StatusBadRequest, client.CodeMalformed,
		},
		{
			cluster.Request{
				Method: http.MethodGet, Path: key, Query: url.Values{"consistancy": {"stale"}},
			},
			http.StatusBadRequest, client.CodeInvalid,
		},
		{
			cluster.Request{Method: http.MethodGet, Path: "/v1/nothing"},
			http.StatusNotFound, client.CodeNotFound,
		},
	}
}

func (r *refusal) check(t *testing.T, n *cluster.Node) {
	t.Helper()
	a := n.Do(t.Context(), r.request)
	if a.Status != r.status || a.Why != r.code || a.Outcome != cluster.NotApplied {
		t.Errorf("%s %s at node %d = %d %v (%v), want %d %s", r.request.Method,
			r.request.Path, n.ID(), a.Status, a, a.Outcome, r.status, r.code)
	}
}

// refusedWithoutLeader asks for what needs a leader. Nothing may answer as if it were done,
// each ends at its deadline, and what is stale by wish is there.
func refusedWithoutLeader(t *testing.T, nodes []*cluster.Node, g raftyard.GroupID) {
	t.Helper()
	key := cluster.KeyPath(g, "plain")
	var wg sync.WaitGroup
	for _, n := range nodes {
		for _, r := range []cluster.Request{
			{Method: http.MethodGet, Path: key},
			{Method: http.MethodHead, Path: key},
			{Method: http.MethodGet, Path: cluster.GroupPath(g, "/kv")},
			{Method: http.MethodPut, Path: key, Body: []byte("new")},
			{Method: http.MethodDelete, Path: key},
		} {
			r.Timeout = time.Second
			wg.Go(func() {
				a := n.Do(t.Context(), r)
				hasNoBody := r.Method == http.MethodHead
				if a.Status < http.StatusInternalServerError || a.Malformed && !hasNoBody {
					t.Errorf("%s %s at node %d without a leader = %d %v, want 5xx and why",
						r.Method, r.Path, n.ID(), a.Status, a)
				}
			})
		}
	}
	wg.Go(func() {
		m := client.Members{Voters: []raftyard.NodeID{2, 3}}
		a := nodes[1].SetMembers(t.Context(), g, m, time.Second)
		if a.Status < http.StatusInternalServerError || a.Malformed {
			t.Errorf("other members without a leader: %d %v", a.Status, a)
		}
	})
	wg.Wait()
	got, err := readKey(t.Context(), nodes[0], g, "plain", client.Stale)
	if err != nil || len(got) == 0 {
		t.Errorf("a stale read without a leader: %q, %v", got, err)
	}
}
