package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/client"
)

func (a *app) memberCommand() *cobra.Command {
	var nodes membersFlags
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
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("expect-epoch") && m.ExpectEpoch == 0 {
				return usageError{errors.New("--expect-epoch is 0, which no group is at")}
			}
			if err := nodes.check(); err != nil {
				return err
			}
			m.Voters, m.Learners = nodes.voters, nodes.learners
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
	flags.Var(&nodes.voters, "voters", "nodes that shall vote, such as 1,2,3 (needed)")
	flags.Var(&nodes.learners, "learners", "nodes that shall only follow")
	flags.Uint64Var(&m.ExpectEpoch, "expect-epoch", 0, "refuse when the group is at another epoch")
	flags.BoolVar(&wait, "wait", false, "return when the group has these members (see --timeout)")
	mustBeGiven(set, "voters")
	a.completeNodeFlag(set, "voters")
	a.completeNodeFlag(set, "learners")
	cmd := parent("member", "Change which nodes hold a group", a.completeGroup(set))
	a.flags.add(cmd, a.env)
	return cmd
}

// waitFor is how long the node shall wait: as long as the command has, of which
// the client leaves what the rest of the request takes.
func (a *app) waitFor(wait bool) time.Duration {
	if !wait {
		return 0
	}
	return time.Duration(a.flags.timeout)
}

func (a *app) leaderCommand() *cobra.Command {
	var to nodeIDs
	transfer := &cobra.Command{
		Use:     "transfer ID",
		Short:   "Hand the leadership of a group to a node",
		Example: "  raftyard leader transfer 7 --to 2",
		Args:    wantArgs,
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
	a.completeNodeFlag(transfer, "to")
	cmd := parent("leader", "Move leadership", a.completeGroup(transfer))
	a.flags.add(cmd, a.env)
	return cmd
}

func (a *app) snapshotCommand() *cobra.Command {
	take := &cobra.Command{
		Use:   "take ID",
		Short: "Have a group take a snapshot and cut its log",
		Long: `Have one replica of a group take a snapshot: the one on the node that answers, or
else the leader's. Keys are durable by themselves, so that a snapshot of a group of kind kv
is a mark in its log and no copy: it says from where on the log is needed. The log before
it is cut, but for the trailing entries, which stay for followers that are a little behind.
It is no backup. Replicas do this by themselves, every snapshot_entries entries.`,
		Example: "  raftyard snapshot take 7",
		Args:    wantArgs,
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
						"snapshot of group %s on node %s: index %d, term %d, a state of %s\n",
						s.Group, s.Node, s.Index, s.Term, size(s.Bytes)),
				})
			})
		},
	}
	cmd := parent("snapshot", "Take snapshots", a.completeGroup(take))
	a.flags.add(cmd, a.env)
	return cmd
}
