package group

// A Skip says that a committed entry is not applied: every state machine of the group has
// failed at it. It is a fact once the entry at At is committed that says so.
type Skip struct {
	Index uint64 // of the entry that is skipped
	Term  uint64 // of that entry
	At    uint64 // index of the entry that says so
}
