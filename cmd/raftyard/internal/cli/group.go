package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/config"
)

func (a *app) groupCommand() *cobra.Command {
	cmd := parent("group", "List, show, create and delete groups",
		a.groupListCommand(), a.completeGroup(a.groupShowCommand()), a.groupCreateCommand(),
		a.completeGroup(a.groupDeleteCommand()), a.groupForgetCommand(),
		a.groupSkipCommand())
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
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(on) > 1 {
				return usageError{fmt.Errorf("--node takes one id, got %s", on.String())}
			}
			if len(on) == 1 {
				filter.Node = on[0]
			}
			if words := problemWords(); filter.Problem != "" &&
				!slices.Contains(words, filter.Problem) {
				return usageError{fmt.Errorf("--problem is %q, want one of %s",
					filter.Problem, strings.Join(words, ", "))}
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				return a.listGroups(ctx, c, filter)
			})
		},
	}
	cmd.Flags().StringVar(&filter.Problem, "problem", "",
		"only groups with this problem: "+strings.Join(problemWords(), ", "))
	cmd.Flags().Var(&on, "node", "only groups with a member on this node")
	completeWords(cmd, "problem", problemWords())
	a.completeNodeFlag(cmd, "node")
	return cmd
}

// listGroups shows all pages as one.
func (a *app) listGroups(ctx context.Context, c *client.Client, f client.GroupFilter) error {
	all := client.Groups{Groups: []client.GroupSummary{}}
	for g, err := range eachGroup(ctx, c, f) {
		if err != nil {
			return err
		}
		all.Groups = append(all.Groups, *g)
	}
	v := groupsView(all.Groups)
	v.data = all
	return a.show(v)
}

// eachGroup goes over the groups of all pages. An error is the last that it yields.
func eachGroup(
	ctx context.Context, c *client.Client, f client.GroupFilter,
) iter.Seq2[*client.GroupSummary, error] {
	f.Limit = 1000
	return func(yield func(*client.GroupSummary, error) bool) {
		for {
			page, err := c.Groups(ctx, f)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Groups {
				if !yield(&page.Groups[i], nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			f.Cursor = page.NextCursor
		}
	}
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
			dash(strings.Join(problemsOf(g), ",")),
		})
	}
	return v
}

// problemsOf are the problems of a group, with when they began if that is known.
func problemsOf(g *client.GroupSummary) []string {
	words := slices.Clone(g.Problems)
	for i, word := range words {
		if since, ok := g.Since[word]; ok {
			words[i] += " since " + since.UTC().Format(time.RFC3339)
		}
	}
	return words
}

func (a *app) groupShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Show everything about one group",
		Example: "  raftyard group show 7\n  raftyard group show 7 -o yaml",
		Args:    wantArgs,
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
		text += "problems: " + strings.Join(problemsOf(&g.GroupSummary), ", ") + "\n"
	}
	if p := g.Poison; p != nil {
		text += fmt.Sprintf("poison: entry %d of term %d, %d bytes, SHA-256 %s of the first 4096; "+
			"see 'raftyard group skip'\n", p.Index, p.Term, p.Bytes, p.Hash)
	}
	if g.Steering != "" {
		text += "the leader: " + g.Steering + "\n"
	}
	text += "\n" + table([]string{
		"NODE", "REPLICA", "ROLE", "TERM", "COMMIT", "APPLIED", "SNAPSHOT", "LOG", "LAG",
		"FAULT", "ERROR",
	}, replicaRows(g))
	return view{data: g, names: []string{g.ID.String()}, text: text}
}

// replicaRows returns a row for each replica that answered, and one for each
// member that did not: a node that is down, or a replica that is just being made.
func replicaRows(g *client.Group) [][]string {
	members := map[raftyard.NodeID]client.Member{}
	for _, m := range g.Members {
		members[m.Node] = m
	}
	replicas := slices.Clone(g.Replicas)
	for _, m := range g.Members {
		has := func(r client.Replica) bool { return r.Node == m.Node }
		if !slices.ContainsFunc(replicas, has) {
			replicas = append(replicas, client.Replica{Node: m.Node, Error: "no replica there yet"})
		}
	}
	slices.SortStableFunc(replicas, func(a, b client.Replica) int {
		return cmp.Compare(a.Node, b.Node)
	})
	rows := make([][]string, len(replicas))
	for i := range replicas {
		rows[i] = replicaRow(&replicas[i], members[replicas[i].Node])
	}
	return rows
}

