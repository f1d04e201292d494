//go:build unix

package crash

import (
	"bytes"
	"context"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/cluster"
)

const (
	writersPerGroup = 3
	snapshotEntries = 40
	trailingEntries = 8
	// restAfter is how many writes a group takes between two changes of it.
	restAfter = 40
)

// A lie is something that a child does wrong on purpose, so that the parent is
// seen to notice.
type lie string

// The lies.
const (
	lieUnwritten lie = "unwritten" // acknowledges what it has not written
	lieTwice     lie = "twice"     // writes twice what it says once
	lieUndeleted lie = "undeleted" // acknowledges a deletion that it has not made
	lieHalf      lie = "half"      // writes half of a pair
)

// lieEvery is which write is a lie.
const lieEvery = 20

// A workGroup is a group as its writers and its owner see it.
type workGroup struct {
	id   raftyard.GroupID
	kind string

	// busy is held for reading by writers, and for writing to begin the next group
	// of the same id: nothing that was meant for one may come to the next.
	busy    sync.RWMutex
	present bool

	acked atomic.Int64
}

func newWorkGroup(id raftyard.GroupID) *workGroup {
	g := &workGroup{id: id, kind: kindList}
	if id%2 == 0 {
		g.kind = kindKV
	}
	return g
}

func opFor(kind string) string {
	if kind == kindKV {
		return opPut
	}
	return opAppend
}

// fillerOf returns how much is written beside a token.
func fillerOf(token string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(token)) // a hash takes everything
	n := int(h.Sum32())
	if n%50 == 0 {
		return 20_000
	}
	return n % 600
}

func valueOf(token string) []byte {
	return bytes.Repeat([]byte(token[len(token)-1:]), fillerOf(token))
}

// work does everything at once until the process is killed.
func (c *child) work(ctx context.Context) {
	var wg sync.WaitGroup
	for _, g := range c.groups {
		for i := range writersPerGroup {
			wg.Go(func() { c.writer(ctx, g, c.dice(uint64(g.id)<<8+uint64(i))) })
		}
		wg.Go(func() { c.owner(ctx, g, c.dice(uint64(g.id)<<8+100)) })
	}
	if c.network != nil && c.Nodes > 1 && !c.Calm {
		wg.Go(func() { c.cutter(ctx, c.dice(1)) })
	}
	wg.Wait()
}

// try makes one call and says how it ended.
func (c *child) try(op string, g raftyard.GroupID, arg string, call func() error) error {
	number := c.numbers.Add(1)
	c.say(sayTry, number, op, g, arg)
	err := call()
	switch {
	case err == nil:
		c.say(sayOK, number)
	case node.NotApplied(err):
		c.say(sayNo, number)
	default:
		c.say(sayMaybe, number)
	}
	return err
}

// writer writes to a group, one thing after the other.
func (c *child) writer(ctx context.Context, g *workGroup, dice *rand.Rand) {
	var mine []string // keys that can be deleted
	for ctx.Err() == nil {
		g.busy.RLock()
		if !g.present {
			mine = nil
			g.busy.RUnlock()
			cluster.Pause(ctx.Done(), childTick)
			continue
		}
		m := c.members[dice.IntN(len(c.members))]
		call, cancel := context.WithTimeout(ctx, callLimit)
		var err error
		if len(mine) > 0 && dice.IntN(4) == 0 {
			i := dice.IntN(len(mine))
			err = c.deleteOne(call, m, g, mine[i])
			mine = append(mine[:i], mine[i+1:]...)
		} else {
			op := opFor(g.kind)
			if g.kind == kindKV && dice.IntN(4) == 0 {
				op = opPair
			}
			var token string
			token, err = c.writeOne(call, m, g, op)
			if err == nil && op == opPut {
				mine = append(mine, token)
			}
		}
		cancel()
		g.busy.RUnlock()
		if err == nil {
			g.acked.Add(1)
		} else {
			cluster.Pause(ctx.Done(), childTick)
		}
	}
}

// writeOne writes one new token to a group.
func (c *child) writeOne(
	ctx context.Context, m *member, g *workGroup, op string,
) (token string, err error) {
	number := c.numbers.Add(1)
	token = strconv.Itoa(c.Life) + "-" + strconv.FormatUint(number, 10)
	lying := c.ready.Load() && (number%lieEvery == 0 || c.Lie == lieHalf)
	err = c.try(op, g.id, token, func() error {
		if lying {
			return c.lieAbout(ctx, m, g, op, token)
		}
		return c.writeToken(ctx, m, g, op, token)
	})
	return token, err
}

// lieAbout writes a token otherwise than is said.
func (c *child) lieAbout(
	ctx context.Context, m *member, g *workGroup, op, token string,
) error {
	switch {
	case c.Lie == lieUnwritten:
		return nil
	case c.Lie == lieTwice:
		if err := c.writeToken(ctx, m, g, op, token); err != nil {
			return err
		}
	case c.Lie == lieHalf && op == opPair:
		_, _, err := m.kv.Put(ctx, g.id, []byte(token+".a"), valueOf(token), kv.Cond{})
		return err
	}
	return c.writeToken(ctx, m, g, op, token)
}

func (c *child) writeToken(
	ctx context.Context, m *member, g *workGroup, op, token string,
) error {
	var err error
	switch op {
	case opAppend:
		_, err = m.node.Propose(ctx, g.id, listCommand(token, fillerOf(token)))
	case opPut:
		_, _, err = m.kv.Put(ctx, g.id, []byte(token), valueOf(token), kv.Cond{})
	case opPair:
		_, err = m.kv.Txn(ctx, g.id, kv.Txn{Then: []kv.Op{
			{Kind: kv.OpPut, Key: []byte(token + ".a"), Value: valueOf(token)},
			{Kind: kv.OpPut, Key: []byte(token + ".b"), Value: valueOf(token)},
		}})
	}
	return err
}

func (c *child) deleteOne(ctx context.Context, m *member, g *workGroup, token string) error {
	return c.try(opDelete, g.id, token, func() error {
		if c.Lie == lieUndeleted {
			return nil
		}
		_, _, err := m.kv.Delete(ctx, g.id, []byte(token), kv.Cond{})
		return err
	})
}
