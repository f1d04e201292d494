package check

import "fmt"

// A Rule is one thing that must be true.
type Rule uint8

// Safety: these hold after every step, whatever fails.
const (
	// OneLeader: a term of a group has at most one leader.
	OneLeader Rule = iota + 1
	// LogMatching: two logs that agree on the term of an index agree on all before
	// it, and a committed index has one value on all replicas and for ever.
	LogMatching
	// AppliedOnce: what a state machine applies has no gap and no repetition within
	// the life of its state, and is the same on all replicas.
	AppliedOnce
	// DurableFirst: what a message vouches for was durable when it left.
	DurableFirst
	// NoRegress: term, vote, commit and applied index never fall, not even over a
	// restart, unless the replica says that it is damaged.
	NoRegress
	// OneHome: a replica id is ever on one node only, and in one data directory.
	OneHome
	// DeadAreSilent: a destroyed replica never sends again.
	DeadAreSilent
	// Membership: the members are a function of the applied index, one change at a
	// time, and every decision has the majorities of the members in force.
	Membership
	// AckedSurvives: a write that was acknowledged is applied, as acknowledged, on
	// every replica that gets that far.
	AckedSurvives
	// Linearizable: what clients saw fits one order of events. It is checked by
	// test/linear; the number is here so that all rules have one.
	Linearizable
	// SameState: state machines that are equally far have equal contents.
	SameState
	// Bounds: snapshot <= applied <= commit <= last, the log begins no later than
	// after the snapshot, and a snapshot is what was committed at its index.
	Bounds
	// Budgets: what is bounded stays within its bounds.
	Budgets
	// Quarantine: a replica that has lost something influences nobody.
	Quarantine
)

// Liveness: these hold some time after the last fault.
const (
	// Progress: a group with a healthy majority has a leader and commits.
	Progress Rule = iota + 15
	// Tidy: no group is joint, and no replica is where none is wanted, or missing
	// where one is.
	Tidy
	// CaughtUp: every member has applied all that is committed.
	CaughtUp
	// AtRest: a group of which nothing is asked changes nothing.
	AtRest
	// Resolved: every request has had its answer.
	Resolved
	// NoLeaks: nothing is left when everything is closed. The simulator says what is.
	NoLeaks
)

// Sleep is that a group that sleeps does nothing, and does not sleep too long.
const Sleep Rule = 22

var ruleNames = [...]string{
	OneLeader: "one leader", LogMatching: "log matching", AppliedOnce: "applied once",
	DurableFirst: "durable first", NoRegress: "no regress", OneHome: "one home",
	DeadAreSilent: "dead are silent", Membership: "membership",
	AckedSurvives: "acknowledged survives", Linearizable: "linearizable",
	SameState: "same state", Bounds: "bounds", Budgets: "budgets", Quarantine: "quarantine",
	Progress: "progress", Tidy: "tidy", CaughtUp: "caught up", AtRest: "at rest",
	Resolved: "resolved", NoLeaks: "no leaks", Sleep: "sleep",
}

// String returns the rule's number and name.
func (r Rule) String() string {
	if r == 0 || int(r) >= len(ruleNames) {
		return fmt.Sprintf("rule %d", uint8(r))
	}
	return fmt.Sprintf("rule %d (%s)", uint8(r), ruleNames[r])
}
