//go:build unix

package test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/cluster"
	"github.com/raftyard/raftyard/test/linear"
)

// processFaults is what is done to processes. Each leaves all of them running.
func processFaults() []fault {
	return []fault{
		{"kill one", 5, func(x *chaos, d *rand.Rand) string { return x.kill(d, 1, 5*time.Second) }},
		{"kill two", 2, func(x *chaos, d *rand.Rand) string { return x.kill(d, 2, 4*time.Second) }},
		{"kill most", 1, func(x *chaos, d *rand.Rand) string {
			return x.kill(d, chaosNodes/2+1, 3*time.Second)
		}},
		{"kill all", 1, func(x *chaos, d *rand.Rand) string {
			return x.kill(d, chaosNodes, time.Second)
		}},
		{"kill leader", 2, (*chaos).killLeader},
		{"kill during start", 2, (*chaos).killDuringStart},
		{"restart storm", 1, (*chaos).restartStorm},
		{"lag", 2, (*chaos).lag},
		{"stop", 2, (*chaos).stop},
		{"freeze one", 4, func(x *chaos, d *rand.Rand) string {
			return x.freeze(x.some(d, 1), within(d, 500*time.Millisecond, 10*time.Second))
		}},
		{"freeze two", 2, func(x *chaos, d *rand.Rand) string {
			return x.freeze(x.some(d, 2), within(d, 500*time.Millisecond, 4*time.Second))
		}},
		{"freeze leader", 3, func(x *chaos, d *rand.Rand) string {
			n, g := x.leader(d)
			what := x.freeze([]*cluster.Node{n}, within(d, 500*time.Millisecond, 6*time.Second))
			return fmt.Sprintf("%s, of group %d", what, g)
		}},
		{"flicker", 1, (*chaos).flicker},
		{"wipe", 3, (*chaos).wipe},
	}
}

func (x *chaos) kill(dice *rand.Rand, n int, most time.Duration) string {
	return x.killFor(x.some(dice, n), within(dice, 0, most))
}

func (x *chaos) killFor(nodes []*cluster.Node, down time.Duration) string {
	x.c.Kill(nodes...)
	x.hold(down)
	for _, n := range nodes {
		n.Start()
	}
	return fmt.Sprintf("nodes %v, down for %v", ids(nodes), down)
}

func (x *chaos) killLeader(dice *rand.Rand) string {
	n, g := x.leader(dice)
	what := x.killFor([]*cluster.Node{n}, within(dice, 0, 4*time.Second))
	return fmt.Sprintf("%s, of group %d", what, g)
}

// lag keeps a node away until logs are cut behind it.
func (x *chaos) lag(dice *rand.Rand) string {
	return x.killFor(x.some(dice, 1), within(dice, 8*time.Second, 20*time.Second))
}

// killDuringStart kills a node, and again while it starts.
func (x *chaos) killDuringStart(dice *rand.Rand) string {
	n := x.some(dice, 1)[0]
	early := within(dice, 0, 500*time.Millisecond)
	n.Kill()
	n.Start()
	x.hold(early)
	n.Kill()
	n.Start()
	return fmt.Sprintf("node %d, %v after its start", n.ID(), early)
}

// restartStorm kills and starts a node over and over.
func (x *chaos) restartStorm(dice *rand.Rand) string {
	n, times := x.some(dice, 1)[0], 4+dice.IntN(5)
	for range times {
		n.Kill()
		n.Start()
		x.hold(within(dice, 50*time.Millisecond, 1200*time.Millisecond))
	}
	return fmt.Sprintf("node %d, %d times", n.ID(), times)
}

