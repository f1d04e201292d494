//go:build unix

package daemon

import "golang.org/x/sys/unix"

// descriptors returns how many files the process may have open; zero: nobody knows.
func descriptors() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	//nolint:unconvert // the types differ between systems
	return int64(min(uint64(limit.Cur), 1<<40))
}
