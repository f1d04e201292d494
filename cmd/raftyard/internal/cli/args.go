package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// wantArgs accepts the arguments that a command's use line names; those in
// brackets may be missing.
func wantArgs(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	least := len(names)
	for least > 0 && strings.HasPrefix(names[least-1], "[") {
		least--
	}
	switch {
	case len(args) < least:
		return fmt.Errorf("%s missing: %s takes %s", isOrAre(names[len(args):least]),
			cmd.Name(), strings.Join(names, " "))
	case len(args) > len(names) && len(names) == 0:
		return fmt.Errorf("%s takes no argument, got %q", cmd.Name(), args[0])
	case len(args) > len(names):
		return fmt.Errorf("%q is one argument too many: %s takes %s",
			args[len(names)], cmd.Name(), strings.Join(names, " "))
	}
	return nil
}

// isOrAre names what is missing, with its verb.
func isOrAre(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last] + " are"
}

// serveArgs is wantArgs with a hint for the argument that people try.
func serveArgs(cmd *cobra.Command, args []string) error {
	err := wantArgs(cmd, args)
	if err != nil {
		return fmt.Errorf("%w: did you mean --config %s?", err, args[0])
	}
	return nil
}

// flagError says in words what is wrong with a flag.
func flagError(_ *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s is %q, want %s",
			bad.GetFlag().Name, bad.GetValue(), wanted(bad))
	}
	if none, ok := errors.AsType[*pflag.NotExistError](err); ok &&
		none.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("%w (an argument that begins with - needs -- before it)", err)
	}
	return err
}

// plainly returns what cobra says of flags that are missing in our words.
func plainly(err error) error {
	rest, ok := strings.CutPrefix(err.Error(), "required flag(s) ")
	if !ok {
		return err
	}
	rest = strings.TrimSuffix(rest, " not set")
	names := strings.Split(strings.ReplaceAll(rest, `"`, ""), ", ")
	for i := range names {
		names[i] = "--" + names[i]
	}
	return fmt.Errorf("%s missing", isOrAre(names))
}

// wanted returns what a flag takes. Flags of our own say so in their errors.
func wanted(bad *pflag.InvalidValueError) string {
	switch kind := bad.GetFlag().Value.Type(); kind {
	case "int", "uint64":
		return "a whole number"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "stringToString":
		return "name=value, such as zone=a,rack=7"
	default:
		return bad.Unwrap().Error()
	}
}
