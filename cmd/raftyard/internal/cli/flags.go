package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

const defaultAddr = "http://127.0.0.1:8700"

// clientFlags are the flags of every command that talks to a node.
type clientFlags struct {
	addr    []string
	timeout time.Duration
	output  string
	env     error // a variable that cannot be read
}

// add adds the flags to a command; the environment gives the defaults.
func (f *clientFlags) add(cmd *cobra.Command, env Env) {
	addr, timeout := defaultAddr, 10*time.Second
	if text, ok := env.LookupEnv("RAFTYARD_ADDR"); ok && text != "" {
		addr = text
	}
	if text, ok := env.LookupEnv("RAFTYARD_TIMEOUT"); ok && text != "" {
		var err error
		if timeout, err = time.ParseDuration(text); err != nil {
			f.env = fmt.Errorf("RAFTYARD_TIMEOUT is %q, want a duration such as 5s", text)
		}
	}
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&f.addr, "addr", strings.Split(addr, ","),
		"nodes to ask, the first that answers ($RAFTYARD_ADDR)")
	flags.DurationVar(&f.timeout, "timeout", timeout,
		"how long to wait at most ($RAFTYARD_TIMEOUT)")
	f.addOutput(cmd, env)
}

// addOutput adds -o alone.
func (f *clientFlags) addOutput(cmd *cobra.Command, env Env) {
	output := "table"
	if text, ok := env.LookupEnv("RAFTYARD_OUTPUT"); ok && text != "" {
		output = text
	}
	cmd.PersistentFlags().StringVarP(&f.output, "output", "o", output,
		strings.Join(formats(), ", ")+" ($RAFTYARD_OUTPUT)")
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp))
}

// check looks at the flags after they were parsed.
func (f *clientFlags) check() error {
	switch {
	case f.env != nil:
		return f.env
	case f.output != "" && !slices.Contains(formats(), f.output):
		return fmt.Errorf("--output is %q, want one of %s", f.output, strings.Join(formats(), ", "))
	case f.timeout < 0:
		return fmt.Errorf("--timeout is %v, want more than 0", f.timeout)
	}
	return nil
}

// ask calls fn with a client and a context that ends at the timeout.
func (a *app) ask(cmd *cobra.Command, fn func(context.Context, *client.Client) error) error {
	c, err := client.New(client.Config{
		Addrs: a.flags.addr, UserAgent: "raftyard/" + buildVersion().Version,
	})
	if err != nil {
		return usageError{errors.New(strings.ReplaceAll(err.Error(), "client: ", ""))}
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), a.flags.timeout)
	defer cancel()
	return fn(ctx, c)
}

// groupArg reads the id of a group.
func groupArg(text string) (raftyard.GroupID, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, usageError{fmt.Errorf("%q is no group id, want a number", text)}
	}
	return raftyard.GroupID(id), nil
}

// nodeArg reads the id of a node.
func nodeArg(text string) (raftyard.NodeID, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, usageError{fmt.Errorf("%q is no node id, want a number from 1 on", text)}
	}
	return raftyard.NodeID(id), nil
}

// nodeIDs is a flag that takes ids of nodes, such as 1,2,3.
type nodeIDs []raftyard.NodeID

// String returns the ids as they are written.
func (n *nodeIDs) String() string { return join(*n) }

// Type names the form in the help.
func (n *nodeIDs) Type() string { return "ids" }

// Set reads the ids.
func (n *nodeIDs) Set(text string) error {
	var ids nodeIDs
	for part := range strings.SplitSeq(text, ",") {
		id, err := nodeArg(strings.TrimSpace(part))
		if err != nil {
			return errors.New("want node ids such as 1,2,3")
		}
		ids = append(ids, id)
	}
	*n = ids
	return nil
}
