package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

func (a *app) replicaCommand() *cobra.Command {
	retry := a.replicaAction(&cobra.Command{
		Use:   "retry GROUP",
		Short: "Open a replica in quarantine again",
		Long: `Open a replica in quarantine again, from what is durable on its node, as a restart of
the node would. Whether its state machine gets further than before shows in 'group show'.`,
		Example: "  raftyard replica retry 7 --node 2",
	}, func(
		ctx context.Context, c *client.Client, id raftyard.GroupID, at raftyard.NodeID,
	) (*client.Replica, error) {
		return c.RetryReplica(ctx, id, at)
	})
	rebuild := a.replicaAction(&cobra.Command{
		Use:   "rebuild GROUP",
		Short: "Have a replica take over the state of another",
		Long: `Have a replica throw its state away and take over that of another member. Its log is
kept if it is sound; a replica whose log is damaged is replaced by a fresh one, under another
replica id. Give it time with --timeout; what is not done by then goes on by itself.`,
		Example: "  raftyard replica rebuild 7 --node 2 --timeout 5m",
	}, func(
		ctx context.Context, c *client.Client, id raftyard.GroupID, at raftyard.NodeID,
	) (*client.Replica, error) {
		return c.RebuildReplica(ctx, id, at)
	})
	cmd := parent("replica", "Mend replicas that are in quarantine", retry, rebuild)
	a.flags.add(cmd, a.env)
	return cmd
}

// replicaAction completes a command that does something to one replica and shows it.
func (a *app) replicaAction(cmd *cobra.Command, act func(
	context.Context, *client.Client, raftyard.GroupID, raftyard.NodeID,
) (*client.Replica, error),
) *cobra.Command {
	a.onNode(cmd, "node", "the node that has the replica (needed)", func(
		ctx context.Context, c *client.Client, id raftyard.GroupID, at raftyard.NodeID,
	) error {
		r, err := act(ctx, c, id, at)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("replica %s of group %s on node %s is up\n", r.Replica, id, r.Node)
		if r.Quarantine != nil {
			text = fmt.Sprintf("replica %s of group %s on node %s is in quarantine: %s\n",
				r.Replica, id, r.Node, r.Quarantine.Detail)
		}
		return a.show(view{data: r, names: []string{r.Replica.String()}, text: text})
	})
	return a.completeGroup(cmd)
}

func (a *app) groupSkipCommand() *cobra.Command {
	var s client.Skip
	cmd := &cobra.Command{
		Use:   "skip ID",
		Short: "Skip an entry at which all state machines of a group fail",
		Long: `Have a group go on behind an entry of its log at which the state machines of all
members fail: nobody applies it, now or later. Who proposed its commands was told that the
outcome is unknown. 'group show' has the index and the incarnation. It is refused while a
member has applied the entry or does not stand at it, and when a member cannot be asked;
--force leaves those out that cannot be asked. If one of them has applied the entry, what it
has acknowledged is lost.`,
		Example: "  raftyard group skip 7 --index 4711 " +
			"--confirm 4617b6f8-e8d4-4cfd-bba7-af4ef85bb3d9",
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := c.SkipEntry(ctx, id, s)
				if err != nil {
					return err
				}
				return a.show(view{
					data:  done,
					names: []string{done.Group.String()},
					text:  fmt.Sprintf("group %s skips entry %d\n", done.Group, done.Index),
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&s.Index, "index", 0, "the index of the entry (needed)")
	flags.StringVar(&s.Confirm, "confirm", "", "the incarnation of the group (needed)")
	flags.BoolVar(&s.Force, "force", false, "though a member cannot be asked")
	mustBeGiven(cmd, "index")
	mustBeGiven(cmd, "confirm")
	return a.completeGroup(cmd)
}
