package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/inspect"
)

// inspectFlags are those of inspect.
type inspectFlags struct {
	from, to uint64
	limit    int
	keysOnly bool
}

// inspectVerbs are what can be asked of a directory. Those of a group take its id.
func inspectVerbs() []string { return []string{"verify", "groups", "log", "state"} }

func (a *app) inspectCommand() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect DIR verify|groups|log|state [GROUP]",
		Short: "Look into the data directory of a node that does not run",
		Long: `Look into the data directory of a node that does not run. Nothing in it is changed,
and no permission to write is needed; it works after a kill as well. While a node uses
the directory it is refused, and while it goes on no node starts there.

  verify        read everything, and tell what is damaged and what is to be done
  groups        list the replicas and what is left of those that are gone
  log GROUP     show the entries of a group's log
  state GROUP   show the contents of a key-value group, or for group 0 the registry

It exits 1 if what was asked for is damaged.`,
		Example: `  raftyard inspect /var/lib/raftyard verify
  raftyard inspect /var/lib/raftyard groups -o json
  raftyard inspect /var/lib/raftyard log 7 --from 100 --to 120
  raftyard inspect /var/lib/raftyard state 7 --limit 20`,
		Args: inspectArgs,
		RunE: func(_ *cobra.Command, args []string) error { return a.inspect(args, &f) },
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (
			[]string, cobra.ShellCompDirective,
		) {
			switch len(args) {
			case 0:
				return nil, cobra.ShellCompDirectiveFilterDirs
			case 1:
				return inspectVerbs(), cobra.ShellCompDirectiveNoFileComp
			default:
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.from, "from", 0, "log: from this index on")
	flags.Uint64Var(&f.to, "to", 0, "log: up to this index; 0 means the last")
	flags.IntVar(&f.limit, "limit", 100, "log, state: at most so many; 0 means all")
	flags.BoolVar(&f.keysOnly, "keys-only", false, "state: leave the values out")
	a.flags.addOutput(cmd, a.env)
	return cmd
}

// inspectArgs checks the arguments: a directory, what is asked, and for some a group.
func inspectArgs(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return errors.New("DIR is missing: the data directory of a node")
	case len(args) == 1:
		return fmt.Errorf("inspect DIR needs one of: %s", strings.Join(inspectVerbs(), ", "))
	case !slices.Contains(inspectVerbs(), args[1]):
		return fmt.Errorf("inspect DIR has no %q, only: %s",
			args[1], strings.Join(inspectVerbs(), ", "))
	}
	ofGroup := args[1] == "log" || args[1] == "state"
	switch {
	case ofGroup && len(args) == 2:
		return fmt.Errorf("GROUP is missing: %s needs a group's id", args[1])
	case ofGroup && len(args) > 3:
		return fmt.Errorf("%s takes one group, got %q too", args[1], args[3])
	case !ofGroup && len(args) > 2:
		return fmt.Errorf("%s takes no argument, got %q", args[1], args[2])
	}
	return nil
}

// inspect opens a directory and answers.
func (a *app) inspect(args []string, f *inspectFlags) (err error) {
	var g raftyard.GroupID
	if len(args) > 2 {
		if g, err = groupArg(args[2]); err != nil {
			return err
		}
	}
	switch {
	case f.limit < 0:
		return usageError{fmt.Errorf("--limit is %d, want 0 (all) or more", f.limit)}
	case f.to != 0 && f.to < f.from:
		return usageError{fmt.Errorf("--to %d is before --from %d", f.to, f.from)}
	}
	d, err := inspect.Open(args[0])
	switch {
	case errors.Is(err, inspect.ErrNoDirectory):
		return usageError{err}
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	switch args[1] {
	case "verify":
		return a.inspectVerify(d)
	case "groups":
		return a.inspectGroups(d)
	case "log":
		return a.inspectLog(d, g, f)
	default:
		return a.inspectState(d, g, f)
	}
}

// inspectVerify shows one line for each finding.
func (a *app) inspectVerify(d *inspect.Dir) error {
	r, err := d.Verify()
	if err != nil {
		return err
	}
	v := view{data: r, header: []string{"", "WHERE", "GROUP", "WHAT", "WHAT TO DO"}}
	damaged := 0
	for _, f := range r.Findings {
		sort := "note"
		if f.Damage {
			sort = "damage"
			damaged++
		}
		of := "-"
		if f.Group != nil {
			of = f.Group.String()
		}
		v.names = append(v.names, f.Path)
		v.rows = append(v.rows, []string{sort, f.Path, of, f.What, f.Do})
	}
	if len(v.rows) == 0 {
		v.header = nil
	}
	if err := a.show(v); err != nil {
		return err
	}
	read := fmt.Sprintf("%s, %s, %s, %s", count(r.Groups, "replica"),
		count(r.Tombstones, "tombstone"), countWord(r.Entries, "entry", "entries"),
		countWord(r.Items, "item", "items"))
	if damaged > 0 {
		return fmt.Errorf("%s is damaged: %s; read were %s", r.Dir, count(damaged, "finding"), read)
	}
	a.say("%s is sound: node %s, start %d; read were %s", r.Dir, r.Node, r.Boot, read)
	return nil
}

// countWord returns a number of things.
func countWord(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// inspectGroups shows one line for each group.
func (a *app) inspectGroups(d *inspect.Dir) error {
	groups, err := d.Groups()
	if err != nil {
		return err
	}
	v := view{
		data: map[string]any{"groups": groups},
		header: []string{
			"GROUP", "REPLICA", "STATE", "KIND", "TERM", "VOTE", "COMMIT", "LOG", "APPLIED",
			"EPOCH", "MEMBERS", "INCARNATION", "DAMAGE",
		},
	}
	for i := range groups {
		g := &groups[i]
		members := make([]string, len(g.Members))
		for n, m := range g.Members {
			members[n] = fmt.Sprintf("%s@%s", m.Replica, m.Node)
			if m.Role != "voter" {
				members[n] += " " + m.Role
			}
		}
		log := "-"
		if g.State == inspect.Live {
			log = fmt.Sprintf("(%d, %d]", g.Start, g.Last)
		}
		v.names = append(v.names, g.ID.String())
		v.rows = append(v.rows, []string{
			g.ID.String(), g.Replica.String(), g.State, dash(printableWord(g.Kind)),
			dash(strconv.FormatUint(g.Term, 10)), dash(g.Vote.String()),
			dash(strconv.FormatUint(g.Commit, 10)), log,
			dash(strconv.FormatUint(g.Applied, 10)), dash(strconv.FormatUint(g.Epoch, 10)),
			dash(strings.Join(members, ",")), g.Incarnation, dash(g.Damage),
		})
	}
	return a.show(v)
}

// printableWord is printable, but nothing stays nothing.
func printableWord(text string) string {
	if text == "" {
		return ""
	}
	return printable([]byte(text))
}
