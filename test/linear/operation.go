package linear

import (
	"fmt"
	"math"
)

// Kind is what is done to a key.
type Kind uint8

const (
	// Get reads the key.
	Get Kind = iota + 1
	// Put sets it to Value.
	Put
	// Create sets it to Value if it is not there.
	Create
	// Swap sets it to Value if it holds Old. A compare and set by version is the
	// same thing with Old the value of that version, as long as no two writes of a
	// key have the same value.
	Swap
	// Append adds Value to the end of what it holds, and makes it if it is not there.
	Append
	// Delete deletes it.
	Delete
)

func (k Kind) String() string {
	switch k {
	case Get:
		return "get"
	case Put:
		return "put"
	case Create:
		return "create"
	case Swap:
		return "swap"
	case Append:
		return "append"
	case Delete:
		return "delete"
	default:
		return fmt.Sprintf("kind %d", uint8(k))
	}
}

// An Op is what a client asks of one key.
type Op struct {
	Kind  Kind
	Key   string
	Old   string // Swap: the value that must be there
	Value string // Put, Create, Swap, Append
}

// A Result is what a client was told.
type Result struct {
	// Found says of a Get that the key is there, and Value is what it holds.
	Found bool
	Value string
	// OK says of a Create or Swap that it was done, and of a Delete that there was
	// something to delete. It means nothing for the others, which cannot fail.
	OK bool
}

// state says how an operation has ended.
type state uint8

const (
	unknown state = iota // or it has not ended
	done
	refused
)

// forever is when an operation returns that nobody knows the end of.
const forever = math.MaxInt64

// An operation is an Op with when it was asked and what came of it.
type operation struct {
	Op
	client     int
	call, back int64
	state      state
	result     Result
	note       string
}

// counts reports whether the operation says anything about the key.
func (o *operation) counts() bool {
	return o.state == done || (o.state == unknown && o.Kind != Get)
}

func (o *operation) String() string {
	return describe(o.Op, o.result, o.state == unknown)
}

// describe says what was asked and what was told.
func describe(op Op, r Result, unknown bool) string {
	text := op.Kind.String()
	switch op.Kind {
	case Put, Create, Append:
		text += fmt.Sprintf(" %q", op.Value)
	case Swap:
		text += fmt.Sprintf(" %q for %q", op.Old, op.Value)
	case Get, Delete:
	}
	switch {
	case unknown:
		return text + ": unknown"
	case op.Kind == Get && r.Found:
		return text + fmt.Sprintf(": %q", r.Value)
	case op.Kind == Get:
		return text + ": nothing"
	case op.Kind == Put || op.Kind == Append || r.OK:
		return text + ": done"
	case op.Kind == Delete:
		return text + ": nothing there"
	default:
		return text + ": not done"
	}
}
