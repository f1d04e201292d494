package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/raftyard/raftyard/client"
)

// TestReplicaRows: every member has a row, also one that does not answer and one
// that is just being made. What is not known is left open.
func TestReplicaRows(t *testing.T) {
	g := &client.Group{GroupSummary: client.GroupSummary{
		Members: []client.Member{
			{Replica: 1, Node: 1, Role: "voter"},
			{Replica: 2, Node: 2, Role: "voter"},
			{Replica: 3, Node: 3, Role: "learner"},
			{Replica: 4, Node: 4, Role: "incoming"},
			{Replica: 5, Node: 5, Role: "learner"},
		},
	}}
	g.Replicas = []client.Replica{
		{Node: 4, Replica: 4, Role: "follower", Term: 2, First: 3, Last: 7},
		{Node: 2, Role: "none", Error: "node 2: request to node 2: connection refused"},
		{Node: 1, Replica: 1, Role: "leader", Term: 2, Commit: 7, Applied: 7, First: 2, Last: 7},
		{Node: 5, Replica: 5, Role: "learner", LogOnly: true},
		{Node: 9, Replica: 8, Role: "none", Fault: "its log is damaged"},
	}
	want := strings.Join([]string{
		"1|1|leader|2|7|7|0|2-7|0|-|-",
		"2|2|voter|-|-|-|-|-|-|-|connection refused",
		"3|3|learner|-|-|-|-|-|-|-|no replica there yet",
		"4|4|incoming|2|0|0|0|3-7|0|-|-",
		"5|5|learner,log-only|0|0|0|0|0-0|0|-|-",
		"9|8|none|0|0|0|0|0-0|0|its log is damaged|-",
	}, "\n")
	var rows []string
	for _, row := range replicaRows(g) {
		rows = append(rows, strings.Join(row, "|"))
	}
	if diff := cmp.Diff(want, strings.Join(rows, "\n")); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestFreeSpace(t *testing.T) {
	for want, n := range map[string]client.Node{
		"0 B":     {Live: true, DiskLevel: "floor"},
		"-":       {},
		"1.0 KiB": {DiskFree: 1024, DiskLevel: "ok"},
	} {
		if got := free(&n); got != want {
			t.Errorf("free(%+v) = %s, want %s", n, got, want)
		}
	}
}

// TestNodeRows: what a node is in the cluster, whether it answers, and what is the
// matter, are three things.
func TestNodeRows(t *testing.T) {
	v := nodesView([]client.Node{
		{ID: 1, State: "active", Live: true, DiskLevel: "ok", Replicas: 3, LogOnly: 1},
		{ID: 2, State: "drained", Problem: "a new directory", LastError: "refused"},
		{ID: 3, State: "leaving", Live: true, Problem: "2 groups have a member here"},
	})
	want := []string{
		"1|active|yes|-|-|3 (1 log-only)|0|ok|0 B|-|-",
		"2|drained|no|-|-|0|0|-|-|-|a new directory",
		"3|leaving|yes|-|-|0|0|-|-|-|2 groups have a member here",
	}
	var rows []string
	for _, row := range v.rows {
		rows = append(rows, strings.Join(row, "|"))
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestProblemsWithTheirTimes: wherever problems are shown, so is when they began.
func TestProblemsWithTheirTimes(t *testing.T) {
	began := time.Date(2026, 3, 4, 6, 6, 7, 0, time.FixedZone("", 3600))
	sum := client.GroupSummary{
		ID: 7, Problems: []string{"joint", "lagging"},
		Since: map[string]time.Time{"joint": began},
	}
	const joint = "joint since 2026-03-04T05:06:07Z"
	status := &client.Status{System: sum, Problems: []client.GroupSummary{sum}}
	for what, got := range map[string]struct{ text, want string }{
		"list":   {groupsView(status.Problems).rows[0][7], joint + ",lagging"},
		"show":   {groupView(&client.Group{GroupSummary: sum}).text, joint + ", lagging\n"},
		"system": {statusView(status).text, "has a problem: " + joint + ", lagging\n"},
		"status": {statusView(status).text, joint + ",lagging"},
	} {
		if !strings.Contains(got.text, got.want) {
			t.Errorf("%s: %q, want %q in it", what, got.text, got.want)
		}
	}
}
