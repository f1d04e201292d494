//go:build unix

package cluster

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// alarms are what no log of a sound node holds, whatever is done to its process.
func alarms() []string {
	return []string{
		"panic:", "fatal error:", "DATA RACE", "level=error", "level=fatal",
		"replica stopped", "replica not started",
	}
}

const (
	maxComplaints = 20
	maxLogEnd     = 60 // lines
)

// complaints returns the lines of the node's log that fail a test.
func (n *Node) complaints() []string {
	var found []string
	for line := range n.logLines() {
		alarming := slices.ContainsFunc(alarms(), func(a string) bool {
			return strings.Contains(line, a)
		})
		excused := slices.ContainsFunc(n.cluster.cfg.Tolerate, func(e string) bool {
			return strings.Contains(line, e)
		})
		if alarming && !excused && len(found) < maxComplaints {
			found = append(found, line)
		}
	}
	return found
}

// LogLines returns the lines of the node's log so far that hold all the texts.
func (n *Node) LogLines(texts ...string) []string {
	var found []string
	for line := range n.logLines() {
		if !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(line, t) }) {
			found = append(found, line)
		}
	}
	return found
}

// logEnd returns the last lines of the node's log.
func (n *Node) logEnd() string {
	var lines []string
	for line := range n.logLines() {
		lines = append(lines, line)
		if len(lines) > 2*maxLogEnd {
			lines = append(lines[:0], lines[maxLogEnd:]...)
		}
	}
	return strings.Join(lines[max(0, len(lines)-maxLogEnd):], "\n")
}

// keepLog copies the node's log to a directory, unless it is there.
func (n *Node) keepLog(dir string) error {
	kept := filepath.Join(dir, filepath.Base(n.log))
	if kept == n.log {
		return nil
	}
	b, err := os.ReadFile(n.log)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was never started
	}
	if err == nil {
		//nolint:gosec // what a test leaves behind may be read by everybody
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	//nolint:gosec // whoever runs the test says where
	return os.WriteFile(kept, b, 0o600)
}

// logLines goes through the node's log. One that cannot be read is empty.
func (n *Node) logLines() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		f, err := os.Open(n.log)
		if err != nil {
			return
		}
		defer func() { _ = f.Close() }()
		scanner := bufio.NewScanner(f)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			if !yield(scanner.Text()) {
				return
			}
		}
	}
}
