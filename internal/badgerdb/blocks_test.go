//go:build unix

package badgerdb

import (
	"os"
	"syscall"
	"testing"
)

// blocks returns how much of the disk a file takes.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("%s: the system does not tell its blocks", path)
	}
	return st.Blocks * 512
}
