package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

func (a *app) groupDeleteCommand() *cobra.Command {
	var force bool
	var confirm string
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a group and its data on every node",
		Long: `Delete a group and its data everywhere, also on nodes that are down now. Repeating
it is no error. It needs a majority of the group's voters: others could not be told to stop,
and might go on with the group among themselves. --force deletes such a group, too, and what
its members hold that cannot be reached now; it has to be confirmed with the group's
incarnation, which the refusal names.`,
		Example: `  raftyard group delete 7
  raftyard group delete 7 --force --confirm 5e1d8c02-93a4-4c55-8f0b-6b7e2f1a9d10`,
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			if confirm != "" && !force {
				return usageError{errors.New("--confirm goes with --force, which is not there")}
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := deleteGroup(ctx, c, id, force, confirm)
				if err != nil {
					return err
				}
				if done.Pending != "" {
					a.say("%s", done.Pending)
				}
				return a.show(view{
					data:  done,
					names: []string{id.String()},
					text:  "group " + id.String() + " deleted\n",
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&force, "force", false, "also without a majority of its voters")
	flags.StringVar(&confirm, "confirm", "", "with --force: the group's incarnation")
	return cmd
}

func deleteGroup(
	ctx context.Context, c *client.Client, id raftyard.GroupID, force bool, confirm string,
) (*client.Deleted, error) {
	switch {
	case !force:
		return c.DeleteGroup(ctx, id)
	case confirm != "":
		return c.ForceDeleteGroup(ctx, id, confirm)
	}
	g, err := c.Group(ctx, id)
	if err != nil {
		return nil, err
	}
	return nil, usageError{fmt.Errorf("a forced deletion of group %s also destroys what its "+
		"members hold that cannot be reached now; confirm it with the group's incarnation: "+
		"--confirm %s", id, g.Incarnation)}
}

func (a *app) groupForgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forget ID",
		Short: "Drop what the cluster remembers of a deleted group",
		Long: `Drop what the cluster remembers of a deleted group: its record in the registry and
the marks on the nodes that held it. They are small, and keep what comes back from a node that
was down for long from being taken for the group. So it is refused while a node cannot be
asked.`,
		Example: "  raftyard group delete 7\n  raftyard group forget 7",
		Args:    wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.ForgetGroup(ctx, id); err != nil {
					return err
				}
				return a.show(view{
					data:  client.Forgotten{Group: id, Forgotten: true},
					names: []string{id.String()},
					text:  "group " + id.String() + " forgotten\n",
				})
			})
		},
	}
}
