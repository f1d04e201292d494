// Package cli is raftyard's command line.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/client"
)

// An Env is what a command sees of the world outside.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(name string) (string, bool)
	// Terminal: somebody looks at Stderr.
	Terminal bool
	// Program is how the command was called, for lines to paste.
	Program string
}

// OS returns the environment of the process.
func OS() Env {
	return Env{
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		LookupEnv: os.LookupEnv,
		Terminal:  isTerminal(os.Stderr),
		Program:   programName(os.Args[0]),
	}
}

// isTerminal reports whether a file is a device that shows characters. So is the null
// device, which shows nothing.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// programName is how to call this program again. The binary of go run is gone
// when it has ended.
func programName(arg string) string {
	if strings.Contains(arg, "go-build") {
		return "go run ./cmd/raftyard"
	}
	return arg
}

// Run runs the command that args are and returns the exit code. The end of ctx
// interrupts it; its cause should be [ErrInterrupted] then.
func Run(ctx context.Context, env Env, args []string) int {
	a := &app{env: env}
	root := a.root() //nolint:contextcheck // cobra hands ctx to what runs
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	a.path = cmd.CommandPath()
	if err != nil && !a.started {
		err = usageError{plainly(err)}
	}
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), ErrInterrupted) {
		err = ErrInterrupted
	}
	if err != nil {
		a.complain(err)
	}
	return exitCode(err)
}

// An app is one run of a command.
type app struct {
	env     Env
	flags   clientFlags
	path    string // of the command, such as raftyard kv put
	started bool   // the arguments were right; what fails now is the command
}

// say writes a message for people, which is not a result.
func (a *app) say(format string, args ...any) {
	// Nobody is left to tell when standard error is closed.
	_, _ = fmt.Fprintf(a.env.Stderr, format+"\n", args...)
}

// complain writes why the command has failed.
func (a *app) complain(err error) {
	if a.flags.output == "json" {
		a.complainJSON(err)
		return
	}
	if bad, ok := errors.AsType[usageError](err); ok {
		a.say("raftyard: %v\nRun '%s' for how it is used.", bad.err, a.path+" --help")
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		a.say("raftyard: %s", line)
	}
	if exitCode(err) == ExitUnknown && !client.IsCode(err, client.CodeNotReached) {
		a.say("raftyard: it may or may not have happened; read back before trying again")
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "raftyard",
		Short: "A storage node that is a member of many raft groups at once",
		Long: `raftyard runs a node of a cluster in which many raft groups live side by side, and
talks to one. Start with a whole cluster in one process:

  raftyard demo`,
		Version: buildVersion().String(),

		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		SilenceErrors:              true,
		Args:                       cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(a.helpCommand(root))
	root.SetIn(a.env.Stdin)
	root.SetOut(a.env.Stdout)
	root.SetErr(a.env.Stderr)
	root.SetHelpCommandGroupID(helpGroup)
	root.SetCompletionCommandGroupID(helpGroup)
	root.AddGroup(
		&cobra.Group{ID: runGroup, Title: "Run:"},
		&cobra.Group{ID: dataGroup, Title: "Store and read:"},
		&cobra.Group{ID: adminGroup, Title: "Administer:"},
		&cobra.Group{ID: helpGroup, Title: "Help:"},
	)
	root.AddCommand(
		inGroup(runGroup, a.demoCommand()),
		inGroup(runGroup, a.serveCommand()),
		inGroup(runGroup, a.configCommand()),
		inGroup(dataGroup, a.kvCommand()),
		inGroup(dataGroup, a.benchCommand()),
		inGroup(adminGroup, a.statusCommand()),
		inGroup(adminGroup, a.groupCommand()),
		inGroup(adminGroup, a.memberCommand()),
		inGroup(adminGroup, a.leaderCommand()),
		inGroup(adminGroup, a.replicaCommand()),
		inGroup(adminGroup, a.snapshotCommand()),
		inGroup(adminGroup, a.nodeCommand()),
		inGroup(adminGroup, a.inspectCommand()),
		inGroup(helpGroup, a.versionCommand()),
		exitCodesTopic(),
	)
	completionCommand(root)
	a.noteStart(root)
	return root
}

// completionCommand adds cobra's own, which shows its help for shells that it does
// not know.
func completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, parent("completion", "").RunE
		for _, shell := range cmd.Commands() {
			shell.Example = "  raftyard completion " + shell.Name() + " > raftyard.completion"
		}
	}
}

// unknownCommand says that there is no such command, and what it may be.
func unknownCommand(root *cobra.Command, name string) error {
	err := fmt.Errorf("there is no command %q", name)
	if near := root.SuggestionsFor(name); len(near) > 0 {
		err = fmt.Errorf("%w, did you mean %s?", err, strings.Join(near, " or "))
	}
	return usageError{err}
}

// helpCommand returns help as a command, which fails for what there is not.
func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND...]",
		Short:   "Say how a command is used",
		Example: "  raftyard help kv put",
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (
			[]string, cobra.ShellCompDirective,
		) {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, child := range cmd.Commands() {
				if child.IsAvailableCommand() || child.IsAdditionalHelpTopicCommand() {
					names = append(names, child.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// noteStart has every command note that it runs: what fails before is the usage.
// Cobra's own hooks come too early, before it has looked for obligatory flags.
func (a *app) noteStart(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		a.noteStart(child)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.flags.check(); err != nil {
			return err
		}
		a.started = true
		return run(cmd, args)
	}
}

// The headings of the list of commands.
const (
	runGroup   = "run"
	dataGroup  = "data"
	adminGroup = "admin"
	helpGroup  = "help"
)

func inGroup(id string, cmd *cobra.Command) *cobra.Command {
	cmd.GroupID = id
	return cmd
}

// parent returns a command that only has others below it.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			for _, child := range cmd.Commands() {
				names = append(names, child.Name())
			}
			want := strings.Join(names, ", ")
			if len(args) == 0 {
				return usageError{fmt.Errorf("%s needs one of: %s", cmd.Name(), want)}
			}
			return usageError{fmt.Errorf("%s has no %q, only: %s", cmd.Name(), args[0], want)}
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  raftyard version\n  raftyard version -o json",
		Args:    wantArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			return a.show(view{
				data:  v,
				names: []string{v.Version},
				text:  v.String() + "\n",
			})
		},
	}
	a.flags.addOutput(cmd, a.env)
	return cmd
}
