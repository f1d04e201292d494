//go:build unix

package node

import "golang.org/x/sys/unix"

// diskFree returns the bytes that are free for us in dir's file system, -1 if
// that cannot be found out.
func diskFree(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // types differ between systems
}
