//go:build mutants

package mutant

import "sync/atomic"

var planted atomic.Uint32

// Set plants a bug and takes the one before away. None plants nothing.
func Set(b Bug) { planted.Store(uint32(b)) }

// On reports whether a bug is planted.
func On(b Bug) bool { return Bug(planted.Load()) == b }
