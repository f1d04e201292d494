package badgerdb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// syncData makes the content of a file durable, and what is needed to find it, such as its
// length.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// adviseRandom finds where this process has mapped the file and announces random
// access there. If the mapping goes away meanwhile, the advice falls on nothing
// or on a mapping that it does not hurt.
func adviseRandom(path string) (err error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, maps.Close()) }()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasSuffix(line, path) {
			continue
		}
		from, to, ok := addressRange(line)
		if !ok {
			return fmt.Errorf("cannot read %q", line)
		}
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_RANDOM)
		if errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return lines.Err()
}

// addressRange reads the front of a line of /proc/self/maps, from-to in hexadecimal.
func addressRange(line string) (from, to uintptr, ok bool) {
	front, _, _ := strings.Cut(line, " ")
	a, b, _ := strings.Cut(front, "-")
	f, err1 := strconv.ParseUint(a, 16, 64)
	t, err2 := strconv.ParseUint(b, 16, 64)
	return uintptr(f), uintptr(t), err1 == nil && err2 == nil && f < t
}

// dataEnd returns where the data of a sparse file ends, and seeks to its start.
func dataEnd(f *os.File) (int64, error) {
	var end int64
	for {
		data, err := f.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // no data from here on
		}
		if err != nil {
			return 0, err
		}
		if end, err = f.Seek(data, unix.SEEK_HOLE); err != nil {
			return 0, err
		}
	}
	_, err := f.Seek(0, io.SeekStart)
	return end, err
}

// allocate gives a file so many bytes of blocks, from its start, and leaves its length.
// [errors.ErrUnsupported] means that the file system cannot.
func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
		}
		return nil
	}
}
