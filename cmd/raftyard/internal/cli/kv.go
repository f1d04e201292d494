package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

// maxValueBytes is more than a node takes: it says which limit that is.
const maxValueBytes = 64 << 20

func (a *app) kvCommand() *cobra.Command {
	cmd := parent("kv", "Store and read keys of a group",
		a.completeGroup(a.kvGetCommand()), a.completeGroup(a.kvPutCommand()),
		a.completeGroup(a.kvDeleteCommand()), a.completeGroup(a.kvListCommand()))
	a.flags.add(cmd, a.env)
	return cmd
}

// keyFlags are those of the commands that name a key.
type keyFlags struct {
	base64 bool
}

func (f *keyFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.base64, "base64", false, "KEY is in base64, for keys that are no text")
}

// read returns the group and the key that args name.
func (f *keyFlags) read(args []string) (raftyard.GroupID, []byte, error) {
	id, err := groupArg(args[0])
	if err != nil {
		return 0, nil, err
	}
	key := []byte(args[1])
	if f.base64 {
		if key, err = decodeBase64("KEY", args[1]); err != nil {
			return 0, nil, err
		}
	}
	if len(key) == 0 {
		return 0, nil, usageError{fmt.Errorf("KEY is empty")}
	}
	return id, key, nil
}

// decodeBase64 decodes an argument.
func decodeBase64(name, text string) ([]byte, error) {
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s is %q, want base64 with padding", name, text)}
	}
	return out, nil
}

// name returns a key in the form in which a command takes it.
func (f *keyFlags) name(key []byte) (string, error) {
	if f.base64 {
		return base64.StdEncoding.EncodeToString(key), nil
	}
	if !utf8.Valid(key) || bytes.ContainsFunc(key, unicode.IsControl) {
		return "", fmt.Errorf(
			"key %q is no text in one line: take --base64, which kv get takes too, or -o json", key)
	}
	return string(key), nil
}

// condFlags are those of the commands that can be conditional.
type condFlags struct {
	absent, present bool
	revision        uint64
}

func (f *condFlags) add(cmd *cobra.Command, absent bool) {
	flags := cmd.Flags()
	flags.Uint64Var(&f.revision, "if-revision", 0,
		"only when the key is at this revision; 0: when it does not exist")
	flags.BoolVar(&f.present, "if-exists", false, "only when the key exists")
	if absent {
		flags.BoolVar(&f.absent, "if-absent", false, "only when the key does not exist")
	}
}

// cond returns the condition. As in a transaction, a key that does not exist is at
// revision 0.
func (f *condFlags) cond(cmd *cobra.Command) (client.Cond, error) {
	var given []string
	for _, name := range []string{"if-revision", "if-exists", "if-absent"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return client.Cond{}, usageError{fmt.Errorf("%s do not go together",
			strings.Join(given, " and "))}
	}
	absent := f.absent || cmd.Flags().Changed("if-revision") && f.revision == 0
	return client.Cond{Absent: absent, Present: f.present, Revision: f.revision}, nil
}

func (a *app) kvGetCommand() *cobra.Command {
	var key keyFlags
	var stale bool
	cmd := &cobra.Command{
		Use:   "get GROUP KEY",
		Short: "Write the value of a key to standard output, as it is",
		Example: `  raftyard kv get 1 greeting
  raftyard kv get 1 greeting -o json`,
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, k, err := key.read(args)
			if err != nil {
				return err
			}
			how := client.Linearizable
			if stale {
				how = client.Stale
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				item, err := c.Get(ctx, id, k, how)
				if err != nil {
					return err
				}
				v := view{data: item, text: string(item.Value)}
				if v.names, err = a.keyNames(&key, []client.Item{*item}); err != nil {
					return err
				}
				return a.show(v)
			})
		},
	}
	key.add(cmd)
	cmd.Flags().BoolVar(&stale, "stale", false, "any replica may answer, with what may be old")
	return cmd
}

func (a *app) kvPutCommand() *cobra.Command {
	var key keyFlags
	var cond condFlags
	cmd := &cobra.Command{
		Use:   "put GROUP KEY VALUE|@FILE|-",
		Short: "Store a value under a key",
		Long: `Store a value under a key. @FILE takes the value from a file and - from standard
input, byte for byte.`,
		Example: `  raftyard kv put 1 greeting hello
  raftyard kv put 1 photo @cat.jpg
  date | raftyard kv put 1 now -
  raftyard kv put 1 greeting 'good morning' --if-revision 7`,
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, k, err := key.read(args)
			if err != nil {
				return err
			}
			when, err := cond.cond(cmd)
			if err != nil {
				return err
			}
			value, err := a.value(args[2])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := c.Put(ctx, id, k, value, when)
				if err != nil {
					return err
				}
				return a.show(view{
					data:  done,
					names: []string{strconv.FormatUint(done.Revision, 10)},
					text:  fmt.Sprintf("revision %d\n", done.Revision),
				})
			})
		},
	}
	key.add(cmd)
	cond.add(cmd, true)
	return cmd
}

// value returns the value that an argument is or names.
func (a *app) value(arg string) (value []byte, err error) {
	var from io.Reader
	name, isFile := strings.CutPrefix(arg, "@")
	switch {
	case arg == "-":
		from = a.env.Stdin
	case isFile:
		file, failed := os.Open(name)
		if failed != nil {
			return nil, unreadable(name, failed)
		}
		// Nothing was written to it, so that closing it loses nothing.
		defer file.Close()
		from = file
	default:
		return []byte(arg), nil
	}
	value, err = io.ReadAll(io.LimitReader(from, maxValueBytes+1))
	switch {
	case err != nil && isFile:
		return nil, unreadable(name, err)
	case err != nil:
		return nil, fmt.Errorf("read the value: %w", err)
	case len(value) > maxValueBytes:
		return nil, fmt.Errorf("the value is over %d bytes", maxValueBytes)
	}
	return value, nil
}

// unreadable says why a file that an argument names cannot be read.
func unreadable(name string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return usageError{fmt.Errorf("%s cannot be read: %w", name, err)}
}

func (a *app) kvDeleteCommand() *cobra.Command {
	var key keyFlags
	var cond condFlags
	cmd := &cobra.Command{
		Use:     "delete GROUP KEY",
		Short:   "Delete a key",
		Long:    "Delete a key. One that does not exist is no error, unless --if-exists is given.",
		Example: "  raftyard kv delete 1 greeting",
		Args:    wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, k, err := key.read(args)
			if err != nil {
				return err
			}
			when, err := cond.cond(cmd)
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := c.Delete(ctx, id, k, when)
				if err != nil {
					return err
				}
				text := "there was no such key\n"
				if done.Deleted {
					text = "deleted\n"
				}
				return a.show(view{
					data: done, names: []string{strconv.FormatUint(done.Revision, 10)}, text: text,
				})
			})
		},
	}
	key.add(cmd)
	cond.add(cmd, false)
	return cmd
}