// stop stops a node as a supervisor does.
func (x *chaos) stop(dice *rand.Rand) string {
	x.t.Helper()
	n, down := x.some(dice, 1)[0], within(dice, 0, 3*time.Second)
	a := n.Do(x.t.Context(), cluster.Request{
		Method: http.MethodGet, Path: "/readyz", Timeout: time.Second,
	})
	n.Terminate()
	begun := time.Now()
	code := n.AwaitExit(2 * stopLimit)
	took := time.Since(begun)
	// One that has only just been started may be ended by the signal itself.
	if a.Status == http.StatusOK && code != 0 {
		x.t.Errorf("node %d: exit code %d after SIGTERM, want 0", n.ID(), code)
	}
	x.hold(down)
	n.Start()
	return fmt.Sprintf("node %d in %v, down for %v", n.ID(), took, down)
}

func (x *chaos) freeze(nodes []*cluster.Node, lasts time.Duration) string {
	for _, n := range nodes {
		n.Freeze()
	}
	x.hold(lasts * 3 / 4)
	for _, n := range nodes {
		x.ask(n, linear.Get) // these wait in its sockets, with what was sent before
	}
	x.hold(lasts / 4)
	for _, n := range nodes {
		n.Thaw()
	}
	return fmt.Sprintf("nodes %v for %v", ids(nodes), lasts)
}

// ask asks something with every key of a node that may believe that it leads, though
// it does not any more. It does not wait for answers.
func (x *chaos) ask(n *cluster.Node, kind linear.Kind) {
	x.asked.Go(func() { x.rec.askAll(x.t.Context(), n, kind) })
}

// flicker freezes a node again and again, for about as long as an election takes.
func (x *chaos) flicker(dice *rand.Rand) string {
	n, times := x.some(dice, 1), 3+dice.IntN(4)
	for range times {
		x.freeze(n, within(dice, 500*time.Millisecond, 2500*time.Millisecond))
		x.hold(within(dice, 50*time.Millisecond, 500*time.Millisecond))
	}
	return fmt.Sprintf("node %d, %d times", n[0].ID(), times)
}

// networkFaults is what is done to links. Each leaves all of them as they ought to
// be.
func networkFaults() []fault {
	cut := cluster.Condition{Cut: true}
	return []fault{
		{"isolate", 3, func(x *chaos, d *rand.Rand) string {
			one, rest := x.part(d, 1)
			return x.impose(d, cut, cluster.Between(one, rest))
		}},
		{"isolate leader", 3, (*chaos).isolateLeader},
		{"cut what one says", 2, func(x *chaos, d *rand.Rand) string {
			one, rest := x.part(d, 1)
			return x.impose(d, cut, cluster.Towards(one, rest))
		}},
		{"cut what one hears", 2, func(x *chaos, d *rand.Rand) string {
			one, rest := x.part(d, 1)
			return x.impose(d, cut, cluster.Towards(rest, one))
		}},
		{"cut a pair", 2, func(x *chaos, d *rand.Rand) string {
			two, _ := x.part(d, 2)
			return x.impose(d, cut, cluster.Between(two[:1], two[1:]))
		}},
		{"cut a pair one way", 2, func(x *chaos, d *rand.Rand) string {
			two, _ := x.part(d, 2)
			return x.impose(d, cut, cluster.Towards(two[:1], two[1:]))
		}},
		{"halves", 3, func(x *chaos, d *rand.Rand) string {
			two, three := x.part(d, 2)
			return x.impose(d, cut, cluster.Between(two, three))
		}},
		{"bridge", 2, func(x *chaos, d *rand.Rand) string {
			two, three := x.part(d, 2)
			return x.impose(d, cut, cluster.Between(two, three[1:]))
		}},
		{"delay all", 1, func(x *chaos, d *rand.Rand) string {
			all := ids(x.c.Nodes())
			return x.impose(d, slow(d, 150*time.Millisecond), cluster.Between(all, all))
		}},
		{"delay one", 2, func(x *chaos, d *rand.Rand) string {
			one, rest := x.part(d, 1)
			return x.impose(d, slow(d, 800*time.Millisecond), cluster.Between(one, rest))
		}},
		{"1 Mbit/s", 3, func(x *chaos, d *rand.Rand) string {
			one, rest := x.part(d, 1)
			slow := cluster.Condition{BytesPerSecond: 1_000_000 / 8}
			return x.impose(d, slow, cluster.Between(one, rest))
		}},
		{"half-open", 2, (*chaos).halfOpen},
		{"reset", 3, (*chaos).resetOften},
		{"flap", 2, (*chaos).flap},
	}
}

