//go:build unix

package test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestRebuiltReplicasAgree throws the state of each replica of a group away in turn, under
// writes, and compares all of them in the end.
func TestRebuiltReplicasAgree(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 3})
	c.Start()
	const g = raftyard.GroupID(1)
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries, spec.TrailingEntries = 20, 5
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, spec)
	write := func(round int) {
		t.Helper()
		for i := range 15 {
			key := fmt.Sprintf("key %d", i)
			if err := put(t, c.Node(1), g, key, fmt.Append(nil, round)); err != nil {
				t.Fatal(err)
			}
		}
	}
	post := func(rest, body string) cluster.Answer {
		return c.Node(2).Do(t.Context(), cluster.Request{
			Method: http.MethodPost, Path: cluster.GroupPath(g, rest), Body: []byte(body),
			Header: http.Header{"Content-Type": {"application/json"}}, Timeout: time.Minute,
		})
	}
	write(0)
	for id := 1; id <= 3; id++ {
		var r client.Replica
		a := post(fmt.Sprintf("/replicas/%d/rebuild", id), "")
		if err := a.Decode(&r); err != nil || r.Quarantine != nil {
			t.Fatalf("rebuild on node %d: %+v, %v", id, r, err)
		}
		cluster.Eventually(t, time.Minute, "the group is well", func() error {
			group, err := c.Node(1).Group(t.Context(), g)
			if err == nil && len(group.Problems) > 0 {
				err = fmt.Errorf("problems %q", group.Problems)
			}
			return err
		})
		write(id)
	}
	if a := post("/replicas/1/retry", ""); a.Why != client.CodeInvalid {
		t.Errorf("retry of a sound replica ends with %q, %v", a.Why, a.Error())
	}
	group, err := c.Node(1).Group(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	skip := fmt.Sprintf(`{"index":%d,"confirm":%q}`, group.Replicas[0].Applied, group.Incarnation)
	if a := post("/skip", skip); a.Why != client.CodeInvalid {
		t.Errorf("skip of an entry that was applied ends with %q, %v", a.Why, a.Error())
	}
	cluster.Eventually(t, time.Minute, "the states are the same", func() error {
		first, err := c.Node(1).Hash(t.Context(), g)
		for _, n := range c.Nodes()[1:] {
			other, herr := n.Hash(t.Context(), g)
			if err = errors.Join(err, herr); err == nil && other.Hash != first.Hash {
				err = fmt.Errorf("node %d has %s at %d, node 1 %s at %d",
					n.ID(), other.Hash, other.Index, first.Hash, first.Index)
			}
		}
		return err
	})
}
