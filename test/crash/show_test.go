//go:build unix

package crash

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// show tells the parent what there is of each group, read so that nothing which
// was acknowledged before may lack, and makes sure that each group takes writes.
func (c *child) show(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, showLimit)
	defer cancel()
	exist, err := c.existing(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(c.groups))
	var wg sync.WaitGroup
	for i, g := range c.groups {
		sum, ok := exist[g.id]
		if !ok {
			c.write(line(sayState, g.id, "absent", "-") + line(sayEnd, g.id))
			continue
		}
		g.present = true
		wg.Go(func() { errs[i] = c.showGroup(ctx, g, sum) })
	}
	wg.Wait()
	for i, g := range c.groups {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%w\n%s", errs[i], c.describe(g.id))
		}
	}
	return errors.Join(errs...)
}

// describe tells people what each node knows of a group that does not work.
func (c *child) describe(g raftyard.GroupID) string {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	var text strings.Builder
	for _, m := range c.members {
		st, err := m.node.RaftStatus(ctx, g)
		fmt.Fprintf(&text, "node %d: %+v (error: %v)\n", m.id, st, err)
	}
	return text.String()
}

// follow waits until the replicas that this child's nodes are to have know
// everything that was acknowledged before, whatever else happens to their groups.
func (c *child) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, showLimit)
	defer cancel()
	for _, m := range c.members {
		done := make(map[raftyard.GroupID]bool)
		err := retry(ctx, func() error {
			groups, _, err := m.node.Groups(ctx, node.GroupFilter{})
			for i := range groups {
				g := &groups[i]
				if !done[g.ID] && slices.Contains(g.Voters, m.id) {
					err = errors.Join(err, caughtUp(ctx, m, g.ID))
					done[g.ID] = err == nil
				}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("node %d does not catch up: %w", m.id, err)
		}
	}
	return nil
}

// caughtUp reads the group's state on the node, with all that was acknowledged.
func caughtUp(ctx context.Context, m *member, g raftyard.GroupID) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit/4)
	defer cancel()
	return node.View(ctx, m.node, g, node.Linearizable, func(group.StateMachine) error {
		return nil
	})
}

// existing returns the groups that the registry has; all nodes must agree.
func (c *child) existing(ctx context.Context) (map[raftyard.GroupID]node.GroupSummary, error) {
	var exist map[raftyard.GroupID]node.GroupSummary
	for _, m := range c.members {
		var groups []node.GroupSummary
		err := retry(ctx, func() (err error) {
			groups, _, err = m.node.Groups(ctx, node.GroupFilter{})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("node %d: which groups are there: %w", m.id, err)
		}
		mine := make(map[raftyard.GroupID]node.GroupSummary, len(groups))
		for i := range groups {
			mine[groups[i].ID] = groups[i]
			if exist != nil && exist[groups[i].ID].Incarnation != groups[i].Incarnation {
				return nil, fmt.Errorf("node %d knows a group %d that node 1 does not know",
					m.id, groups[i].ID)
			}
		}
		if exist != nil && len(mine) != len(exist) {
			return nil, fmt.Errorf("node 1 knows %d groups, node %d knows %d",
				len(exist), m.id, len(mine))
		}
		exist = mine
	}
	return exist, nil
}

// showGroup reads a group through some node, compares its replicas, and writes.
func (c *child) showGroup(ctx context.Context, g *workGroup, sum node.GroupSummary) error {
	reader := c.members[(int(g.id)+c.Life)%len(c.members)]
	var items string
	err := retry(ctx, func() (err error) {
		if g.kind == kindKV {
			items, err = showKV(ctx, g.id, reader)
		} else {
			items, err = showList(ctx, g.id, reader)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("group %d with voters %s: read through node %d: %w",
			g.id, votersText(sum.Voters), reader.id, err)
	}
	text := line(sayState, g.id, "present", votersText(sum.Voters)) + items
	for _, m := range c.members {
		var h string
		if h, err = hashOn(ctx, g.id, m); err != nil {
			return fmt.Errorf("group %d: hash on node %d: %w", g.id, m.id, err)
		}
		if h != "" {
			text += line(sayHash, g.id, m.id, h)
		}
	}
	c.write(text + line(sayEnd, g.id))
	err = retry(ctx, func() error {
		call, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		_, werr := c.writeOne(call, reader, g, opFor(g.kind))
		return werr
	})
	if err != nil {
		return fmt.Errorf("group %d takes no writes through node %d: %w", g.id, reader.id, err)
	}
	return nil
}

// retry calls fn until it succeeds, or ctx ends.
func retry(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func showList(ctx context.Context, g raftyard.GroupID, m *member) (string, error) {
	b, err := m.node.Query(ctx, g, group.Linearizable, nil)
	if err != nil {
		return "", err
	}
	commands, err := decodeList(b)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, c := range commands {
		token := wire.NewReader(c).String()
		if !bytes.Equal(c, listCommand(token, fillerOf(token))) {
			return "", fmt.Errorf("%s holds something else than was written: %.100q", token, c)
		}
		text.WriteString(line(sayItem, g, token, "-", 1))
	}
	return text.String(), nil
}

func showKV(ctx context.Context, g raftyard.GroupID, m *member) (string, error) {
	var text strings.Builder
	var q kv.ListRequest
	for {
		res, err := m.kv.List(ctx, g, q)
		if err != nil {
			return "", err
		}
		for _, it := range res.Items {
			token, part, ok := strings.Cut(string(it.Key), ".")
			if !ok {
				part = "-"
			}
			if !bytes.Equal(it.Data, valueOf(token)) {
				return "", fmt.Errorf("%s holds something else than was written: %.100q",
					it.Key, it.Data)
			}
			times := 1
			if it.Revision != it.CreateRevision {
				times = 2 // each key is written once
			}
			text.WriteString(line(sayItem, g, token, part, times))
		}
		if res.Next == nil {
			return text.String(), nil
		}
		q.Start = res.Next
	}
}

// hashOn returns the hash of a group's content on a node, once that has applied
// everything; empty if the node has no replica.
func hashOn(ctx context.Context, g raftyard.GroupID, m *member) (string, error) {
	var h node.HashInfo
	err := retry(ctx, func() error {
		err := node.View(ctx, m.node, g, node.Linearizable, func(group.StateMachine) error {
			return nil
		})
		if err == nil {
			h, err = m.node.Hash(ctx, g, 0)
		}
		if errors.Is(err, node.ErrNoReplica) {
			h, err = node.HashInfo{}, nil
		}
		return err
	})
	if err != nil {
		return "", err
	}
	sum, err := hex.DecodeString(h.Hash)
	if err != nil || len(sum) == 0 {
		return "", err
	}
	return h.Hash, nil
}
