package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/client"
)

// completionPatience is how long a shell waits for the ids that a node knows.
const completionPatience = time.Second

// mostCompletions bounds the ids that are offered.
const mostCompletions = 1000

// problemWords are what --problem may be.
func problemWords() []string {
	return []string{
		"any", "no_leader", "no_replica", "seed_lost", "under_replicated", "joint",
		"orphan_learner", "faulty", "damaged", "poison", "lagging", "log_only_leader",
	}
}

// completeWords offers words for a flag.
func completeWords(cmd *cobra.Command, flag string, words []string) {
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeGroup offers the ids of groups as the first argument.
func (a *app) completeGroup(cmd *cobra.Command) *cobra.Command {
	return a.completeFirst(cmd, func(ctx context.Context, c *client.Client) []string {
		page, err := c.Groups(ctx, client.GroupFilter{Limit: mostCompletions})
		if err != nil {
			return nil // a shell has no place for it
		}
		ids := make([]string, len(page.Groups))
		for i := range page.Groups {
			ids[i] = page.Groups[i].ID.String()
		}
		return ids
	})
}

// completeNode offers the ids of nodes as the first argument.
func (a *app) completeNode(cmd *cobra.Command) *cobra.Command {
	return a.completeFirst(cmd, nodeIDsOf)
}

// completeNodeFlag offers the ids of nodes for a flag.
func (a *app) completeNodeFlag(cmd *cobra.Command, flag string) {
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(
		cmd *cobra.Command, _ []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		return a.offer(cmd, nodeIDsOf), cobra.ShellCompDirectiveNoFileComp
	})
}

func nodeIDsOf(ctx context.Context, c *client.Client) []string {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil
	}
	ids := make([]string, len(nodes))
	for i := range nodes {
		ids[i] = nodes[i].ID.String()
	}
	return ids
}

func (a *app) completeFirst(
	cmd *cobra.Command, find func(context.Context, *client.Client) []string,
) *cobra.Command {
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.offer(cmd, find), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// offer asks a node, and offers nothing when that does not work at once.
func (a *app) offer(
	cmd *cobra.Command, find func(context.Context, *client.Client) []string,
) []string {
	c, err := client.New(client.Config{Addrs: a.flags.addr})
	if err != nil {
		return nil
	}
	defer c.Close()
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completionPatience)
	defer cancel()
	return find(ctx, c)
}
