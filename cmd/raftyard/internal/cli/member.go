package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

func (a *app) memberCommand() *cobra.Command {
	attach := a.learnerCommand(&cobra.Command{
		Use:   "attach ID",
		Short: "Have a node follow a group",
		Long: `Have a node follow a group: it is sent the group's state and log, serves reads and
has no vote. Whoever else holds the group stays as it is. The command returns when the node
has caught up (see --timeout), and says meanwhile what the group waits for.`,
		Example: "  raftyard member attach 7 --node 4\n  raftyard kv get 7 key --stale",
	}, "the node that shall follow (needed)", (*client.Client).AttachLearner)
	detach := a.learnerCommand(&cobra.Command{
		Use:   "detach ID",
		Short: "Have a node follow a group no more",
		Long: `Have a node follow a group no more. The command returns when nothing of the group
is left there, and the node must be up for that (see --timeout).`,
		Example: "  raftyard member detach 7 --node 4",
	}, "the node that follows (needed)", (*client.Client).DetachLearner)
	cmd := parent("member", "Change which nodes hold a group",
		a.completeGroup(a.memberSetCommand()), a.completeGroup(attach), a.completeGroup(detach))
	a.flags.add(cmd, a.env)
	return cmd
}

func (a *app) memberSetCommand() *cobra.Command {
	var nodes membersFlags
	var m client.Members
	var wait bool
	cmd := &cobra.Command{
		Use:   "set ID",
		Short: "Say which nodes shall hold a group",
		Long: `Say which nodes shall hold a group. The group gets there by itself: new members are
filled first, then the voters change together, then old members go. With --wait the command
returns when it is there, and says meanwhile what the group waits for. Voters of whom no
majority is alive are refused unless --force is given.`,
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
				g, err := a.setMembers(ctx, c, id, m, wait)
				if err != nil {
					return err
				}
				return a.show(groupView(g))
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&nodes.voters, "voters", "nodes that shall vote, such as 1,2,3 (needed)")
	flags.Var(&nodes.learners, "learners", "nodes that shall only follow")
	flags.Uint64Var(&m.ExpectEpoch, "expect-epoch", 0, "refuse when the group is at another epoch")
	flags.BoolVar(&m.Force, "force", false, "also when no majority of the voters is alive")
	flags.BoolVar(&wait, "wait", false, "return when the group has these members (see --timeout)")
	mustBeGiven(cmd, "voters")
	a.completeNodeFlag(cmd, "voters")
	a.completeNodeFlag(cmd, "learners")
	return cmd
}

// setMembers sets the wanted members. While it waits it says how far the group is.
func (a *app) setMembers(
	ctx context.Context, c *client.Client, id raftyard.GroupID, m client.Members, wait bool,
) (*client.Group, error) {
	if !wait {
		return c.SetMembers(ctx, id, m, 0)
	}
	return a.watching(ctx, c, id, func() (*client.Group, error) {
		// As long as the command has, of which the client leaves what the rest of the
		// request takes.
		return c.SetMembers(ctx, id, m, time.Duration(a.flags.timeout))
	})
}

// watching says what a group waits for as long as change goes on.
func (a *app) watching(
	ctx context.Context, c *client.Client, id raftyard.GroupID,
	change func() (*client.Group, error),
) (*client.Group, error) {
	watched, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.watchMembers(watched, c, id)
	}()
	g, err := change()
	stop()
	<-done
	return g, err
}

// progressEvery is how often a command that waits looks how far it is.
const progressEvery = time.Second

// watchMembers says what a group waits for whenever that changes, until ctx ends.
func (a *app) watchMembers(ctx context.Context, c *client.Client, id raftyard.GroupID) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	said := ""
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		g, err := c.Group(ctx, id)
		if err != nil {
			continue // that the change itself does not go on is for its own answer to say
		}
		if text := progress(g); text != "" && text != said && ctx.Err() == nil {
			a.say("group %s: %s", id, text)
			said = text
		}
	}
}

// progress is what a group waits for on the way to its wanted members.
func progress(g *client.Group) string {
	var parts []string
	if g.Steering != "" {
		parts = append(parts, g.Steering)
	}
	for i := range g.Replicas {
		r := &g.Replicas[i]
		at := slices.IndexFunc(g.Members, func(m client.Member) bool { return m.Node == r.Node })
		switch {
		case at < 0 || g.Members[at].Role != "learner" && g.Members[at].Role != "incoming":
		case r.Error != "":
			parts = append(parts, fmt.Sprintf("node %s: %s", r.Node, reasonOf(r)))
		case r.Lag > 0:
			parts = append(parts, fmt.Sprintf("node %s is %d entries behind", r.Node, r.Lag))
		}
	}
	return strings.Join(parts, "; ")
}

// learnerCommand completes a command that changes whether one node follows a group.
func (a *app) learnerCommand(cmd *cobra.Command, usage string, change func(
	*client.Client, context.Context, raftyard.GroupID, raftyard.NodeID,
) (*client.Group, error),
) *cobra.Command {
	a.onNode(cmd, "node", usage, func(
		ctx context.Context, c *client.Client, id raftyard.GroupID, at raftyard.NodeID,
	) error {
		g, err := a.watching(ctx, c, id, func() (*client.Group, error) {
			return change(c, ctx, id, at)
		})
		if err != nil {
			return err
		}
		return a.show(groupView(g))
	})
	return cmd
}
