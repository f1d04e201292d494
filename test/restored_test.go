//go:build unix

package test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// keepAside copies the directory of the victim, which does not run, as a file system does
// that takes snapshots.
func (m *damageMatrix) keepAside(t *testing.T) {
	t.Helper()
	m.aside = filepath.Join(t.TempDir(), "aside")
	copyDir(t, m.victim.Dir(), m.aside)
}

// copyDir copies a directory with what is in it; holes stay holes.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput()
	if err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

// restore goes the first of the two ways on that a refusal names: all is put back as it was
// at the stop. That must be as if nothing had happened: the node has its replicas, and they
// have what they had. Once in a run the same copy is put back again, when the node has promised
// more since: then the others must not hear it, and it must say why.
func (m *damageMatrix) restore(t *testing.T, before map[raftyard.GroupID]raftyard.ReplicaID) {
	t.Helper()
	complained := len(m.victim.LogLines("level=error"))
	m.putBack(t)
	m.victim.AwaitReady(damageLimit)
	m.whole(t)
	for g, id := range m.replicas(t) {
		if id != before[g] {
			t.Errorf("group %d has replica %d after all was restored, and had %d", g, id, before[g])
		}
	}
	if lines := m.victim.LogLines("level=error")[complained:]; len(lines) > 0 {
		t.Errorf("after all was restored: %q", lines)
	}
	m.verify(t)
	if m.older {
		m.victim.Kill()
		return
	}
	m.older = true
	m.cells++
	m.write(t, 10, 20) // also through the victim
	m.victim.Kill()
	m.putBack(t)
	cluster.Eventually(t, damageLimit, "the node says that its copy is an older one", func() error {
		a := m.victim.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: "/readyz"})
		return want(a.Why == client.CodeNotReady && strings.Contains(a.String(), "copy"), "%v", a)
	})
	for _, n := range m.Nodes()[:2] {
		for _, g := range m.groups {
			m.verifyGroup(t, n, g)
		}
	}
	terminate(t, m.victim)
}

// putBack starts the victim, which does not run, with the copy of its directory.
func (m *damageMatrix) putBack(t *testing.T) {
	t.Helper()
	m.victim.Wipe()
	copyDir(t, m.aside, m.victim.Dir())
	m.victim.Start()
}
