//go:build !linux

package bench

import "os"

// syncData makes the data of a file durable.
func syncData(f *os.File) error { return f.Sync() }

// written is only known on Linux.
func written(string) (uint64, error) { return 0, nil }
