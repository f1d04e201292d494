package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// callProcess is what the processes are called in which clients use a node.
const callProcess = "call"

// ErrDied is the outcome of a request whose node died before it could answer. It
// wraps [node.ErrUnknownOutcome].
var ErrDied = fmt.Errorf("sim: the node died: %w", node.ErrUnknownOutcome)

// ErrDown is the outcome of a request for which no node is up. It had no effect.
var ErrDown = errors.New("sim: no node is up")

// A Client is one of those who use the cluster. It does one thing at a time.
type Client struct {
	w    *World
	id   int
	dice *rand.Rand
}

// ID returns the number of the client, from 1.
func (c *Client) ID() int { return c.id }

// Rand returns the client's dice. It must use no others.
func (c *Client) Rand() *rand.Rand { return c.dice }

// Running reports whether the client should go on.
func (c *Client) Running() bool { return c.w.working }

// Ops returns how many requests the client should make, by the configuration or the
// seed.
func (c *Client) Ops() int { return c.w.setup.ops }

// Time returns the virtual time since the beginning.
func (c *Client) Time() time.Duration { return c.w.turns.Time() }

// Sleep waits for d.
func (c *Client) Sleep(d time.Duration) { c.w.clients.Sleep(context.Background(), d) }

// Groups returns the groups that were created.
func (c *Client) Groups() []raftyard.GroupID {
	var ids []raftyard.GroupID
	for _, g := range c.w.groups {
		if g.created && !g.own {
			ids = append(ids, g.id)
		}
	}
	return ids
}

// Failf ends the run, which has failed: what a client has seen is not right.
func (c *Client) Failf(format string, args ...any) {
	c.w.fail("workload", fmt.Errorf(format, args...))
}

// Propose proposes a command on some node; see [node.Node.Propose]. With
// [node.NotApplied] a client can tell of an error whether it certainly had no effect.
func (c *Client) Propose(g raftyard.GroupID, cmd []byte) (res group.Result, err error) {
	at := c.w.group(g)
	var incarnation raftyard.Incarnation
	if at != nil {
		incarnation = at.incarnation
	}
	err = c.Do("propose", func(ctx context.Context, n *node.Node) (err error) {
		res, err = n.Propose(ctx, g, cmd)
		return err
	})
	if err == nil && at != nil && c.own() && !c.w.cfg.Bare {
		c.w.check.Acked(check.Write{
			Group: g, Incarnation: incarnation, Index: res.Index, Data: cmd, Result: res.Data,
		})
		c.w.judge()
	}
	return res, err
}

// own reports whether the client does what a program says.
func (c *Client) own() bool { return c.id != 0 && c.w.cfg.Workload != nil }

// Query asks a question on some node; see [node.Node.Query].
func (c *Client) Query(
	g raftyard.GroupID, level node.Consistency, question []byte,
) (answer []byte, err error) {
	err = c.Do("query", func(ctx context.Context, n *node.Node) (err error) {
		answer, err = n.Query(ctx, g, level, question)
		return err
	})
	return answer, err
}

// Do calls fn with a node that is up, and with a context that ends in a few seconds.
// fn runs on the node's machine: when that dies, fn ends where it waits, and the
// outcome is [ErrDied]. So fn must leave nothing half done outside of itself.
func (c *Client) Do(what string, fn func(ctx context.Context, n *node.Node) error) error {
	var up []*host
	for _, h := range c.w.hosts {
		if h.state == running && (!h.lost || !h.isGone() && c.w.working) {
			up = append(up, h)
		}
	}
	if len(up) == 0 {
		c.Sleep(time.Duration(20+c.dice.IntN(100)) * time.Millisecond)
		return ErrDown
	}
	h := up[c.dice.IntN(len(up))]
	patience := time.Duration(200+c.dice.IntN(2500)) * time.Millisecond
	err := c.w.call(h, what, patience, fn)
	if c.own() {
		c.count(err)
	}
	return err
}

// count counts an outcome of a program's own client.
func (c *Client) count(err error) {
	counts := &c.w.counts
	switch {
	case err == nil:
		counts.Acked++
	case node.NotApplied(err):
		counts.Refused++
		if errors.Is(err, node.ErrUnsupported) && strings.Contains(err.Error(), "sim.watched") {
			c.Failf("node.View is of another type, use sim.View or Config.Bare: %w", err)
		}
	default:
		counts.Unknown++
	}
}

// call runs fn on a machine, from a process of the clients' or from the driver.
func (w *World) call(
	h *host, what string, patience time.Duration, fn func(context.Context, *node.Node) error,
) error {
	w.request++
	request, st, n := w.request, h.st, h.node
	var err error
	var returned, ended bool
	w.check.Asked(request, fmt.Sprintf("%s at node %d", what, h.id))
	st.Go(callProcess, func() {
		defer func() {
			ended = true
			w.clients.Touch()
		}()
		ctx, cancel := st.WithTimeout(context.Background(), patience)
		defer cancel()
		err = fn(ctx, n)
		returned = true
	})
	w.await(func() bool { return ended || st.Dead() })
	w.check.Answered(request)
	if !returned {
		return ErrDied
	}
	return err
}

// await waits, as a process of the clients' or as the driver.
func (w *World) await(ready func() bool) { w.clients.Until(ready) }

// startClients starts everybody who works with the cluster.
func (w *World) startClients(work func(*Client)) (done func() bool) {
	w.working = true
	left := w.setup.clients
	for i := range w.setup.clients {
		c := &Client{w: w, id: i + 1, dice: newDice(w.cfg.Seed, streamClients+1000+uint64(i))}
		w.clients.Go(fmt.Sprintf("client %d", c.id), func() {
			defer func() { left-- }()
			work(c)
		})
	}
	return func() bool { return left == 0 }
}
