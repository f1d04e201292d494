package check

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/transport"
)

// Config says how a [Checker] works. The zero value of every field means "use the
// default".
type Config struct {
	// Now returns the time, for texts and liveness. Default: always zero.
	Now func() time.Duration

	// Keep is how many of a group's newest indexes are remembered though all
	// replicas have passed them. Default: 4096.
	Keep uint64

	// MaxViolations is how many are kept; more are only counted. Default: 16.
	MaxViolations int
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = func() time.Duration { return 0 }
	}
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
}

// New returns a checker of a cluster of which nothing has been seen.
func New(c Config) *Checker {
	return &Checker{cfg: c.withDefaults()}
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

// Opened tells that a node has started and shows its replicas: all of them, also
// those that are stopped. It comes before the node sends anything.
func (c *Checker) Opened(node raftyard.NodeID, seen *Examined) {}

// Stepped tells how a node looks after something ran on it. It costs next to
// nothing for replicas that look as before. Nothing of seen but the logs is kept.
func (c *Checker) Stepped(node raftyard.NodeID, seen *Examined) {}

// Crashed tells that a node was stopped, orderly or not, and what it has lost. It
// comes after the last call about what ran on the node, and before Opened.
func (c *Checker) Crashed(node raftyard.NodeID, loss Loss) {}

// Excuse tells that a replica was broken on purpose, so that it may be found
// stopped.
func (c *Checker) Excuse(id Identity) {}

// Sent tells that an envelope leaves a node; a copy that the network makes is not
// sent again. Without durable, what the node's log store says is taken for durable.
func (c *Checker) Sent(node raftyard.NodeID, env *transport.Envelope, durable Durable) {}

// MachineOpened tells that a state machine was opened, with the index up to which
// it has applied all commands; zero for one that begins empty.
func (c *Checker) MachineOpened(id Identity, index uint64) {}

// MachineDurable tells that a state machine has said that it is durable up to an
// index.
func (c *Checker) MachineDurable(id Identity, index uint64) {}

// Applied tells what a state machine has applied, and answered.
func (c *Checker) Applied(id Identity, batch []group.Command, results []group.Result) {}

// Restored tells that a state machine was replaced by a snapshot of an index.
func (c *Checker) Restored(id Identity, index uint64) {}

// Hashed tells the hash of a state machine that has applied all up to index: the
// index of the last command that it has seen.
func (c *Checker) Hashed(id Identity, index, hash uint64) {}

// Acked tells that a client was told that its write is done.
func (c *Checker) Acked(w Write) {}

// Measured tells how much there is of something that has a bound.
func (c *Checker) Measured(what string, value, limit int64) {}

// Asked tells that a request begins. The id is the caller's, and never used again.
func (c *Checker) Asked(request uint64, what string) {}

// Answered tells that a request has ended, with whatever outcome.
func (c *Checker) Answered(request uint64) {}

// Wanted tells where a group shall be from now on.
func (c *Checker) Wanted(g raftyard.GroupID, w Wish) {}

// Healed tells that no fault is left, and none comes any more: from now on there
// must be progress.
func (c *Checker) Healed() {}

// Unsettled returns what of the liveness rules does not hold yet, in a fixed order.
// It changes nothing: what is still missing after a fair time is reported by
// [Checker.Overdue].
func (c *Checker) Unsettled() []Violation { return nil }

// Overdue makes violations of whatever [Checker.Unsettled] returns.
func (c *Checker) Overdue() {}

// Finished tells that all nodes are closed and no request is under way. It does
// the checks of the end; leaks names what is left over.
func (c *Checker) Finished(leaks ...string) {}
