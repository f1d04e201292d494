package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// syncData makes the data of a file durable, but not times.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// written returns how many bytes the kernel has sent to disks for this process.
func written() (uint64, error) {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "write_bytes: "); ok {
			return strconv.ParseUint(text, 10, 64)
		}
	}
	return 0, fmt.Errorf("there is no write_bytes in %q", data)
}
