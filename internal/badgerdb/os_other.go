//go:build !linux && !darwin

package badgerdb

import (
	"log/slog"
	"math"
)

// freeSpace is not known here.
func freeSpace(string) (int64, error) { return math.MaxInt64, nil }

// lockDir leaves locking to Badger.
func lockDir(string) (unlock func() error, err error) { return func() error { return nil }, nil }

// shareDir cannot keep others away here.
func shareDir(string) (unlock func() error, err error) { return func() error { return nil }, nil }

// checkDescriptors knows no limit here.
func checkDescriptors(int, *slog.Logger) error { return nil }
