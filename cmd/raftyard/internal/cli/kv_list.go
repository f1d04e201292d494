package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
)

func (a *app) kvListCommand() *cobra.Command {
	var req client.ListRequest
	var key keyFlags
	var stale bool
	cmd := &cobra.Command{
		Use:   "list GROUP [PREFIX]",
		Short: "List keys in the order of their bytes",
		Example: `  raftyard kv list 1
  raftyard kv list 1 user/ --limit 20
  raftyard kv list 1 user/ --keys-only -o name
  raftyard kv list 1 user/ --limit 20 --cursor dXNlci8xMDA`,
		Args: wantArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := groupArg(args[0])
			if err != nil {
				return err
			}
			if len(args) > 1 {
				req.Prefix = []byte(args[1])
			}
			if key.base64 && len(args) > 1 {
				if req.Prefix, err = decodeBase64("PREFIX", args[1]); err != nil {
					return err
				}
			}
			if req.Limit < 0 {
				return usageError{fmt.Errorf("--limit is %d, want 0 (all) or more", req.Limit)}
			}
			if stale {
				req.Consistency = client.Stale
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				return a.listKeys(ctx, c, id, req, &key)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&key.base64, "base64", false,
		"PREFIX is in base64, and so are the keys that are printed, but for -o json and yaml")
	flags.IntVar(&req.Limit, "limit", 100, "at most so many keys; 0 means all")
	flags.StringVar(&req.Cursor, "cursor", "",
		"go on where an earlier list ended, with what it has printed")
	flags.BoolVar(&req.KeysOnly, "keys-only", false, "leave the values out")
	flags.BoolVar(&stale, "stale", false, "any replica may answer, with what may be old")
	return cmd
}

// listKeys shows as many pages as the limit takes, as one.
func (a *app) listKeys(
	ctx context.Context, c *client.Client, id raftyard.GroupID, req client.ListRequest,
	key *keyFlags,
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
	v := itemsView(all, req.KeysOnly, key)
	var err error
	if v.names, err = a.keyNames(key, all.Items); err != nil {
		return err
	}
	if err := a.show(v); err != nil {
		return err
	}
	if all.NextCursor != "" {
		a.say("there are more: --cursor %s", all.NextCursor)
	}
	return nil
}

// keyNames returns the keys of items for -o name, and nothing for another form.
func (a *app) keyNames(key *keyFlags, items []client.Item) ([]string, error) {
	if a.flags.output != "name" {
		return nil, nil
	}
	names := make([]string, len(items))
	for i := range items {
		var err error
		if names[i], err = key.name(items[i].Key); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func itemsView(all client.Items, keysOnly bool, key *keyFlags) view {
	v := view{data: all, header: []string{"KEY", "REVISION"}}
	if !keysOnly {
		v.header = append(v.header, "VALUE")
	}
	for i := range all.Items {
		it := &all.Items[i]
		shown := printable(it.Key)
		if key.base64 {
			shown = base64.StdEncoding.EncodeToString(it.Key)
		}
		row := []string{shown, strconv.FormatUint(it.Revision, 10)}
		if !keysOnly {
			row = append(row, excerpt(it.Value))
		}
		v.rows = append(v.rows, row)
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
