package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/client"
)

func (a *app) groupCommand() *cobra.Command {
	cmd := parent("group", "List, show, create and delete groups",
		a.groupListCommand(), a.groupShowCommand(), a.groupCreateCommand(), a.groupDeleteCommand())
	a.flags.add(cmd, a.env)
	return cmd
}

func (a *app) groupListCommand() *cobra.Command {
	var filter client.GroupFilter
	var on nodeIDs
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the groups",
		Example: `  raftyard group list
  raftyard group list --problem any
  raftyard group list --node 3 -o name`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(on) > 1 {
				return usageError{fmt.Errorf("--node takes one id, got %s", on.String())}
			}
			if len(on) == 1 {
				filter.Node = on[0]
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				return a.listGroups(ctx, c, filter)
			})
		},
	}
	cmd.Flags().StringVar(&filter.Problem, "problem", "",
		"only groups with this problem: any, no_leader, no_replica, under_replicated, joint, "+
			"faulty, lagging")
	cmd.Flags().Var(&on, "node", "only groups with a member on this node")
	return cmd
}

// listGroups shows all pages as one.
func (a *app) listGroups(ctx context.Context, c *client.Client, f client.GroupFilter) error {
	const page = 1000
	all := client.Groups{Groups: []client.GroupSummary{}}
	f.Limit = page
	for {
		got, err := c.Groups(ctx, f)
		if err != nil {
			return err
		}
		all.Groups = append(all.Groups, got.Groups...)
		if got.NextCursor == "" {
			break
		}
		f.Cursor = got.NextCursor
	}
	v := groupsView(all.Groups)
	v.data = all
	return a.show(v)
}

func groupsView(groups []client.GroupSummary) view {
	v := view{
		header: []string{
			"GROUP", "KIND", "LEADER", "TERM", "EPOCH", "VOTERS", "LEARNERS", "PROBLEMS",
		},
	}
	for i := range groups {
		g := &groups[i]
		v.names = append(v.names, g.ID.String())
		v.rows = append(v.rows, []string{
			g.ID.String(), g.Kind, dash(g.Leader.String()), dash(strconv.FormatUint(g.Term, 10)),
			strconv.FormatUint(g.Epoch, 10), join(g.Voters), dash(join(g.Learners)),
			dash(strings.Join(g.Problems, ",")),
		})
	}
	return v
}

func (a *app) groupShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Show everything about one group",
		Example: "  raftyard group show 7\n  raftyard group show 7 -o yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				g, err := c.Group(ctx, id)
				if err != nil {
					return err
				}
				return a.show(groupView(g))
			})
		},
	}
}

func groupView(g *client.Group) view {
	text := fmt.Sprintf("group %s, kind %s, epoch %d, leader %s, term %d\nincarnation %s\n",
		g.ID, g.Kind, g.Epoch, dash(g.Leader.String()), g.Term, g.Incarnation)
	text += fmt.Sprintf(
		"wanted: voters %s, learners %s; a snapshot every %d entries, %d kept before it\n",
		dash(join(g.Voters)), dash(join(g.Learners)), g.SnapshotEntries, g.TrailingEntries)
	if len(g.Problems) > 0 {
		text += "problems: " + strings.Join(g.Problems, ", ") + "\n"
	}
	rows := make([][]string, len(g.Replicas))
	for i := range g.Replicas {
		r := &g.Replicas[i]
		note := strings.TrimSpace(r.Fault + " " + r.Error)
		rows[i] = []string{
			r.Node.String(), r.Replica.String(), r.Role, strconv.FormatUint(r.Term, 10),
			strconv.FormatUint(r.Commit, 10), strconv.FormatUint(r.Applied, 10),
			strconv.FormatUint(r.Snapshot, 10),
			fmt.Sprintf("%d-%d", r.First, r.Last), strconv.FormatUint(r.Lag, 10), dash(note),
		}
	}
	text += "\n" + table([]string{
		"NODE", "REPLICA", "ROLE", "TERM", "COMMIT", "APPLIED", "SNAPSHOT", "LOG", "LAG", "FAULT",
	}, rows)
	return view{data: g, names: []string{g.ID.String()}, text: text}
}

func (a *app) groupCreateCommand() *cobra.Command {
	var voters, learners nodeIDs
	spec := client.Spec{}
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create a group",
		Long: "Create a group. One that exists with the same spec is left as it is, which is no " +
			"error.",
		Example: "  raftyard group create 7 --voters 1,2,3",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			spec.Voters, spec.Learners = voters, learners
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				created, err := c.CreateGroup(ctx, id, spec)
				if err != nil {
					return err
				}
				text := "group " + id.String() + " exists\n"
				if created {
					text = "group " + id.String() + " created\n"
				}
				return a.show(view{
					data:  map[string]any{"group": id, "created": created},
					names: []string{id.String()},
					text:  text,
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&spec.Kind, "kind", "kv", "the kind of state machine")
	flags.Var(&voters, "voters", "nodes that vote, such as 1,2,3 (needed)")
	flags.Var(&learners, "learners", "nodes that only follow")
	flags.Uint64Var(&spec.SnapshotEntries, "snapshot-entries", 0,
		"take a snapshot after so many entries (0: the node's default)")
	flags.Uint64Var(&spec.TrailingEntries, "trailing-entries", 0,
		"keep so many entries before a snapshot (0: the node's default)")
	mustBeGiven(cmd, "voters")
	return cmd
}

// mustBeGiven makes a flag of cmd obligatory.
func mustBeGiven(cmd *cobra.Command, flag string) {
	// It fails only for a flag that is not there.
	_ = cmd.MarkFlagRequired(flag)
}

func (a *app) groupDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a group and its data on every node",
		Long: "Delete a group and its data everywhere, also on nodes that are down now. " +
			"Repeating it is no error.",
		Example: "  raftyard group delete 7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.DeleteGroup(ctx, id); err != nil {
					return err
				}
				return a.show(view{
					data:  client.Deleted{Group: id, Deleted: true},
					names: []string{id.String()},
					text:  "group " + id.String() + " deleted\n",
				})
			})
		},
	}
}
