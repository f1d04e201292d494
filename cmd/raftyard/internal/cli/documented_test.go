package cli

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/raftyard/raftyard/internal/config"
)

// page reads a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// everyCommand returns the commands that do something, by their path without the program's name.
func everyCommand() map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			add(child)
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "raftyard ")
		first, _, _ := strings.Cut(path, " ")
		if !cmd.HasSubCommands() && cmd.Runnable() && first != "help" && first != "completion" {
			all[path] = cmd
		}
	}
	a := &app{env: Env{LookupEnv: func(string) (string, bool) { return "", false }}}
	add(a.root())
	return all
}

// flagsOf returns the flags of all commands, each with one that has it. Those of settings are
// the business of docs/configuration.md.
func flagsOf(commands map[string]*cobra.Command) map[string]string {
	settings := map[string]bool{}
	for _, s := range config.Settings() {
		settings[s.Flag] = true
	}
	flags := map[string]string{}
	for path, cmd := range commands {
		loads := path == "serve" || path == "config check" || path == "config show"
		note := func(f *pflag.Flag) {
			if !loads || !settings[f.Name] {
				flags[f.Name] = path
			}
		}
		cmd.Flags().VisitAll(note)
		cmd.InheritedFlags().VisitAll(note)
	}
	return flags
}

// TestDocumented: docs/cli.md has every command and every flag, and no other.
func TestDocumented(t *testing.T) {
	text := page(t, "cli.md")
	commands := everyCommand()
	listed := map[string]bool{}
	first := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	for _, cell := range first.FindAllStringSubmatch(text, -1) {
		for _, line := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell[1], -1) {
			listed[commandIn(line[1])] = true
		}
	}
	for path := range commands {
		if !listed[path] {
			t.Errorf("docs/cli.md does not list the command %q", path)
		}
	}
	for path := range listed {
		if path != "" && commands[path] == nil {
			t.Errorf("docs/cli.md lists the command %q, which is not there", path)
		}
	}
	flags := flagsOf(commands)
	written := map[string]bool{}
	for _, flag := range regexp.MustCompile("--([a-z][a-z0-9-]*)").FindAllStringSubmatch(text, -1) {
		written[flag[1]] = true
		if flags[flag[1]] == "" && flag[1] != "help" {
			t.Errorf("docs/cli.md has the flag --%s, which no command has", flag[1])
		}
	}
	for flag, path := range flags {
		if !written[flag] {
			t.Errorf("docs/cli.md does not have the flag --%s of %s", flag, path)
		}
	}
}

// commandIn returns the words with which a line of the list begins that name a command. What
// inspect is to do comes behind its directory.
func commandIn(line string) string {
	var words []string
	for word := range strings.FieldsSeq(line) {
		if !regexp.MustCompile("^[a-z]+$").MatchString(word) {
			break
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestExitCodesDocumented: the help, docs/cli.md and the constants have the same exit codes,
// with the same words.
func TestExitCodesDocumented(t *testing.T) {
	help := exitCodesIn(exitCodesTopic().Long, `(?m)^ +(\d+)  (.*(?:\n {7}\S.*)*)$`)
	docs := exitCodesIn(page(t, "cli.md"), `(?m)^\| (\d+) \| (.*) \|$`)
	if !slices.Equal(help, docs) {
		t.Errorf("exit codes in the help:\n%s\nin docs/cli.md:\n%s",
			strings.Join(help, "\n"), strings.Join(docs, "\n"))
	}
	codes := []int{
		ExitOK, ExitFailed, ExitUsage, ExitUnreachable, ExitUnknown, ExitDiskFailed,
		ExitInterrupted,
	}
	if len(help) != len(codes) {
		t.Fatalf("%d exit codes in the help, want %d", len(help), len(codes))
	}
	for i, code := range codes {
		if !strings.HasPrefix(help[i], fmt.Sprintf("%d ", code)) {
			t.Errorf("the help has %q, want %d", help[i], code)
		}
	}
}

// exitCodesIn returns the codes and their meaning, in one line each without marks.
func exitCodesIn(text, pattern string) []string {
	var lines []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		words := strings.Join(strings.Fields(m[2]), " ")
		lines = append(lines, m[1]+" "+strings.ReplaceAll(words, "`", ""))
	}
	return lines
}
