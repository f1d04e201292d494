package registry

import (
	"fmt"
	"strconv"

	"github.com/raftyard/raftyard/internal/wire"
)

// A Code is how a command ended.
type Code uint8

// The codes. Each of them is final: nothing of the command is left to be done,
// and only OK and Created may have changed something.
const (
	OK         Code = 1 // it is as the command wanted it
	Created    Code = 2 // the group, or the node, did not exist and does now
	ExistsSame Code = 3 // the group exists as wanted
	Conflict   Code = 4 // what is there is against it; Detail says what
	NotFound   Code = 5 // there is no such group, or node
	Stale      Code = 6 // the record is another version, or another incarnation
	Invalid    Code = 7 // the command makes no sense; Detail says why
)

// String returns the code's name in lower case.
func (c Code) String() string {
	switch c {
	case OK:
		return "ok"
	case Created:
		return "created"
	case ExistsSame:
		return "exists_same"
	case Conflict:
		return "conflict"
	case NotFound:
		return "not_found"
	case Stale:
		return "stale"
	case Invalid:
		return "invalid"
	default:
		return "code " + strconv.Itoa(int(c))
	}
}

// A Result is the answer to one command.
type Result struct {
	Code Code

	// Group is the group's record after the command, if the command was about
	// a group that the registry knows; its ID is zero otherwise.
	Group Group

	// Node is the node after the command, if the command was about a node that
	// the registry knows; its ID is zero otherwise.
	Node Node

	// Detail is a sentence for people. Programs must not depend on it.
	Detail string
}

// resultFormat is the first byte of every encoded result. In the formats before, which are
// still read, there is less in them.
const resultFormat = 4

// What an encoded result holds.
const (
	resultHasGroup = 1 << iota
	resultHasNode
	resultFlags = resultHasGroup | resultHasNode
)

func (res Result) encode() []byte {
	var flags byte
	if res.Group.ID != 0 {
		flags |= resultHasGroup
	}
	if res.Node.ID != 0 {
		flags |= resultHasNode
	}
	b := append(make([]byte, 0, 96), resultFormat, byte(res.Code), flags)
	if flags&resultHasGroup != 0 {
		b = appendGroup(b, &res.Group)
	}
	if flags&resultHasNode != 0 {
		b = appendNode(b, &res.Node)
	}
	return wire.AppendString(b, res.Detail)
}

// DecodeResult decodes the data of a result of the system group's state machine.
func DecodeResult(data []byte) (Result, error) {
	r := wire.NewReader(data)
	format := r.Byte()
	if r.Err() == nil && (format < 1 || format > resultFormat) {
		return Result{}, fmt.Errorf("registry: result format %d is not known", format)
	}
	res := Result{Code: Code(r.Byte())}
	if r.Err() == nil && (res.Code < OK || res.Code > Invalid) {
		r.Fail("result code %d is not known", res.Code)
	}
	flags := r.Byte()
	if flags&^resultFlags != 0 {
		r.Fail("result flags %#x are not known", flags)
	}
	if flags&resultHasGroup != 0 {
		res.Group = readGroup(r, format)
	}
	if flags&resultHasNode != 0 {
		res.Node = readNode(r, format)
	}
	res.Detail = r.String()
	if err := r.Close(); err != nil {
		return Result{}, fmt.Errorf("registry: result: %w", err)
	}
	return res, nil
}
