package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

// maxValueBytes is more than a node takes: it says which limit that is.
const maxValueBytes = 64 << 20

func (a *app) kvCommand() *cobra.Command {
	cmd := parent("kv", "Store and read keys of a group",
		a.kvGetCommand(), a.kvPutCommand(), a.kvDeleteCommand(), a.kvListCommand())
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
		if key, err = base64.StdEncoding.DecodeString(args[1]); err != nil {
			return 0, nil, usageError{fmt.Errorf("KEY is not base64: %w", err)}
		}
	}
	if len(key) == 0 {
		return 0, nil, usageError{fmt.Errorf("KEY is empty")}
	}
	return id, key, nil
}

// condFlags are those of the commands that can be conditional.
type condFlags struct {
	absent, present bool
	revision        uint64
}

func (f *condFlags) add(cmd *cobra.Command, absent bool) {
	flags := cmd.Flags()
	flags.Uint64Var(&f.revision, "if-revision", 0, "only when the key is at this revision")
	flags.BoolVar(&f.present, "if-exists", false, "only when the key exists")
	names := []string{"if-revision", "if-exists"}
	if absent {
		flags.BoolVar(&f.absent, "if-absent", false, "only when the key does not exist")
		names = append(names, "if-absent")
	}
	cmd.MarkFlagsMutuallyExclusive(names...)
}

func (f *condFlags) cond() client.Cond {
	return client.Cond{Absent: f.absent, Present: f.present, Revision: f.revision}
}

func (a *app) kvGetCommand() *cobra.Command {
	var key keyFlags
	var stale bool
	cmd := &cobra.Command{
		Use:   "get GROUP KEY",
		Short: "Write the value of a key to standard output, as it is",
		Example: `  raftyard kv get 1 greeting
  raftyard kv get 1 greeting -o json`,
		Args: cobra.ExactArgs(2),
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
				return a.show(view{
					data: item, names: []string{string(item.Key)}, text: string(item.Value),
				})
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
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, k, err := key.read(args)
			if err != nil {
				return err
			}
			value, err := a.value(args[2])
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := c.Put(ctx, id, k, value, cond.cond())
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
	switch name, isFile := strings.CutPrefix(arg, "@"); {
	case arg == "-":
		from = a.env.Stdin
	case isFile:
		file, failed := os.Open(name)
		if failed != nil {
			return nil, usageError{failed}
		}
		// Nothing was written to it, so that closing it loses nothing.
		defer file.Close()
		from = file
	default:
		return []byte(arg), nil
	}
	value, err = io.ReadAll(io.LimitReader(from, maxValueBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the value: %w", err)
	case len(value) > maxValueBytes:
		return nil, fmt.Errorf("the value is over %d bytes", maxValueBytes)
	}
	return value, nil
}

func (a *app) kvDeleteCommand() *cobra.Command {
	var key keyFlags
	var cond condFlags
	cmd := &cobra.Command{
		Use:     "delete GROUP KEY",
		Short:   "Delete a key",
		Long:    "Delete a key. One that does not exist is no error, unless --if-exists is given.",
		Example: "  raftyard kv delete 1 greeting",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, k, err := key.read(args)
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := c.Delete(ctx, id, k, cond.cond())
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

func (a *app) kvListCommand() *cobra.Command {
	var req client.ListRequest
	var stale bool
	cmd := &cobra.Command{
		Use:   "list GROUP [PREFIX]",
		Short: "List keys in the order of their bytes",
		Example: `  raftyard kv list 1
  raftyard kv list 1 user/ --limit 20
  raftyard kv list 1 user/ --keys-only -o name`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			if len(args) > 1 {
				req.Prefix = []byte(args[1])
			}
			if req.Limit < 0 {
				return usageError{fmt.Errorf("--limit is %d, want 0 (all) or more", req.Limit)}
			}
			if stale {
				req.Consistency = client.Stale
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				return a.listKeys(ctx, c, id, req)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&req.Limit, "limit", 100, "at most so many keys; 0 means all")
	flags.StringVar(&req.Cursor, "cursor", "", "go on after an earlier page")
	flags.BoolVar(&req.KeysOnly, "keys-only", false, "leave the values out")
	flags.BoolVar(&stale, "stale", false, "any replica may answer, with what may be old")
	return cmd
}

// listKeys shows as many pages as the limit takes, as one.
func (a *app) listKeys(
	ctx context.Context, c *client.Client, id raftyard.GroupID, req client.ListRequest,
) error {
	const page = 1000
	limit := req.Limit
	all := client.Items{Items: []client.Item{}}
	for {
		req.Limit = page
		if limit > 0 {
			req.Limit = min(page, limit-len(all.Items))
		}
		got, err := c.List(ctx, id, req)
		if err != nil {
			return err
		}
		all.Items = append(all.Items, got.Items...)
		all.Revision, all.NextCursor = got.Revision, got.NextCursor
		if got.NextCursor == "" || limit > 0 && len(all.Items) >= limit {
			break
		}
		req.Cursor = got.NextCursor
	}
	if err := a.show(itemsView(all, req.KeysOnly)); err != nil {
		return err
	}
	if all.NextCursor != "" {
		a.say("there are more: --cursor %s", all.NextCursor)
	}
	return nil
}

func itemsView(all client.Items, keysOnly bool) view {
	v := view{data: all, header: []string{"KEY", "REVISION"}}
	if !keysOnly {
		v.header = append(v.header, "VALUE")
	}
	for i := range all.Items {
		it := &all.Items[i]
		row := []string{printable(it.Key), strconv.FormatUint(it.Revision, 10)}
		if !keysOnly {
			row = append(row, excerpt(it.Value))
		}
		v.rows = append(v.rows, row)
		v.names = append(v.names, printable(it.Key))
	}
	return v
}

// excerpt returns the beginning of a value, for a table.
func excerpt(value []byte) string {
	const most = 60
	if len(value) <= most {
		return printable(value)
	}
	return fmt.Sprintf("%s... (%d bytes)", printable(bytes.Clone(value[:most])), len(value))
}
