package kv

import (
	"fmt"
	"strings"
)

// shownBytes is how much of a key or value Describe shows.
const shownBytes = 64

// Describe says in one line what an encoded command does, for people. It can be shown
// on a terminal, whatever the command holds.
func Describe(data []byte) string {
	c, err := decodeCommand(data)
	if err != nil {
		return fmt.Sprintf("unreadable, %d bytes: %v", len(data), err)
	}
	switch c.kind {
	case commandPut:
		return fmt.Sprintf("put %s (%d bytes)%s", shown(c.key), len(c.value), c.cond.describe())
	case commandDelete:
		return fmt.Sprintf("delete %s%s", shown(c.key), c.cond.describe())
	default:
		return fmt.Sprintf("txn: %d compares; then %s; else %s", len(c.txn.Compares),
			describeOps(c.txn.Then), describeOps(c.txn.Else))
	}
}

func shown(b []byte) string {
	if len(b) > shownBytes {
		return fmt.Sprintf("%q...", b[:shownBytes])
	}
	return fmt.Sprintf("%q", b)
}

func (c Cond) describe() string {
	switch {
	case c.Absent:
		return " if absent"
	case c.Present:
		return " if present"
	case c.Revision != 0:
		return fmt.Sprintf(" if at revision %d", c.Revision)
	default:
		return ""
	}
}

// shownOps is how many operations of a transaction are named.
const shownOps = 4

func describeOps(ops []Op) string {
	if len(ops) == 0 {
		return "nothing"
	}
	names := map[OpKind]string{OpPut: "put", OpDelete: "delete", OpGet: "get"}
	var parts []string
	for i, op := range ops {
		if i == shownOps {
			parts = append(parts, fmt.Sprintf("%d more", len(ops)-i))
			break
		}
		parts = append(parts, names[op.Kind]+" "+shown(op.Key))
	}
	return strings.Join(parts, ", ")
}
