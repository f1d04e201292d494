package kv

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/raftyard/raftyard/internal/wire"
)

// commandVersion is the first byte of a command. A newer version may be proposed
// only when every member of the group understands it: a replica that does not
// refuses the command, and its state would differ from the others'.
const commandVersion = 1

type commandKind uint8

const (
	commandPut    commandKind = 1
	commandDelete commandKind = 2
	commandTxn    commandKind = 3
)

// A command is a decoded command. Its byte strings are parts of the encoded one.
type command struct {
	kind  commandKind
	cond  Cond   // put and delete
	key   []byte // put and delete
	value []byte // put
	txn   Txn
}

// A Cond says how a key must be for a put or delete to be done. The zero Cond is
// no condition; at most one field may be set.
type Cond struct {
	Absent   bool   // the key must not exist
	Present  bool   // the key must exist
	Revision uint64 // the key must exist, at this revision
}

const (
	condNone     = 0
	condAbsent   = 1
	condPresent  = 2
	condRevision = 3
)

func (c Cond) check() error {
	switch c {
	case Cond{Absent: true}, Cond{Present: true}, Cond{Revision: c.Revision}:
		return nil
	default:
		return fmt.Errorf("%w: more than one condition", ErrInvalid)
	}
}

func (c Cond) holds(it item) bool {
	switch {
	case c.Absent:
		return !it.present()
	case c.Present:
		return it.present()
	case c.Revision != 0:
		return it.mod == c.Revision
	default:
		return true
	}
}

// A Txn compares and then does, as one step. When all of Compares hold, the
// operations of Then are done, in order, else those of Else. Each sees what the
// ones before it did. All changes of a transaction have the same revision.
type Txn struct {
	Compares []Compare
	Then     []Op
	Else     []Op
}

// A Compare compares something of a key with an operand.
type Compare struct {
	Key    []byte
	Target Target
	Is     Relation

	Revision uint64 // the operand of TargetRevision and TargetCreateRevision
	Value    []byte // the operand of TargetValue
}

// A Target is what of a key is compared.
type Target uint8

const (
	// TargetRevision is the key's revision; zero if the key is absent. "Revision
	// Equal 0" therefore says that the key does not exist.
	TargetRevision Target = 1

	// TargetCreateRevision is the revision that made the key; zero if absent.
	TargetCreateRevision Target = 2

	// TargetValue is the key's value, ordered by its bytes. No comparison with
	// the value of an absent key holds, not even NotEqual.
	TargetValue Target = 3
)

// A Relation is how the target must stand to the operand.
type Relation uint8

// The relations.
const (
	Equal    Relation = 1
	NotEqual Relation = 2
	Less     Relation = 3
	Greater  Relation = 4
)

func (c Compare) holds(it item) bool {
	switch c.Target {
	case TargetRevision:
		return c.Is.matches(compareUint(it.mod, c.Revision))
	case TargetCreateRevision:
		return c.Is.matches(compareUint(it.create, c.Revision))
	default:
		return it.present() && c.Is.matches(bytes.Compare(it.value, c.Value))
	}
}

func compareUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

func (r Relation) matches(order int) bool {
	switch r {
	case Equal:
		return order == 0
	case NotEqual:
		return order != 0
	case Less:
		return order < 0
	default:
		return order > 0
	}
}

// An Op is one operation of a [Txn].
type Op struct {
	Kind  OpKind
	Key   []byte
	Value []byte // of a put
}

// An OpKind says what an [Op] does.
type OpKind uint8

// The kinds of operations.
const (
	OpPut    OpKind = 1
	OpDelete OpKind = 2
	OpGet    OpKind = 3
)

func encodePut(key, value []byte, c Cond) []byte {
	b := make([]byte, 0, len(key)+len(value)+24)
	b = appendCond(append(b, commandVersion, byte(commandPut)), c)
	return wire.AppendBytes(wire.AppendBytes(b, key), value)
}

func encodeDelete(key []byte, c Cond) []byte {
	b := appendCond([]byte{commandVersion, byte(commandDelete)}, c)
	return wire.AppendBytes(b, key)
}

func encodeTxn(t Txn) []byte {
	b := append(make([]byte, 0, t.maxEncodedSize()), commandVersion, byte(commandTxn))
	b = wire.AppendUvarint(b, uint64(len(t.Compares)))
	for _, c := range t.Compares {
		b = wire.AppendBytes(append(b, byte(c.Target), byte(c.Is)), c.Key)
		if c.Target == TargetValue {
			b = wire.AppendBytes(b, c.Value)
		} else {
			b = wire.AppendUvarint(b, c.Revision)
		}
	}
	return appendOps(appendOps(b, t.Then), t.Else)
}

// maxEncodedSize returns how large t is at most when it is encoded, so that its values are not
// copied again and again while it grows.
func (t Txn) maxEncodedSize() int {
	size := 2 + 3*binary.MaxVarintLen64
	for _, c := range t.Compares {
		size += 2 + wire.SizeBytes(len(c.Key)) + binary.MaxVarintLen64
		if c.Target == TargetValue {
			size += len(c.Value)
		}
	}
	for _, ops := range [][]Op{t.Then, t.Else} {
		for _, op := range ops {
			size += 1 + wire.SizeBytes(len(op.Key)) + wire.SizeBytes(len(op.Value))
		}
	}
	return size
}

