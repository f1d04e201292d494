package bench

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

// syncData makes the data of a file durable, but not times.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// written returns how many bytes the device below a directory has taken, from whomever; zero:
// the kernel does not say. What it says of a process counts a mapped file by the largest
// pages in which it has it in memory, which can be a thousand times what is written.
func written(dir string) (uint64, error) {
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
		return 0, nil // no device of its own, such as tmpfs
	}
	if err != nil {
		return 0, err
	}
	const (
		sectors = 6
		sector  = 512
	)
	fields := strings.Fields(string(data))
	if len(fields) <= sectors {
		return 0, fmt.Errorf("%s is %q", file, data)
	}
	n, err := strconv.ParseUint(fields[sectors], 10, 64)
	return n * sector, err
}
