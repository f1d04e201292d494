package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAddressOfALineOfAnother: what the list of founding nodes gives to another node is a slip
// where nothing is yet, and history for a node that has a directory.
func TestAddressOfALineOfAnother(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "node.yaml")
	text := strings.ReplaceAll(base, "DIR", dir) +
		"listen: {http: \"127.0.0.1:8750\", peer: \"127.0.0.1:8711\"}\n" +
		"advertise: {peer: \"127.0.0.1:8711\"}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func() (*Loaded, error) {
		return Load(Sources{
			File:      path,
			LookupEnv: func(string) (string, bool) { return "", false },
		})
	}
	_, err := load()
	for _, key := range []string{"listen.peer", "advertise.peer"} {
		if want := key + `: "127.0.0.1:8711": the address of node 2 (nodes[1].peer)`; err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("without a directory: %v, want %s", err, want)
		}
	}
	data := filepath.Join(dir, "data")
	if err = os.Mkdir(data, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err = load(); err == nil {
		t.Error("an empty directory is taken for one that was used")
	}
	if err = os.WriteFile(filepath.Join(data, "IDENTITY"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := load()
	if err != nil {
		t.Fatalf("a node that has moved: %v", err)
	}
	warned := map[string]bool{}
	for _, w := range loaded.Warnings {
		if strings.Contains(w.Want, "only if the other one has moved") {
			warned[w.Key] = true
		}
	}
	if !warned["listen.peer"] || !warned["advertise.peer"] || len(warned) != 2 {
		t.Errorf("a node that has moved is warned of %v", loaded.Warnings)
	}
}
