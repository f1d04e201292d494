package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

func (a *app) nodeAddCommand() *cobra.Command {
	var spec client.NodeSpec
	cmd := &cobra.Command{
		Use:   "add ID",
		Short: "Have a node join, or change where one is reached",
		Long: `Have a node join the cluster, or change the addresses and labels of one that is in
it. The id is new and never used again after the node has left. The node can be started
before or after that; it holds no group until one is moved to it.`,
		Example: `  raftyard node add 4 --peer 127.0.0.1:8731 --http 127.0.0.1:8730
  raftyard node add 4 --peer n4.example:8701 --http n4.example:8700 --labels zone=b`,
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := nodeArg(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				n, err := c.PutNode(ctx, id, spec)
				if err != nil {
					return err
				}
				v := nodeView(&n.Node)
				v.data = n
				return a.show(v)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&spec.Peer, "peer", "", "where other nodes reach it, host:port (needed)")
	flags.StringVar(&spec.HTTP, "http", "", "where it answers HTTP, host:port (needed)")
	flags.StringToStringVar(&spec.Labels, "labels", nil, "labels, such as zone=a,rack=7")
	mustBeGiven(cmd, "peer")
	mustBeGiven(cmd, "http")
	return cmd
}

func (a *app) nodeDrainCommand() *cobra.Command {
	return a.nodeAction(&cobra.Command{
		Use:   "drain ID",
		Short: "Have a node lead no group",
		Long: `Have a node hand its leaderships over and take no new ones, such as before it is
stopped for long, and return when that is done. It stays a member of its groups, which go
on counting it.`,
		Example: "  raftyard node drain 3",
	}, func(ctx context.Context, c *client.Client, id raftyard.NodeID) (*client.Node, error) {
		return c.DrainNode(ctx, id)
	})
}

func (a *app) nodeUndrainCommand() *cobra.Command {
	return a.nodeAction(&cobra.Command{
		Use:     "undrain ID",
		Short:   "Let a node lead again",
		Long:    "Let a drained node lead again, also one that was about to leave.",
		Example: "  raftyard node undrain 3",
	}, func(ctx context.Context, c *client.Client, id raftyard.NodeID) (*client.Node, error) {
		return c.UndrainNode(ctx, id)
	})
}

func (a *app) nodeRemoveCommand() *cobra.Command {
	var force bool
	cmd := a.nodeAction(&cobra.Command{
		Use:   "remove ID",
		Short: "Take a node out of the cluster for ever",
		Long: `Take a node out of the cluster for ever: its id is spent. It is refused while groups
want a member there, unless --force is given.`,
		Example: "  raftyard node remove 3",
	}, func(ctx context.Context, c *client.Client, id raftyard.NodeID) (*client.Node, error) {
		return c.RemoveNode(ctx, id, force)
	})
	cmd.Flags().BoolVar(&force, "force", false, "do not drain it first")
	return cmd
}

// nodeAction completes a command that does something to one node and shows it.
func (a *app) nodeAction(cmd *cobra.Command, act func(
	context.Context, *client.Client, raftyard.NodeID,
) (*client.Node, error),
) *cobra.Command {
	cmd.Args = wantArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := nodeArg(args[0])
		if err != nil {
			return err
		}
		return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
			n, err := act(ctx, c, id)
			if err != nil {
				return err
			}
			return a.show(nodeView(n))
		})
	}
	return cmd
}
