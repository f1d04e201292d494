package badgerdb

import (
	"log/slog"
	"math"
)

// noValues are those of a database that has none, in which nobody reads.
func noValues(dir string) *values {
	return newValues(dir, slog.New(slog.DiscardHandler), new(readers),
		func() uint64 { return math.MaxUint64 })
}
