package config

import (
	"strings"
	"testing"
)

// TestPseudoFileSystems: no data can be kept in /proc, although the superuser may
// write there.
func TestPseudoFileSystems(t *testing.T) {
	flags := map[string]string{
		"cluster": "c", "node-id": "1", "data-dir": "/proc/x",
		"nodes": "[{id: 1, peer: 'a:1', http: 'a:2'}]",
	}
	_, err := Load(Sources{Flags: flags})
	if err == nil || !strings.Contains(err.Error(), "/proc is no file system for data") {
		t.Errorf("a data directory in /proc = %v, want a refusal", err)
	}
	flags["data-dir"] = t.TempDir()
	if _, err := Load(Sources{Flags: flags}); err != nil {
		t.Errorf("a data directory on a disk = %v", err)
	}
}
