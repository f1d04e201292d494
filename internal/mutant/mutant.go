// Package mutant holds bugs that are planted on purpose. Each stands behind a
// switch at the place where a careless change would make it, and the simulator must
// find every one: a check that finds no planted bug would not find a real one.
//
// Only a build with the tag mutants has the switches. In every other build [On] is
// a constant false, and the compiler drops what stands behind it.
package mutant

import "fmt"

// A Bug is one planted bug.
type Bug uint8

// The bugs. Each says what is done wrong.
const (
	// None: nothing.
	None Bug = iota
	// SkipSync: a commit of the log store is reported durable without a sync.
	SkipSync
	// TornUpdate: a hard state and the entries that belong to it are written in
	// two steps.
	TornUpdate
	// ClampTail: a log that has lost its tail is opened as if it had always been so
	// short.
	ClampTail
	// AnswerBeforeSync: messages that vouch for a write leave before it is durable.
	AnswerBeforeSync
	// ApplyBeforeSync: committed entries are applied before this replica's own write of
	// them is durable.
	ApplyBeforeSync
	// ForgetVote: the vote is not kept with the term.
	ForgetVote
	// ForgetMembers: a membership change is applied and not kept.
	ForgetMembers
	// ApplyTwice: after a restart commands are applied that the state machine has
	// already.
	ApplyTwice
	// SkipApplied: after a restart application begins at the commit index on disk.
	SkipApplied
	// SnapshotTerm: a snapshot carries the term of the hard state, not that of the
	// entry at its index.
	SnapshotTerm
	// SnapshotMembers: a snapshot carries the members of the snapshot before it, not
	// those at its index.
	SnapshotMembers
	// TruncateEarly: the log is cut up to the applied index though the state
	// machine is durable only below it.
	TruncateEarly
	// TruncatePast: the log is cut past a follower, which is sent what is left as if
	// nothing were missing.
	TruncatePast
	// SnapshotLimbo: raft is not told that a snapshot was not delivered.
	SnapshotLimbo
	// KeepOnInstall: installing a snapshot adds to the state instead of replacing it.
	KeepOnInstall
	// StaleRead: a leader answers a linearizable read without asking its followers.
	StaleRead
	// ReadUnapplied: a confirmed read is answered before its index is applied.
	ReadUnapplied
	// ResendUnknown: a command whose outcome is unknown is proposed again.
	ResendUnknown
	// AnswerOther: a proposer is told that its command is applied when any entry at
	// its index is, though another leader's has replaced its own.
	AnswerOther
	// InstallNoIntent: a snapshot is restored before the intent to do so is durable,
	// and the log is not reset with it.
	InstallNoIntent
	// NoTombstone: a destroyed replica leaves nothing behind that keeps its id from
	// coming back.
	NoTombstone
	// ReuseReplica: a member that comes back to a node gets the replica id that it
	// had there before.
	ReuseReplica
	// WipedVotes: a node whose directory was wiped is listened to as before.
	WipedVotes
	// LostMemberVotes: a member that was lost with its directory is spoken to as before,
	// and the replica that takes its place in the new one speaks in its name.
	LostMemberVotes
	// EpochIgnored: what a replica knows of the members is believed however old it is. It
	// tells whoever is not among them that they were removed, and they go.
	EpochIgnored
	// WitnessIgnored: what others remember of a replica's promises is not compared with
	// what it has.
	WitnessIgnored
	// SkipUnheeded: who comes to an entry that is skipped does not look ahead.
	SkipUnheeded
	// DeleteUnfenced: a deletion neither asks whether the voters can be told nor waits
	// until they have stopped.
	DeleteUnfenced
	// ServeBeforeRegistry: groups are served before the registry is read after a start.
	ServeBeforeRegistry
	// SleepUnasked: a leader sleeps without asking those who follow, and with one that has
	// not got everything.
	SleepUnasked
	// NodeIgnored: those who sleep go on when the node of a member is gone or was started
	// again.
	NodeIgnored
	// SleepBelieved: a replica sleeps when it is asked to, however long ago that was.
	SleepBelieved
	// NumBugs is how many there are, None included.
	NumBugs
)

var names = [NumBugs]string{
	None:                "None",
	SkipSync:            "SkipSync",
	TornUpdate:          "TornUpdate",
	ClampTail:           "ClampTail",
	AnswerBeforeSync:    "AnswerBeforeSync",
	ApplyBeforeSync:     "ApplyBeforeSync",
	ForgetVote:          "ForgetVote",
	ForgetMembers:       "ForgetMembers",
	ApplyTwice:          "ApplyTwice",
	SkipApplied:         "SkipApplied",
	SnapshotTerm:        "SnapshotTerm",
	SnapshotMembers:     "SnapshotMembers",
	TruncateEarly:       "TruncateEarly",
	TruncatePast:        "TruncatePast",
	SnapshotLimbo:       "SnapshotLimbo",
	KeepOnInstall:       "KeepOnInstall",
	StaleRead:           "StaleRead",
	ReadUnapplied:       "ReadUnapplied",
	ResendUnknown:       "ResendUnknown",
	AnswerOther:         "AnswerOther",
	InstallNoIntent:     "InstallNoIntent",
	NoTombstone:         "NoTombstone",
	ReuseReplica:        "ReuseReplica",
	WipedVotes:          "WipedVotes",
	LostMemberVotes:     "LostMemberVotes",
	EpochIgnored:        "EpochIgnored",
	WitnessIgnored:      "WitnessIgnored",
	SkipUnheeded:        "SkipUnheeded",
	DeleteUnfenced:      "DeleteUnfenced",
	ServeBeforeRegistry: "ServeBeforeRegistry",
	SleepUnasked:        "SleepUnasked",
	NodeIgnored:         "NodeIgnored",
	SleepBelieved:       "SleepBelieved",
}

// String returns the bug's name.
func (b Bug) String() string {
	if b < NumBugs {
		return names[b]
	}
	return fmt.Sprintf("Bug(%d)", uint8(b))
}
