package sim

import (
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// witnessFiles are those in which the log store notes how far it is.
func witnessFiles() []string { return []string{"/data/sequence", "/data/inventory"} }

// A memo is how far a disk was at a time, and what was noted of that.
type memo struct {
	commits int
	notes   [][]byte
}

// memo returns how far the disk of the node is. The node must run.
func (h *host) memo() (m memo, err error) {
	m.commits = h.disk.Stats().Commits
	for _, path := range witnessFiles() {
		b, err := h.disk.Files().ReadFile(path)
		if err != nil {
			return m, err
		}
		m.notes = append(m.notes, b)
	}
	return m, nil
}

// forget crashes the node and takes everything from its disk that came after a memo, with
// every note of it. Nobody but its peers can know. It must be no more than a disk can lose.
func (h *host) forget(m memo) {
	h.log("forgets its newest commits", "")
	h.crash(func(d *simdisk.Disk) {
		d.LoseTail(d.Stats().Commits - m.commits)
		for i, path := range witnessFiles() {
			if err := writeFile(d, path, m.notes[i]); err != nil {
				h.w.fail("forget", err)
			}
		}
	}, check.LostUnseen)
}
