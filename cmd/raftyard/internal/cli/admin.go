package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

func (a *app) leaderCommand() *cobra.Command {
	transfer := &cobra.Command{
		Use:     "transfer ID",
		Short:   "Hand the leadership of a group to a node",
		Example: "  raftyard leader transfer 7 --to 2",
	}
	a.onNode(transfer, "to", "the node that shall lead (needed)", func(
		ctx context.Context, c *client.Client, id raftyard.GroupID, to raftyard.NodeID,
	) error {
		done, err := c.TransferLeader(ctx, id, to)
		if err != nil {
			return err
		}
		return a.show(view{
			data:  done,
			names: []string{done.Leader.String()},
			text:  fmt.Sprintf("group %s is led by node %s\n", done.Group, done.Leader),
		})
	})
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