func replicaRow(r *client.Replica, m client.Member) []string {
	id, role := cmp.Or(r.Replica, m.Replica), cmp.Or(r.Role, m.Role)
	if r.Role == "follower" && m.Role != "" && m.Role != "voter" {
		role = m.Role // how it takes part in a change of members
	}
	if r.Error != "" {
		role = cmp.Or(m.Role, role)
	}
	if r.LogOnly {
		role += ",log-only"
	}
	row := []string{r.Node.String(), dash(id.String()), dash(role)}
	if r.Error != "" {
		row = append(row, "-", "-", "-", "-", "-", "-")
	} else {
		row = append(row, strconv.FormatUint(r.Term, 10), strconv.FormatUint(r.Commit, 10),
			strconv.FormatUint(r.Applied, 10), strconv.FormatUint(r.Snapshot, 10),
			fmt.Sprintf("%d-%d", r.First, r.Last), strconv.FormatUint(r.Lag, 10))
	}
	return append(row, dash(r.Fault), dash(reasonOf(r)))
}

// reasonOf returns why a node could not be asked, without its name, which stands in
// the same row.
func reasonOf(r *client.Replica) string {
	text := r.Error
	for _, prefix := range []string{
		"node " + r.Node.String() + ": ", "request to node " + r.Node.String() + ": ",
	} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

func (a *app) groupCreateCommand() *cobra.Command {
	var nodes membersFlags
	spec := client.Spec{}
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create a group",
		Long: "Create a group. One that exists with the same spec is left as it is, which is no " +
			"error.",
		Example: "  raftyard group create 7 --voters 1,2,3",
		Args:    wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			if err := nodes.check(); err != nil {
				return err
			}
			spec.Voters, spec.Learners = nodes.voters, nodes.learners
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				made, err := c.CreateGroup(ctx, id, spec)
				if err != nil {
					return err
				}
				text := "group " + id.String() + " exists\n"
				if made.Created {
					text = "group " + id.String() + " created\n"
				}
				return a.show(view{
					data:  made,
					names: []string{id.String()},
					text:  text,
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&spec.Kind, "kind", "kv", "the kind of state machine")
	flags.Var(&nodes.voters, "voters", "nodes that vote, such as 1,2,3 (needed)")
	flags.Var(&nodes.learners, "learners", "nodes that only follow")
	flags.Uint64Var(&spec.SnapshotEntries, "snapshot-entries", 0,
		"take a snapshot after so many entries (0: 10000)")
	flags.Uint64Var(&spec.TrailingEntries, "trailing-entries", 0,
		"keep so many entries before a snapshot (0: half of --snapshot-entries)")
	mustBeGiven(cmd, "voters")
	completeWords(cmd, "kind", config.Kinds())
	a.completeNodeFlag(cmd, "voters")
	a.completeNodeFlag(cmd, "learners")
	return cmd
}

// onNode completes a command on a group and on the one node that a flag, which must be
// given, names. act does it and shows what has come of it.
func (a *app) onNode(cmd *cobra.Command, flag, usage string, act func(
	context.Context, *client.Client, raftyard.GroupID, raftyard.NodeID,
) error,
) {
	var at nodeIDs
	cmd.Args = wantArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := groupArg(args[0])
		if err != nil {
			return err
		}
		if len(at) != 1 {
			return usageError{fmt.Errorf("--%s takes one node id, got %q", flag, at.String())}
		}
		return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
			return act(ctx, c, id, at[0])
		})
	}
	cmd.Flags().Var(&at, flag, usage)
	mustBeGiven(cmd, flag)
	a.completeNodeFlag(cmd, flag)
}

// mustBeGiven makes a flag of cmd obligatory.
func mustBeGiven(cmd *cobra.Command, flag string) {
	// It fails only for a flag that is not there.
	_ = cmd.MarkFlagRequired(flag)
}