// isolateLeader cuts a leader off, writes there what others will have to replace, and
// goes on reading.
func (x *chaos) isolateLeader(dice *rand.Rand) string {
	n, g := x.leader(dice)
	links := cluster.Between(ids([]*cluster.Node{n}), ids(x.c.Nodes()))
	lasts := within(dice, 1500*time.Millisecond, 8*time.Second)
	x.net.Set(cluster.Condition{Cut: true}, links...)
	begun := time.Now()
	x.ask(n, linear.Put)
	for time.Since(begun) < lasts && x.hold(200*time.Millisecond) {
		if time.Since(begun) < 3*time.Second { // after that it knows
			x.ask(n, linear.Get)
		}
	}
	x.net.Set(cluster.Condition{}, links...)
	return fmt.Sprintf("node %d, of group %d, for %v", n.ID(), g, lasts)
}

// slow draws a delay.
func slow(dice *rand.Rand, most time.Duration) cluster.Condition {
	d := within(dice, most/10, most)
	return cluster.Condition{Delay: d, Jitter: d / 2}
}

// part draws so many nodes, and returns the others as well.
func (x *chaos) part(dice *rand.Rand, n int) (side, rest []raftyard.NodeID) {
	nodes := ids(x.some(dice, chaosNodes))
	return nodes[:n], nodes[n:]
}

// impose gives links a condition for a while. What was held up arrives late, or not
// at all.
func (x *chaos) impose(dice *rand.Rand, c cluster.Condition, links []cluster.Link) string {
	lasts, reset := within(dice, 500*time.Millisecond, 10*time.Second), dice.IntN(3) == 0
	x.net.Set(c, links...)
	x.hold(lasts)
	end := ""
	if reset {
		end = fmt.Sprintf(", %d connections reset", x.net.Reset(links...))
	}
	x.net.Set(cluster.Condition{}, links...)
	return fmt.Sprintf("%+v on %v for %v%s", c, links, lasts, end)
}

// halfOpen ends a node's connections; new ones are accepted, and nothing passes.
func (x *chaos) halfOpen(dice *rand.Rand) string {
	one, rest := x.part(dice, 1)
	links, lasts := cluster.Between(one, rest), within(dice, time.Second, 8*time.Second)
	x.net.Set(cluster.Condition{Cut: true}, links...)
	n := x.net.Reset(links...)
	x.hold(lasts)
	x.net.Set(cluster.Condition{}, links...)
	return fmt.Sprintf("node %d, %d connections, for %v", one[0], n, lasts)
}

// resetOften ends the connections of a node, or of all, several times.
func (x *chaos) resetOften(dice *rand.Rand) string {
	side, _ := x.part(dice, 1+dice.IntN(2)*(chaosNodes-1))
	links, n, times := cluster.Between(side, ids(x.c.Nodes())), 0, 1+dice.IntN(5)
	for range times {
		n += x.net.Reset(links...)
		x.hold(within(dice, 0, time.Second))
	}
	return fmt.Sprintf("nodes %v, %d connections in %d rounds", side, n, times)
}

// flap cuts the links of a node and mends them, again and again.
func (x *chaos) flap(dice *rand.Rand) string {
	one, rest := x.part(dice, 1)
	links, times := cluster.Between(one, rest), 4+dice.IntN(8)
	for range times {
		x.net.Set(cluster.Condition{Cut: true}, links...)
		x.hold(within(dice, 100*time.Millisecond, 1500*time.Millisecond))
		x.net.Set(cluster.Condition{}, links...)
		x.hold(within(dice, 50*time.Millisecond, 800*time.Millisecond))
	}
	return fmt.Sprintf("node %d, %d times", one[0], times)
}
