package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/client"
)

func (a *app) memberCommand() *cobra.Command {
	var voters, learners nodeIDs
	var m client.Members
	var wait bool
	set := &cobra.Command{
		Use:   "set ID",
		Short: "Say which nodes shall hold a group",
		Long: `Say which nodes shall hold a group. The group gets there by itself: new members are
filled first, then the voters change together, then old members go. With --wait the command
returns when it is there.`,
		Example: `  raftyard member set 7 --voters 2,3,4 --wait
  raftyard member set 7 --voters 1,2,3 --learners 4 --expect-epoch 5`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			m.Voters, m.Learners = voters, learners
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				g, err := c.SetMembers(ctx, id, m, a.waitFor(wait))
				if err != nil {
					return err
				}
				return a.show(groupView(g))
			})
		},
	}
	flags := set.Flags()
	flags.Var(&voters, "voters", "nodes that shall vote, such as 1,2,3 (needed)")
	flags.Var(&learners, "learners", "nodes that shall only follow")
	flags.Uint64Var(&m.ExpectEpoch, "expect-epoch", 0, "refuse when the group is at another epoch")
	flags.BoolVar(&wait, "wait", false, "return when the group has these members (see --timeout)")
	mustBeGiven(set, "voters")
	cmd := parent("member", "Change which nodes hold a group", set)
	a.flags.add(cmd, a.env)
	return cmd
}

// waitFor is how long the node shall wait, a little less than the command does.
func (a *app) waitFor(wait bool) time.Duration {
	if !wait {
		return 0
	}
	const answer = 500 * time.Millisecond
	return max(a.flags.timeout-answer, a.flags.timeout/2)
}

func (a *app) leaderCommand() *cobra.Command {
	var to nodeIDs
	transfer := &cobra.Command{
		Use:     "transfer ID",
		Short:   "Hand the leadership of a group to a node",
		Example: "  raftyard leader transfer 7 --to 2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			if len(to) != 1 {
				return usageError{fmt.Errorf("--to takes one node id, got %q", to.String())}
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := c.TransferLeader(ctx, id, to[0])
				if err != nil {
					return err
				}
				return a.show(view{
					data:  done,
					names: []string{done.Leader.String()},
					text:  fmt.Sprintf("group %s is led by node %s\n", done.Group, done.Leader),
				})
			})
		},
	}
	transfer.Flags().Var(&to, "to", "the node that shall lead (needed)")
	mustBeGiven(transfer, "to")
	cmd := parent("leader", "Move leadership", transfer)
	a.flags.add(cmd, a.env)
	return cmd
}

func (a *app) snapshotCommand() *cobra.Command {
	take := &cobra.Command{
		Use:     "take ID",
		Short:   "Have a group take a snapshot and cut its log",
		Example: "  raftyard snapshot take 7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := c.TakeSnapshot(ctx, id)
				if err != nil {
					return err
				}
				return a.show(view{
					data:  s,
					names: []string{fmt.Sprint(s.Index)},
					text: fmt.Sprintf(
						"snapshot of group %s on node %s: index %d, term %d, %d bytes\n",
						s.Group, s.Node, s.Index, s.Term, s.Bytes),
				})
			})
		},
	}
	cmd := parent("snapshot", "Take snapshots", take)
	a.flags.add(cmd, a.env)
	return cmd
}
