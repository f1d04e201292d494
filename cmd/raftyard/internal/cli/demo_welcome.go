package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
)

// welcome says what runs where and what can be done with it.
func (d *demo) welcome(took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "A cluster of %s with %s is ready, after %.2f s.\n",
		count(d.options.nodes, "node"), count(len(d.groups), "group"), took.Seconds())
	if len(d.groups) > d.options.groups {
		fmt.Fprintf(&b, "The directory holds more groups than --groups %d.\n", d.options.groups)
	}
	b.WriteString("\n" + table([]string{"NODE", "HTTP", "PEER", "LEADS", "DATA"}, d.nodeRows()))
	if rows := d.groupRows(); len(rows) > 0 {
		b.WriteString("\n" + table([]string{"GROUP", "KIND", "NODES", "LEADER", "PROBLEMS"}, rows))
		if more := len(d.groups) - len(rows); more > 0 {
			fmt.Fprintf(&b, "and %d more\n", more)
		}
	}
	b.WriteString(d.lines())
	fmt.Fprintf(&b, "\nCtrl-C stops it. The data is %s.\n", d.kept())
	return b.String()
}

func (d *demo) nodeRows() [][]string {
	rows := make([][]string, len(d.listeners))
	for i, l := range d.listeners {
		id := raftyard.NodeID(i + 1)
		leads := 0
		for g := range d.groups {
			if d.groups[g].Leader == id {
				leads++
			}
		}
		rows[i] = []string{
			id.String(), "http://" + l.http.Addr().String(), l.peer.Addr().String(),
			strconv.Itoa(leads), d.config(i).Node.DataDir,
		}
	}
	return rows
}

func (d *demo) groupRows() [][]string {
	const most = 16
	var rows [][]string
	for i := range d.groups[:min(len(d.groups), most)] {
		g := &d.groups[i]
		rows = append(rows, []string{
			g.ID.String(), g.Kind, join(nodesOf(g)), dash(g.Leader.String()),
			dash(strings.Join(g.Problems, ",")),
		})
	}
	return rows
}

func nodesOf(g *node.GroupSummary) []raftyard.NodeID {
	ids := slices.Concat(g.Voters, g.Learners)
	slices.Sort(ids)
	return ids
}

// lines returns what to paste into another terminal.
func (d *demo) lines() string {
	base := "http://" + d.listeners[0].http.Addr().String()
	other := "http://" + d.listeners[len(d.listeners)-1].http.Addr().String()
	program := cmp.Or(d.app.env.Program, "raftyard")
	at := ""
	if base != defaultAddr {
		at = " --addr " + base
	}
	var b strings.Builder
	b.WriteString("\nTry, in another terminal:\n\n")
	next := raftyard.GroupID(1)
	if n := len(d.groups); n > 0 {
		first := d.groups[0].ID
		next = d.groups[n-1].ID + 1
		path := "/v1/groups/" + first.String() + "/kv/greeting"
		fmt.Fprintf(&b, "  curl -X PUT --data-binary hello %s%s\n", base, path)
		fmt.Fprintf(&b, "  curl %s%s\n", other, path)
		fmt.Fprintf(&b, "  %s kv get %s greeting%s\n", program, first, at)
	}
	fmt.Fprintf(&b, "  %s status%s\n", program, at)
	fmt.Fprintf(&b, "  %s group list%s\n", program, at)
	fmt.Fprintf(&b, "  %s group create %s --voters %s%s\n", program, next, join(d.voters(0)), at)
	return b.String()
}
