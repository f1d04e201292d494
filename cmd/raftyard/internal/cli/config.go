package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/config"
)

// settingFlags adds a flag for every setting of the configuration to cmd.
func settingFlags(cmd *cobra.Command) {
	for _, s := range config.Settings() {
		usage := s.Usage + " ($" + s.Env + ")"
		if s.Default != "" {
			usage += " (default " + s.Default + ")"
		}
		// The default is not the flag's: it must not hide the file's.
		cmd.Flags().String(s.Flag, "", usage)
	}
}

// load merges the file, the environment and the flags of cmd. Warnings go to
// standard error.
func (a *app) load(cmd *cobra.Command, file string) (*config.Loaded, error) {
	return a.loadFrom(cmd, config.Sources{File: file})
}

// loadShared is load for a file that may be the one of all nodes.
func (a *app) loadShared(cmd *cobra.Command, file string) (*config.Loaded, error) {
	return a.loadFrom(cmd, config.Sources{File: file, Shared: true})
}

func (a *app) loadFrom(cmd *cobra.Command, src config.Sources) (*config.Loaded, error) {
	flags := map[string]string{}
	for _, s := range config.Settings() {
		if f := cmd.Flags().Lookup(s.Flag); f != nil && f.Changed {
			flags[s.Flag] = f.Value.String()
		}
	}
	src.LookupEnv, src.Flags = a.env.LookupEnv, flags
	loaded, err := config.Load(src)
	if err != nil {
		return nil, err
	}
	for _, w := range loaded.Warnings {
		a.say("raftyard: %s", w)
	}
	return loaded, nil
}

// settingRows returns the rows of a setting; a list has one for each element.
func settingRows(e config.Effective) [][]string {
	if len(e.Items) == 0 {
		return [][]string{{e.Key, e.Value, e.Origin}}
	}
	rows := make([][]string, len(e.Items))
	for i, item := range e.Items {
		rows[i] = []string{fmt.Sprintf("%s[%d]", e.Key, i), item, e.Origin}
	}
	return rows
}

// goodFor names the nodes that a configuration is good for.
func goodFor(loaded *config.Loaded) string {
	if loaded.Node.ID != 0 {
		return "node " + loaded.Node.ID.String()
	}
	ids := make([]raftyard.NodeID, len(loaded.Nodes))
	for i, p := range loaded.Nodes {
		ids[i] = p.ID
	}
	text := "each of nodes " + join(ids)
	if len(ids) == 1 {
		text = "node " + join(ids)
	}
	if loaded.Node.DataDir != "" {
		return text + " (with --node-id)"
	}
	return text + " (with --node-id and --data-dir)"
}

func (a *app) configCommand() *cobra.Command {
	example := &cobra.Command{
		Use:     "example",
		Short:   "Print a whole configuration with comments",
		Example: "  raftyard config example > node.yaml",
		Args:    wantArgs,
		RunE:    func(*cobra.Command, []string) error { return a.print(config.Example()) },
	}
	check := &cobra.Command{
		Use:   "check FILE",
		Short: "Say everything that is wrong with a configuration",
		Long: `Say everything that is wrong with a configuration, with the environment and the flags
that serve would be given, too. A file without node.id is that of all nodes, and is checked
for each of them. It exits 2 when something is wrong, and writes nothing anywhere.`,
		Example: `  raftyard config check cluster.yaml
  raftyard config check cluster.yaml --node-id 2 --data-dir data/n2`,
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.loadShared(cmd, args[0])
			if err != nil {
				return err
			}
			return a.print(fmt.Sprintf("%s: good for %s of cluster %s\n",
				args[0], goodFor(loaded), loaded.Cluster))
		},
	}
	show := &cobra.Command{
		Use:   "show FILE",
		Short: "Print the settings that count, and where each is from",
		Example: "  raftyard config show node.yaml\n" +
			"  RAFTYARD_LOG_LEVEL=debug raftyard config show node.yaml",
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.loadShared(cmd, args[0])
			if err != nil {
				return err
			}
			v := view{header: []string{"KEY", "VALUE", "ORIGIN"}}
			list := loaded.Effective()
			for _, e := range list {
				v.names = append(v.names, e.Key)
				v.rows = append(v.rows, settingRows(e)...)
			}
			v.data = list
			return a.show(v)
		},
	}
	a.flags.addOutput(show, a.env)
	settingFlags(check)
	settingFlags(show)
	return parent("config", "Write, check and explain a configuration", example, check, show)
}
