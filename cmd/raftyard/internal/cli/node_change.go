package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

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
	var force, wait bool
	cmd := a.nodeAction(&cobra.Command{
		Use:   "remove ID",
		Short: "Have a node leave the cluster for ever",
		Long: `Have a drained node leave the cluster for ever: its id is spent. Every group gets
another member in the place of the one there, then the node is removed; until then drain or
undrain takes it back. With --wait the command returns when the node is removed, and says
meanwhile what it waits for, and what you can do if that does not come by itself: a learner
is not made a voter without being asked for. --force is for a node that is dead for ever: it
need not be drained, and groups that find no other node go on with fewer voters.`,
		Example: "  raftyard node drain 3\n  raftyard node remove 3 --wait --timeout 5m",
	}, func(ctx context.Context, c *client.Client, id raftyard.NodeID) (*client.Node, error) {
		n, err := c.RemoveNode(ctx, id, force)
		if err != nil || !wait {
			return n, err
		}
		return a.awaitRemoved(ctx, c, n)
	})
	cmd.Flags().BoolVar(&force, "force", false, "the node is dead for ever")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the node is removed (see --timeout)")
	return cmd
}

// awaitRemoved waits until a node that is leaving is removed, and says what it waits for
// whenever that changes.
func (a *app) awaitRemoved(
	ctx context.Context, c *client.Client, n *client.Node,
) (*client.Node, error) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	last, said := n, ""
	for {
		if last.Problem != "" && last.Problem != said {
			a.say("node %s: %s", n.ID, last.Problem)
			said = last.Problem
		}
		switch last.State {
		case "removed":
			return last, nil
		case "leaving":
		default:
			return nil, fmt.Errorf("node %s is %s: somebody has taken it back", n.ID, last.State)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, leavesYet(last)
		}
		now, err := c.Node(ctx, n.ID)
		if err != nil {
			continue // it is decided; who was asked may be leaving himself
		}
		last = now
	}
}

// leavesYet reports that a node was still leaving at the end of the time, as a node would.
func leavesYet(n *client.Node) error {
	return &client.Problem{
		Title: "Not reached", Code: client.CodeNotReached, Outcome: client.OutcomeUnknown,
		Detail: strings.TrimSuffix(fmt.Sprintf(
			"node %s is leaving, and goes on by itself: %s", n.ID, n.Problem), ": "),
	}
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
