package linear

import "github.com/anishathalye/porcupine"

// A register is what a key holds.
type register struct {
	there bool
	value string
}

func (r register) String() string {
	if !r.there {
		return "nothing"
	}
	return r.value
}

// told is what the model is given as the output of an operation.
type told struct {
	Result
	unknown bool
}

// model is one key as it ought to be.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, output any) (bool, any) {
			now, isRegister := state.(register)
			op, isOp := input.(Op)
			out, isTold := output.(told)
			if !isRegister || !isOp || !isTold {
				return false, state
			}
			return step(now, op, out)
		},
		DescribeOperation: func(input, output any) string {
			op, isOp := input.(Op)
			out, isTold := output.(told)
			if !isOp || !isTold {
				return "not an operation"
			}
			return describe(op, out.Result, out.unknown)
		},
		DescribeState: func(state any) string {
			now, isRegister := state.(register)
			if !isRegister {
				return "not a register"
			}
			return now.String()
		},
	}
}

// step says whether an operation may have ended so at a state, and what the state
// is afterwards. One with an unknown outcome fits everywhere, and has its effect
// as if it were done there.
func step(now register, op Op, out told) (bool, register) {
	switch op.Kind {
	case Get:
		seen := register{there: out.Found, value: out.Value}
		return out.unknown || seen == now, now
	case Put:
		return true, register{there: true, value: op.Value}
	case Append:
		return true, register{there: true, value: now.value + op.Value}
	case Delete:
		return out.unknown || out.OK == now.there, register{}
	case Create:
		return conditional(now, op, out, !now.there)
	case Swap:
		return conditional(now, op, out, now == register{there: true, value: op.Old})
	default:
		return false, now
	}
}

// conditional is the step of an operation that is done where its condition holds.
func conditional(now register, op Op, out told, holds bool) (bool, register) {
	fits := out.unknown || out.OK == holds
	if !holds {
		return fits, now
	}
	return fits, register{there: true, value: op.Value}
}
