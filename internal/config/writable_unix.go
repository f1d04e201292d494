//go:build unix

package config

import "golang.org/x/sys/unix"

// writable reports whether files can be made in dir, without making one.
func writable(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }
