package kv

import (
	"errors"
	"fmt"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

const resultVersion = 1

// resultOverhead is more than what an encoded transaction result takes beside
// its operations.
const resultOverhead = 64

// A resultStatus says what became of a command or query.
type resultStatus uint8

const (
	statusOK           resultStatus = 0
	statusPrecondition resultStatus = 1
	statusRefused      resultStatus = 2
	statusReplayed     resultStatus = 3
)

// A refusal is the code of the reason why a command or query was refused.
type refusal uint8

const (
	refusedInvalid        refusal = 0
	refusedEmptyKey       refusal = 1
	refusedKeyTooLarge    refusal = 2
	refusedValueTooLarge  refusal = 3
	refusedTxnTooLarge    refusal = 4
	refusedResultTooLarge refusal = 5
)

// reasons returns the error of each refusal, by its code.
func reasons() []error {
	return []error{
		refusedInvalid:        ErrInvalid,
		refusedEmptyKey:       ErrEmptyKey,
		refusedKeyTooLarge:    ErrKeyTooLarge,
		refusedValueTooLarge:  ErrValueTooLarge,
		refusedTxnTooLarge:    ErrTxnTooLarge,
		refusedResultTooLarge: ErrResultTooLarge,
	}
}

// A result is the decoded result of a command that was understood.
type result struct {
	status resultStatus
	kind   commandKind // when status is statusOK

	// revision is the group's after the command; with statusPrecondition the
	// key's.
	revision uint64
	flag     bool       // put: created; delete: deleted; txn: succeeded
	ops      []OpResult // txn
}

// An OpResult is what one operation of a [Txn] did.
type OpResult struct {
	Kind  OpKind
	Found bool  // the key existed before the operation
	Value Value // of a get that found the key
}

// A Value is the value of a key, with its revisions.
type Value struct {
	Data           []byte
	Revision       uint64 // of the last write
	CreateRevision uint64 // of the write that made the key
}

func (it item) asValue() Value {
	return Value{Data: it.value, Revision: it.mod, CreateRevision: it.create}
}

func (r OpResult) encodedSize() int {
	if r.Kind != OpGet || !r.Found {
		return 2
	}
	return 2 + valueSize(r.Value)
}

func valueSize(v Value) int {
	return wire.SizeUvarint(v.Revision) + wire.SizeUvarint(v.CreateRevision) +
		wire.SizeBytes(len(v.Data))
}

func appendValue(b []byte, v Value) []byte {
	b = wire.AppendUvarint(b, v.Revision)
	b = wire.AppendUvarint(b, v.CreateRevision)
	return wire.AppendBytes(b, v.Data)
}

func readValue(r *wire.Reader) Value {
	v := Value{Revision: r.Uvarint(), CreateRevision: r.Uvarint()}
	v.Data = r.Bytes()
	return v
}

func (r result) encode() []byte {
	size := resultOverhead
	for _, op := range r.ops {
		size += op.encodedSize()
	}
	b := append(make([]byte, 0, size), resultVersion, byte(r.status))
	if r.status == statusPrecondition {
		return wire.AppendUvarint(b, r.revision)
	}
	b = wire.AppendUvarint(append(b, byte(r.kind)), r.revision)
	b = wire.AppendBool(b, r.flag)
	if r.kind != commandTxn {
		return b
	}
	b = wire.AppendUvarint(b, uint64(len(r.ops)))
	for _, op := range r.ops {
		b = wire.AppendBool(append(b, byte(op.Kind)), op.Found)
		if op.Kind == OpGet && op.Found {
			b = appendValue(b, op.Value)
		}
	}
	return b
}

func encodeReplayed() []byte { return []byte{resultVersion, byte(statusReplayed)} }

// encodeRefused encodes the reason why a command or query is refused.
func encodeRefused(err error) []byte {
	b := []byte{resultVersion, byte(statusRefused)}
	code := refusedInvalid
	for i, reason := range reasons() {
		if errors.Is(err, reason) {
			code = refusal(i)
		}
	}
	b = append(b, byte(code))
	limit, ok := errors.AsType[*LimitError](err)
	if !ok {
		return b
	}
	b = wire.AppendUvarint(b, limit.Limit)
	return wire.AppendUvarint(b, limit.Actual)
}

// readRefused returns the error that encodeRefused was given, without its text.
func readRefused(r *wire.Reader) error {
	code := refusal(r.Byte())
	all := reasons()
	if r.Err() == nil && int(code) >= len(all) {
		r.Fail("refusal %d", code)
	}
	if r.Err() != nil {
		return r.Err()
	}
	if code == refusedInvalid || code == refusedEmptyKey {
		return all[code]
	}
	return &LimitError{Reason: all[code], Limit: r.Uvarint(), Actual: r.Uvarint()}
}

// decodeResult decodes the result of a command of the kind want. A command that
// was refused, or whose condition did not hold, is an error. So is a result that
// makes no sense: the command was applied, and what it did is unknown.
func decodeResult(data []byte, want commandKind) (result, error) {
	r := wire.NewReader(data)
	res, refused := readResult(r, want)
	if err := r.Close(); err != nil {
		return result{}, fmt.Errorf("%w: kv: result: %w", group.ErrUnknown, err)
	}
	return res, refused
}

func readResult(r *wire.Reader, want commandKind) (result, error) {
	if v := r.Byte(); r.Err() == nil && v != resultVersion {
		r.Fail("result version %d", v)
	}
	res := result{status: resultStatus(r.Byte())}
	switch res.status {
	case statusOK:
	case statusPrecondition:
		return result{}, &PreconditionError{Current: r.Uvarint()}
	case statusRefused:
		return result{}, readRefused(r)
	case statusReplayed:
		return result{}, fmt.Errorf("%w: %w", group.ErrUnknown, ErrReplayed)
	default:
		r.Fail("result status %d", res.status)
	}
	if res.kind = commandKind(r.Byte()); r.Err() == nil && res.kind != want {
		r.Fail("result of command kind %d, want %d", res.kind, want)
	}
	res.revision = r.Uvarint()
	res.flag = r.Bool()
	if res.kind == commandTxn {
		res.ops = readOpResults(r)
	}
	return res, nil
}

func readOpResults(r *wire.Reader) []OpResult {
	n := r.Count(2)
	if n == 0 {
		return nil
	}
	ops := make([]OpResult, 0, n)
	for range n {
		op := OpResult{Kind: OpKind(r.Byte()), Found: r.Bool()}
		if op.Kind < OpPut || op.Kind > OpGet {
			r.Fail("result of operation %d", op.Kind)
		}
		if op.Kind == OpGet && op.Found {
			op.Value = readValue(r)
		}
		ops = append(ops, op)
	}
	return ops
}
