package client

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

// TestRequests: what each call sends, but for the timeout, which all have.
func TestRequests(t *testing.T) {
	spec := NodeSpec{Peer: "n4:1", HTTP: "n4:2", Labels: map[string]string{"zone": "a"}}
	forced := Members{Voters: []raftyard.NodeID{1, 2}, Force: true}
	for want, do := range map[string]func(context.Context, *Client) error{
		"GET /v1/nodes/4": func(ctx context.Context, c *Client) error {
			return second(c.Node(ctx, 4))
		},
		`PUT /v1/nodes/4 {"peer":"n4:1","http":"n4:2","labels":{"zone":"a"}}`: func(
			ctx context.Context, c *Client,
		) error {
			return second(c.PutNode(ctx, 4, spec))
		},
		"POST /v1/nodes/4/drain": func(ctx context.Context, c *Client) error {
			return second(c.DrainNode(ctx, 4))
		},
		"POST /v1/nodes/4/undrain": func(ctx context.Context, c *Client) error {
			return second(c.UndrainNode(ctx, 4))
		},
		"DELETE /v1/nodes/4": func(ctx context.Context, c *Client) error {
			return second(c.RemoveNode(ctx, 4, false))
		},
		"DELETE /v1/nodes/4?force=true": func(ctx context.Context, c *Client) error {
			return second(c.RemoveNode(ctx, 4, true))
		},
		"DELETE /v1/groups/7": func(ctx context.Context, c *Client) error {
			_, err := c.DeleteGroup(ctx, 7)
			return err
		},
		"DELETE /v1/groups/7?confirm=5f-1&force=true": func(ctx context.Context, c *Client) error {
			return second(c.ForceDeleteGroup(ctx, 7, "5f-1"))
		},
		"POST /v1/groups/7/forget": func(ctx context.Context, c *Client) error {
			return c.ForgetGroup(ctx, 7)
		},
		`PUT /v1/groups/7/members {"voters":[1,2],"force":true}`: func(
			ctx context.Context, c *Client,
		) error {
			return second(c.SetMembers(ctx, 7, forced, 0))
		},
		`PUT /v1/groups/7/members?wait=1s {"voters":[1,2],"force":true}`: func(
			ctx context.Context, c *Client,
		) error {
			return second(c.SetMembers(ctx, 7, forced, time.Second))
		},
		"PUT /v1/groups/7/learners/4": func(ctx context.Context, c *Client) error {
			return second(c.AttachLearner(ctx, 7, 4))
		},
		"DELETE /v1/groups/7/learners/4": func(ctx context.Context, c *Client) error {
			return second(c.DetachLearner(ctx, 7, 4))
		},
	} {
		t.Run(want, func(t *testing.T) {
			sent := make(chan string, 1)
			server := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					sent <- requestLine(r)
					_, _ = io.WriteString(w, "{}")
				}))
			defer server.Close()
			c := newClient(t, Config{Addrs: []string{server.URL}})
			if err := do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if got := <-sent; got != want {
				t.Errorf("sent %q, want %q", got, want)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// requestLine is method, path, query without the timeout, and body.
func requestLine(r *http.Request) string {
	line := r.Method + " " + r.URL.EscapedPath()
	query := r.URL.Query()
	query.Del("timeout")
	if text := query.Encode(); text != "" {
		line += "?" + text
	}
	body, _ := io.ReadAll(r.Body)
	if len(body) > 0 {
		line += " " + string(body)
	}
	return line
}
