package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/client"
)

func (a *app) nodeCommand() *cobra.Command {
	list := &cobra.Command{
		Use:     "list",
		Short:   "List the nodes",
		Example: "  raftyard node list\n  raftyard node list -o name",
		Args:    wantArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				nodes, err := c.Nodes(ctx)
				if err != nil {
					return err
				}
				v := nodesView(nodes)
				v.data = client.Nodes{Nodes: nodes}
				return a.show(v)
			})
		},
	}
	show := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one node",
		Example: "  raftyard node show 2",
		Args:    wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := nodeArg(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				n, err := c.Node(ctx, id)
				if err != nil {
					return err
				}
				return a.show(nodeDetails(n))
			})
		},
	}
	cmd := parent("node", "List nodes, and have them join, rest and leave",
		list, a.completeNode(show), a.nodeAddCommand(), a.completeNode(a.nodeDrainCommand()),
		a.completeNode(a.nodeUndrainCommand()), a.completeNode(a.nodeRemoveCommand()))
	a.flags.add(cmd, a.env)
	return cmd
}

func nodesView(nodes []client.Node) view {
	v := view{header: []string{
		"NODE", "STATE", "LIVE", "HTTP", "PEER", "REPLICAS", "LEADERS", "DISK", "FREE", "LABELS",
		"PROBLEM",
	}}
	for i := range nodes {
		n := &nodes[i]
		live := "no"
		if n.Live {
			live = "yes"
		}
		v.names = append(v.names, n.ID.String())
		v.rows = append(v.rows, []string{
			n.ID.String(), dash(n.State), live, dash(n.HTTP), dash(n.Peer),
			replicas(n), strconv.Itoa(n.Leaders),
			dash(disk(n)), free(n), dash(labels(n.Labels)),
			dash(cmp.Or(n.Problem, n.LastError)),
		})
	}
	return v
}

// replicas returns how many replicas a node has, and how many of them have no state.
func replicas(n *client.Node) string {
	text := strconv.Itoa(n.Replicas)
	if n.LogOnly > 0 {
		text += fmt.Sprintf(" (%d log-only)", n.LogOnly)
	}
	return text
}

// nodeView shows one node as a row.
func nodeView(n *client.Node) view {
	v := nodesView([]client.Node{*n})
	v.data = n
	return v
}

// nodeDetails shows one node as a row, and below it what is done about its files.
func nodeDetails(n *client.Node) view {
	v := nodeView(n)
	v.text, v.header = table(v.header, v.rows), nil
	for i := range n.Databases {
		if i == 0 {
			v.text += "\n"
		}
		v.text += upkeep(&n.Databases[i])
	}
	return v
}

// upkeep says what a node has done about the files of a database.
func upkeep(db *client.Database) string {
	text := fmt.Sprintf("%s: %s in tables", db.Name, size(db.TableBytes))
	if db.ValueBytes > 0 {
		text += fmt.Sprintf(", %s in files of values, of which %s count",
			size(db.ValueBytes), size(db.LiveValueBytes))
	}
	if db.Reclaims > 0 {
		text += fmt.Sprintf("; %s given back, the last time at %s",
			size(int64(db.ReclaimedBytes)), moment(db.Reclaimed))
	}
	if db.ReclaimsFailed > 0 {
		text += fmt.Sprintf("; giving back has failed %d times", db.ReclaimsFailed)
	}
	if db.Scrubs > 0 {
		text += "; all read and compared at " + moment(db.Scrubbed)
	}
	if len(db.Damaged) > 0 {
		text += "; damaged: " + strings.Join(db.Damaged, ", ")
	}
	return text + "\n"
}

func moment(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }

// disk returns how a node's disk is.
func disk(n *client.Node) string {
	if n.DiskSpeed == "" || n.DiskSpeed == "ok" {
		return n.DiskLevel
	}
	if n.DiskLevel == "ok" {
		return n.DiskSpeed
	}
	return n.DiskLevel + ", " + n.DiskSpeed
}

// free returns the free space of a node, when the node has told.
func free(n *client.Node) string {
	if n.DiskLevel == "" && n.DiskFree == 0 {
		return "-"
	}
	return size(n.DiskFree)
}

func labels(m map[string]string) string {
	texts := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, name+"="+m[name])
	}
	return strings.Join(texts, ",")
}

// size returns a number of bytes with a unit.
func size(bytes int64) string {
	const unit = 1024
	if bytes < unit {
		return strconv.FormatInt(bytes, 10) + " B"
	}
	value, suffix := float64(bytes), 0
	for value >= unit && suffix < 6 {
		value /= unit
		suffix++
	}
	return fmt.Sprintf("%.1f %ciB", value, "BKMGTPE"[suffix])
}

func (a *app) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the cluster on one screen: nodes, groups, problems",
		Example: "  raftyard status\n  raftyard status --addr 127.0.0.1:8710 -o json",
		Args:    wantArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := c.Status(ctx)
				if err != nil {
					return err
				}
				return a.show(statusView(s))
			})
		},
	}
	a.flags.add(cmd, a.env)
	return cmd
}

func statusView(s *client.Status) view {
	ready := "ready"
	if !s.Ready {
		ready = "not ready"
		for _, check := range s.Checks {
			if !check.OK {
				ready += "; " + strings.TrimSuffix(check.Name+": "+check.Detail, ": ")
			}
		}
	}
	text := fmt.Sprintf("cluster %s, node %s (%s), version %s, started %s\n\n",
		s.Cluster, s.Node, ready, dash(s.Version), moment(s.Started))
	nodes := nodesView(s.Nodes)
	text += table(nodes.header, nodes.rows)
	text += fmt.Sprintf("\n%s, %d with a problem; this node has %s and leads %d\n",
		count(s.Groups.Total, "group"), s.Groups.WithProblem,
		count(s.Groups.Replicas, "replica"), s.Groups.Leaders)
	if len(s.System.Problems) > 0 {
		text += "the system group, which holds the list of groups, has a problem: " +
			strings.Join(problemsOf(&s.System), ", ") + "\n"
	}
	if len(s.Problems) > 0 {
		groups := groupsView(s.Problems)
		text += "\n" + table(groups.header, groups.rows)
	}
	return view{data: s, names: []string{s.Node.String()}, text: text}
}
