//go:build unix

package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
)

// leftoverLimit is how long what is not needed may stay once nothing goes on.
const leftoverLimit = 10 * time.Second

// noLeftovers checks that a node keeps directories for the replicas only that it has,
// and in each no more than one snapshot file.
func (c *child) noLeftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leftoverLimit)
	defer cancel()
	var errs []error
	for _, m := range c.members {
		if err := retry(ctx, func() error { return c.leftovers(ctx, m) }); err != nil {
			errs = append(errs, fmt.Errorf("node %d keeps what nobody needs: %w", m.id, err))
		}
	}
	return errors.Join(errs...)
}

func (c *child) leftovers(ctx context.Context, m *member) error {
	dir := filepath.Join(c.Dir, "n"+m.id.String(), "replicas")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	needed, err := c.replicaDirs(call, m)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		files, err := os.ReadDir(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		if !slices.Contains(needed, e.Name()) || len(files) > 1 {
			errs = append(errs, fmt.Errorf("%s with %v", e.Name(), files))
		}
	}
	return errors.Join(errs...)
}

// replicaDirs returns the names of the directories of the replicas that a node has.
func (c *child) replicaDirs(ctx context.Context, m *member) ([]string, error) {
	var names []string
	ids := []raftyard.GroupID{raftyard.SystemGroup}
	for _, g := range c.groups {
		ids = append(ids, g.id)
	}
	for _, id := range ids {
		st, err := m.node.RaftStatus(ctx, id)
		if errors.Is(err, node.ErrNoReplica) {
			continue
		}
		if err != nil {
			return nil, err
		}
		short, _, _ := strings.Cut(st.Group.Incarnation, "-")
		names = append(names, fmt.Sprintf("%d-%s-%d", id, short, st.Replica))
	}
	return names, nil
}
