package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SyncData makes the data of a file durable, but not its times.
func SyncData(f *os.File) error {
	if err := syscall.Fdatasync(int(f.Fd())); err != nil {
		return fmt.Errorf("fdatasync %s: %w", f.Name(), err)
	}
	return nil
}

// Taken returns how many bytes the device below a directory has taken, from whomever; zero:
// there is none, as with tmpfs. What the kernel says of a process counts a mapped file by the
// largest pages in which it has it in memory, which can be a thousand times what is written.
func Taken(dir string) (uint64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, nil
	}
	file := fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev))
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	const (
		sectors = 6 // which of the columns
		sector  = 512
	)
	columns := strings.Fields(string(data))
	if len(columns) <= sectors {
		return 0, fmt.Errorf("%s is %q", file, data)
	}
	n, err := strconv.ParseUint(columns[sectors], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n * sector, nil
}
