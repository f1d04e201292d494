package machine

import (
	"fmt"

	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/test/linear"
)

// Encode returns op as a command, or, if it is a Get, also as a question: one that
// goes through the log and one that does not.
func Encode(op linear.Op) []byte {
	b := make([]byte, 0, 1+3*3+len(op.Key)+len(op.Old)+len(op.Value))
	b = append(b, byte(op.Kind))
	b = wire.AppendString(b, op.Key)
	b = wire.AppendString(b, op.Old)
	return wire.AppendString(b, op.Value)
}

func decodeOp(b []byte) (linear.Op, error) {
	r := wire.NewReader(b)
	op := linear.Op{
		Kind: linear.Kind(r.Byte()), Key: r.String(), Old: r.String(), Value: r.String(),
	}
	if op.Kind < linear.Get || op.Kind > linear.Delete {
		r.Fail("%s", op.Kind)
	}
	if err := r.Close(); err != nil {
		return linear.Op{}, fmt.Errorf("command: %w", err)
	}
	return op, nil
}

// The first byte of an answer.
const (
	answerFound = 1 << iota
	answerOK
	answerRefused // the command cannot be read
	answerBits    = answerFound | answerOK
)

func appendResult(b []byte, r linear.Result) []byte {
	var flags byte
	if r.Found {
		flags |= answerFound
	}
	if r.OK {
		flags |= answerOK
	}
	return append(append(b, flags), r.Value...)
}

// Decode returns the answer to an op.
func Decode(b []byte) (linear.Result, error) {
	switch {
	case len(b) == 0 || b[0]&^answerBits != 0:
		return linear.Result{}, fmt.Errorf("%w: answer %x", wire.ErrMalformed, b)
	case b[0]&answerFound == 0 && len(b) > 1:
		return linear.Result{}, fmt.Errorf("%w: answer %x holds nothing", wire.ErrMalformed, b)
	default:
		return linear.Result{
			Found: b[0]&answerFound != 0, OK: b[0]&answerOK != 0, Value: string(b[1:]),
		}, nil
	}
}
