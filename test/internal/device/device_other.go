//go:build !linux

package device

import "os"

// SyncData makes the data of a file durable.
func SyncData(f *os.File) error { return f.Sync() }

// Taken is only known on Linux; elsewhere it is zero.
func Taken(string) (uint64, error) { return 0, nil }
