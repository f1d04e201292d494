package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
)

// Config says how a [Checker] works. The zero value of every field means "use the
// default".
type Config struct {
	// Now returns the time, for texts and for [AtRest]. Default: no time; nothing is
	// then said about rest.
	Now func() time.Duration

	// Rest is for how long a group must have had the same leader to be at rest.
	// Default: 2 s.
	Rest time.Duration

	// Keep is how many of a group's newest indexes are remembered though all
	// replicas have passed them. Default: 4096.
	Keep uint64

	// Brittle: state machines may fail though nothing was lost.
	Brittle bool

	// MaxViolations is how many are kept; more are only counted. Default: 16.
	MaxViolations int
}

func (c Config) withDefaults() Config {
	c.Rest = cmp.Or(c.Rest, 2*time.Second)
	c.Keep = cmp.Or(c.Keep, 4096)
	c.MaxViolations = cmp.Or(c.MaxViolations, 16)
	return c
}

// A Checker is told what happens in a cluster, and collects what must not. It is
// not safe for concurrent use.
type Checker struct {
	cfg        Config
	violations []Violation
	more       int // violations that were not kept

	nodes  map[raftyard.NodeID]*nodeState
	groups map[groupKey]*groupState
	order  []*groupState // by group, then incarnation

	tally Tally

	requests map[uint64]string // those under way
	wishes   map[raftyard.GroupID]Wish

	// anyLoss: some disk has lost what was durable, so that replicas may be stopped
	// elsewhere too: a leader that has forgotten entries contradicts its followers.
	anyLoss bool

	// logOf returns what is durable of a replica's log, or nil.
	logOf func(*Replica) Log
}

// New returns a checker of a cluster of which nothing has been seen.
func New(c Config) *Checker {
	return &Checker{
		cfg:      c.withDefaults(),
		nodes:    make(map[raftyard.NodeID]*nodeState),
		groups:   make(map[groupKey]*groupState),
		requests: make(map[uint64]string),
		wishes:   make(map[raftyard.GroupID]Wish),
		logOf:    storedLog,
	}
}

func storedLog(r *Replica) Log {
	if r.Log == nil {
		return nil // and not an interface that holds nil
	}
	return r.Log
}

// Broken reports whether a rule was violated. It costs nothing.
func (c *Checker) Broken() bool { return len(c.violations) > 0 }

// Violations returns what was violated, first things first.
func (c *Checker) Violations() []Violation { return c.violations }

// Err returns all violations as one error, or nil.
func (c *Checker) Err() error {
	errs := make([]error, 0, len(c.violations)+1)
	for _, v := range c.violations {
		errs = append(errs, v)
	}
	if c.more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", c.more))
	}
	return errors.Join(errs...)
}

// fail notes a violation.
func (c *Checker) fail(rule Rule, format string, args ...any) {
	if len(c.violations) >= c.cfg.MaxViolations {
		c.more++
		return
	}
	text := fmt.Sprintf(format, args...)
	if c.cfg.Now != nil {
		text = fmt.Sprintf("at %v: %s", c.cfg.Now(), text)
	}
	c.violations = append(c.violations, Violation{Rule: rule, Text: text})
}

// group returns what is known of a group, which may be nothing yet.
func (c *Checker) group(key groupKey) *groupState {
	g := c.groups[key]
	if g == nil {
		g = newGroup(key)
		c.groups[key] = g
		at, _ := slices.BinarySearchFunc(c.order, g, func(a, b *groupState) int {
			return a.key.compare(b.key)
		})
		c.order = slices.Insert(c.order, at, g)
	}
	return g
}

func (c *Checker) node(id raftyard.NodeID) *nodeState {
	n := c.nodes[id]
	if n == nil {
		n = &nodeState{id: id}
		c.nodes[id] = n
	}
	return n
}

// replica returns what is known of a replica, which may be nothing yet. It checks
// where the replica is at home.
func (c *Checker) replica(id Identity) *replicaState {
	g := c.group(groupKey{id.Group, id.Incarnation})
	s := g.replica(id.Replica)
	c.checkHome(s, c.node(id.Node))
	return s
}

// Asked tells that a request begins. The id is the caller's, and never used again.
func (c *Checker) Asked(request uint64, what string) { c.requests[request] = what }

// Answered tells that a request has ended, with whatever outcome.
func (c *Checker) Answered(request uint64) { delete(c.requests, request) }

// Wanted tells where a group shall be from now on.
func (c *Checker) Wanted(g raftyard.GroupID, w Wish) { c.wishes[g] = w }

// Measured tells how much there is of something that has a bound.
//
// Rule 13, [Budgets]: what is bounded stays within its bounds.
func (c *Checker) Measured(what string, value, limit int64) {
	c.tally.Measured++
	if value < 0 || value > limit {
		c.fail(Budgets, "%s is %d, its bounds are 0 and %d", what, value, limit)
	}
}

// Excuse tells that a replica was broken on purpose, so that it may be found
// stopped.
func (c *Checker) Excuse(id Identity) { c.replica(id).excused = true }