func appendOps(b []byte, ops []Op) []byte {
	b = wire.AppendUvarint(b, uint64(len(ops)))
	for _, op := range ops {
		b = wire.AppendBytes(append(b, byte(op.Kind)), op.Key)
		if op.Kind == OpPut {
			b = wire.AppendBytes(b, op.Value)
		}
	}
	return b
}

func appendCond(b []byte, c Cond) []byte {
	switch {
	case c.Absent:
		return append(b, condAbsent)
	case c.Present:
		return append(b, condPresent)
	case c.Revision != 0:
		return wire.AppendUvarint(append(b, condRevision), c.Revision)
	default:
		return append(b, condNone)
	}
}

// decodeCommand decodes a command and checks it against the limits. Its errors
// are [ErrInvalid], [ErrEmptyKey] or a [LimitError].
func decodeCommand(data []byte) (command, error) {
	if len(data) > MaxCommandBytes {
		return command{}, &LimitError{
			Reason: ErrTxnTooLarge, Limit: MaxCommandBytes, Actual: uint64(len(data)),
		}
	}
	r := wire.NewReader(data)
	if v := r.Byte(); r.Err() == nil && v != commandVersion {
		r.Fail("command version %d", v)
	}
	cmd := command{kind: commandKind(r.Byte())}
	switch cmd.kind {
	case commandPut:
		cmd.cond, cmd.key, cmd.value = readCond(r), r.Bytes(), r.Bytes()
	case commandDelete:
		cmd.cond, cmd.key = readCond(r), r.Bytes()
	case commandTxn:
		cmd.txn = readTxn(r)
	default:
		r.Fail("command kind %d", cmd.kind)
	}
	if err := r.Close(); err != nil {
		return command{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return cmd, cmd.check()
}

func readCond(r *wire.Reader) Cond {
	switch kind := r.Byte(); kind {
	case condNone:
		return Cond{}
	case condAbsent:
		return Cond{Absent: true}
	case condPresent:
		return Cond{Present: true}
	case condRevision:
		c := Cond{Revision: r.Uvarint()}
		if c.Revision == 0 {
			r.Fail("condition on revision 0")
		}
		return c
	default:
		r.Fail("condition %d", kind)
		return Cond{}
	}
}

func readTxn(r *wire.Reader) Txn {
	var t Txn
	if n := r.Count(4); n > 0 {
		t.Compares = make([]Compare, 0, min(n, MaxTxnOps+1))
		for range n {
			t.Compares = append(t.Compares, readCompare(r))
		}
	}
	t.Then = readOps(r)
	t.Else = readOps(r)
	return t
}

func readCompare(r *wire.Reader) Compare {
	c := Compare{Target: Target(r.Byte()), Is: Relation(r.Byte()), Key: r.Bytes()}
	switch c.Target {
	case TargetRevision, TargetCreateRevision:
		c.Revision = r.Uvarint()
	case TargetValue:
		c.Value = r.Bytes()
	default:
		r.Fail("comparison of target %d", c.Target)
	}
	if c.Is < Equal || c.Is > Greater {
		r.Fail("comparison by relation %d", c.Is)
	}
	return c
}

func readOps(r *wire.Reader) []Op {
	n := r.Count(2)
	if n == 0 {
		return nil
	}
	ops := make([]Op, 0, min(n, MaxTxnOps+1))
	for range n {
		op := Op{Kind: OpKind(r.Byte()), Key: r.Bytes()}
		switch op.Kind {
		case OpPut:
			op.Value = r.Bytes()
		case OpDelete, OpGet:
		default:
			r.Fail("operation %d", op.Kind)
		}
		ops = append(ops, op)
	}
	return ops
}

// check returns why the command cannot be applied, or nil.
func (c command) check() error {
	if c.kind == commandTxn {
		return c.txn.check()
	}
	return checkItem(c.key, c.value)
}

// check returns why the transaction cannot be applied, or nil. The length of its
// encoding is checked by others.
func (t Txn) check() error {
	longest := max(len(t.Compares), len(t.Then), len(t.Else))
	if longest > MaxTxnOps {
		return &LimitError{Reason: ErrTxnTooLarge, Limit: MaxTxnOps, Actual: uint64(longest)}
	}
	for _, c := range t.Compares {
		if err := c.check(); err != nil {
			return err
		}
	}
	for _, ops := range [][]Op{t.Then, t.Else} {
		for _, op := range ops {
			if err := op.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Compare) check() error {
	if c.Target < TargetRevision || c.Target > TargetValue {
		return fmt.Errorf("%w: comparison of target %d", ErrInvalid, c.Target)
	}
	if c.Is < Equal || c.Is > Greater {
		return fmt.Errorf("%w: comparison by relation %d", ErrInvalid, c.Is)
	}
	return checkItem(c.Key, c.Value)
}

func (o Op) check() error {
	if o.Kind < OpPut || o.Kind > OpGet {
		return fmt.Errorf("%w: operation of kind %d", ErrInvalid, o.Kind)
	}
	return checkItem(o.Key, o.Value)
}
