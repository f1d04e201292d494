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

const defaultAddr = "http://127.0.0.1:8700"

// clientFlags are the flags of every command that talks to a node.
type clientFlags struct {
	addr    []string
	timeout timeoutFlag
	output  string
	env     error // a variable that cannot be read
}

// add adds the flags to a command; the environment gives the defaults.
func (f *clientFlags) add(cmd *cobra.Command, env Env) {
	addr, timeout := defaultAddr, timeoutFlag(10*time.Second)
	if text, ok := env.LookupEnv("RAFTYARD_ADDR"); ok && text != "" {
		addr = text
	}
	if text, ok := env.LookupEnv("RAFTYARD_TIMEOUT"); ok && text != "" {
		if err := timeout.Set(text); err != nil {
			f.env = fmt.Errorf("RAFTYARD_TIMEOUT is %q, want %w", text, err)
		}
	}
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&f.addr, "addr", strings.Split(addr, ","),
		"nodes to ask, the first that answers ($RAFTYARD_ADDR)")
	f.timeout = timeout
	flags.Var(&f.timeout, "timeout",
		"how long to wait at most, such as 500ms, 5s or 5 ($RAFTYARD_TIMEOUT)")
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
	completeWords(cmd, "output", formats())
}

// check looks at the flags after they were parsed.
func (f *clientFlags) check() error {
	switch {
	case f.env != nil:
		return f.env
	case f.output != "" && !slices.Contains(formats(), f.output):
		return fmt.Errorf("--output is %q, want one of %s", f.output, strings.Join(formats(), ", "))
	}
	return nil
}

// maxTimeout is the longest that a node takes for one request.
const maxTimeout = 5 * time.Minute

// timeoutFlag is a flag that takes a positive duration, or a number of seconds.
type timeoutFlag time.Duration

// String returns the duration.
func (f *timeoutFlag) String() string { return time.Duration(*f).String() }

// Type names the form in the help.
func (f *timeoutFlag) Type() string { return "duration" }

// Set reads the duration.
func (f *timeoutFlag) Set(text string) error {
	got, err := parseSpan(text)
	switch {
	case err != nil:
		return err
	case got <= 0:
		return errors.New("a duration that must be positive")
	case got > maxTimeout:
		return errors.New("a duration of at most 5m")
	}
	*f = timeoutFlag(got)
	return nil
}

// newClient returns a client; what is wrong with its configuration is the flag --addr.
func (a *app) newClient(cfg client.Config) (*client.Client, error) {
	if len(cfg.Addrs) == 0 {
		return nil, usageError{
			errors.New("--addr is empty, want host:port, such as 127.0.0.1:8700"),
		}
	}
	cfg.UserAgent = "raftyard/" + buildVersion().Version
	c, err := client.New(cfg)
	if err != nil {
		return nil, usageError{errors.New("--addr: " +
			strings.ReplaceAll(strings.ReplaceAll(err.Error(), "client: ", ""), "config: ", ""))}
	}
	return c, nil
}

// spanFlag is a flag that takes a duration from 0 on, or a number of seconds.
type spanFlag time.Duration

// String returns the duration.
func (f *spanFlag) String() string { return time.Duration(*f).String() }

// Type names the form in the help.
func (f *spanFlag) Type() string { return "duration" }

// Set reads the duration.
func (f *spanFlag) Set(text string) error {
	got, err := parseSpan(text)
	switch {
	case err != nil:
		return err
	case got < 0:
		return errors.New("a duration that must not be negative")
	}
	*f = spanFlag(got)
	return nil
}

// parseSpan reads a duration, or a number of seconds as the HTTP API does.
func parseSpan(text string) (time.Duration, error) {
	got, err := time.ParseDuration(text)
	if err != nil {
		got, err = time.ParseDuration(text + "s")
	}
	if err != nil {
		return 0, errors.New("a duration such as 500ms, 5s or 1m, or seconds")
	}
	return got, nil
}

// ask calls fn with a client and a context that ends at the timeout.
func (a *app) ask(cmd *cobra.Command, fn func(context.Context, *client.Client) error) error {
	c, err := a.newClient(client.Config{Addrs: a.flags.addr})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(a.flags.timeout))
	defer cancel()
	err = fn(ctx, c)
	if err != nil && errors.Is(context.Cause(cmd.Context()), ErrInterrupted) {
		return interrupted(err)
	}
	return err
}

// interrupted returns what to say of a request that was going on.
func interrupted(err error) error {
	if client.NotApplied(err) {
		return fmt.Errorf("%w: nothing has been changed", ErrInterrupted)
	}
	return fmt.Errorf("%w: it may or may not have happened, read back before trying again",
		ErrInterrupted)
}

// groupArg reads the id of a group.
func groupArg(text string) (raftyard.GroupID, error) {
	id, err := raftyard.ParseGroupID(text)
	if err != nil {
		return 0, usageError{fmt.Errorf("%q: %w", text, err)}
	}
	return id, nil
}

// nodeArg reads the id of a node.
func nodeArg(text string) (raftyard.NodeID, error) {
	id, err := raftyard.ParseNodeID(text)
	if err != nil {
		return 0, usageError{fmt.Errorf("%q: %w", text, err)}
	}
	return id, nil
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
			return fmt.Errorf("node ids such as 1,2,3: %w", err)
		}
		ids = append(ids, id)
	}
	*n = ids
	return nil
}

// membersFlags are those that name the nodes of a group.
type membersFlags struct {
	voters, learners nodeIDs
}

// check refuses a node that is named twice.
func (f *membersFlags) check() error {
	seen := map[raftyard.NodeID]string{}
	for _, list := range []struct {
		flag string
		ids  nodeIDs
	}{{"--voters", f.voters}, {"--learners", f.learners}} {
		for _, id := range list.ids {
			switch before := seen[id]; before {
			case "":
				seen[id] = list.flag
			case list.flag:
				return usageError{fmt.Errorf("%s names node %s twice", list.flag, id)}
			default:
				return usageError{fmt.Errorf("%s and %s both name node %s", before, list.flag, id)}
			}
		}
	}
	return nil
}
