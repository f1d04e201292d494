package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/linear"
	"github.com/raftyard/raftyard/test/sim/internal/check"
	"github.com/raftyard/raftyard/test/sim/internal/machine"
)

// useRegisters is the default workload: reads and writes of a few keys, whose history
// is checked at the end.
func useRegisters(c *Client) {
	think := c.w.setup.chaos / time.Duration(c.w.setup.ops+1)
	for i := 0; i < c.w.setup.ops && c.Running(); {
		c.Sleep(time.Duration(c.dice.Int64N(int64(2*think) + 1)))
		groups := c.usable()
		if len(groups) == 0 {
			continue
		}
		i++
		g := groups[c.dice.IntN(len(groups))]
		c.one(g, c.op(g, i))
	}
}

// usable are the groups that can be asked now.
func (c *Client) usable() (out []*groupInfo) {
	for _, g := range c.w.groups {
		if g.created && !g.dying {
			out = append(out, g)
		}
	}
	return out
}

// op makes up what to ask. No two values are the same.
func (c *Client) op(g *groupInfo, i int) linear.Op {
	op := linear.Op{
		Key:   fmt.Sprintf("g%d.%d/%d", g.id, g.generation, c.dice.IntN(3)),
		Value: fmt.Sprintf("%d.%d", c.id, i),
	}
	switch c.dice.IntN(10) {
	case 0, 1, 2, 3:
		op.Kind, op.Value = linear.Get, ""
	case 4, 5, 6:
		op.Kind = linear.Put
	case 7:
		op.Kind = linear.Append
	case 8:
		op.Kind, op.Old = linear.Swap, g.last[op.Key]
		if op.Old == "" {
			op.Kind = linear.Create
		}
	default:
		op.Kind, op.Value = linear.Delete, ""
	}
	return op
}

// one does one operation and writes down what came of it.
func (c *Client) one(g *groupInfo, op linear.Op) {
	w := c.w
	generation := g.generation
	late := g.forced && w.lingers(g) // whoever was not told may answer
	pending := w.history.Begin(c.id, op, int64(w.turns.Time()))
	var res linear.Result
	var raw group.Result
	var err error
	if op.Kind == linear.Get && c.dice.IntN(4) > 0 {
		raw.Data, err = c.ask(g.id, machine.Encode(op))
	} else {
		raw, err = c.Propose(g.id, machine.Encode(op))
	}
	if err == nil {
		if res, err = machine.Decode(raw.Data); err != nil {
			c.w.fail("answers", fmt.Errorf("group %d: %+v was answered by %q: %w",
				g.id, op, raw.Data, err))
		}
	}
	over := late || g.dying || g.generation != generation
	switch {
	case err == nil && over && op.Kind == linear.Get:
		pending.Refused()
	case err == nil && over:
		pending.Unknown() // what it did may be gone already
	case err == nil:
		w.counts.Acked++
		pending.Done(int64(w.turns.Time()), res)
		c.noteAck(g, op, raw, res)
	case node.NotApplied(err) || op.Kind == linear.Get:
		w.counts.Refused++
		pending.Refused()
	default:
		w.counts.Unknown++
		pending.Unknown()
	}
	w.judge()
}

// noteAck remembers what was acknowledged.
func (c *Client) noteAck(g *groupInfo, op linear.Op, raw group.Result, res linear.Result) {
	switch {
	case op.Kind == linear.Get:
		if res.Found {
			g.last[op.Key] = res.Value
		}
		return
	case op.Kind == linear.Put, res.OK && op.Kind != linear.Delete:
		g.last[op.Key] = op.Value
	}
	c.w.check.Acked(check.Write{
		Group: g.id, Incarnation: g.incarnation, Index: raw.Index,
		Data: machine.Encode(op), Result: raw.Data,
	})
}

var errNoQuery = errors.New("the state machine takes no queries")

// ask reads linearizably: through the node, or its own replica if it has one.
func (c *Client) ask(g raftyard.GroupID, question []byte) (answer []byte, err error) {
	if c.dice.IntN(3) > 0 {
		return c.Query(g, node.Linearizable, question)
	}
	err = c.Do("view", func(ctx context.Context, n *node.Node) error {
		return node.View(ctx, n, g, node.Linearizable, func(sm group.StateMachine) (err error) {
			q, ok := sm.(group.Querier)
			if !ok {
				return errNoQuery
			}
			answer, err = q.Query(question)
			return err
		})
	})
	return answer, err
}
