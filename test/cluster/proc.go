//go:build unix

package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// allocated returns how much of the disk a file takes.
func allocated(info os.FileInfo) int64 {
	const blockSize = 512 // of st_blocks, whatever the file system's is
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * blockSize
	}
	return info.Size()
}

// A Memory is how much memory a process has in use: all of it that is resident,
// and the part that is its own and not the pages of mapped files.
type Memory struct {
	Resident, Anonymous int64
}

// Memory returns the memory of the node's process. It needs /proc.
func (n *Node) Memory() (Memory, error) {
	m, err := MemoryOf(strconv.Itoa(n.PID()))
	if err != nil {
		err = fmt.Errorf("memory of node %d: %w", n.id, err)
	}
	return m, err
}

// MemoryOf returns the memory of a process by its id, or of this one, "self". It needs /proc.
func MemoryOf(pid string) (Memory, error) {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(status)) {
		name, text, _ := strings.Cut(line, ":")
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
		if err != nil {
			continue // not one of those that count memory
		}
		switch name {
		case "VmRSS":
			m.Resident = kib << 10
		case "RssAnon":
			m.Anonymous = kib << 10
		}
	}
	return m, nil
}
