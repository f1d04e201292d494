package linear

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// envArtifacts names the directory that keeps what failed tests leave behind.
const envArtifacts = "RAFTYARD_ARTIFACTS"

const (
	maxDrawn   = 5                // keys
	drawingFor = 30 * time.Second // each, while the checker looks for the longest order
)

// Draw draws the histories of the keys that were refused, or were not decided,
// a page of HTML for each of the first few, and returns their paths. The directory
// is made if it is missing.
func (v *Verdict) Draw(dir string) ([]string, error) {
	parts := append(append([]part(nil), v.refused...), v.undecided...)
	if len(parts) == 0 {
		return nil, nil
	}
	//nolint:gosec // what a test leaves behind may be read by everybody
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("linear: draw: %w", err)
	}
	var paths []string
	var errs []error
	for i, p := range parts[:min(len(parts), maxDrawn)] {
		path := filepath.Join(dir, fmt.Sprintf("history-%d-%s.html", i+1, fileName(p.key)))
		m := model()
		_, info := porcupine.CheckOperationsVerbose(m, p.operations(), drawingFor)
		if err := porcupine.VisualizePath(m, info, path); err != nil {
			errs = append(errs, fmt.Errorf("linear: draw %s: %w", p.key, err))
			continue
		}
		paths = append(paths, path)
	}
	return paths, errors.Join(errs...)
}

// fileName makes a file name of any text.
func fileName(text string) string {
	const longest = 60
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		default:
			return '_'
		}
	}, text)
	return name[:min(len(name), longest)]
}

// ArtifactDir returns the directory for what a test leaves behind when it fails:
// one of the test's own in the directory that the variable RAFTYARD_ARTIFACTS
// names, or, without it, that of the test framework, which go test -artifacts
// keeps. The directory may still have to be made.
func ArtifactDir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(envArtifacts); dir != "" {
		return filepath.Join(dir, fileName(t.Name()))
	}
	return t.ArtifactDir()
}

// Require checks a history, logs what came of it, and fails the test unless every
// key is linearizable; what is not is drawn into [ArtifactDir].
func Require(t testing.TB, h *History, limit time.Duration) {
	t.Helper()
	v := h.Check(limit)
	t.Log(v)
	err := v.Err()
	if err == nil {
		return
	}
	paths, drawErr := v.Draw(ArtifactDir(t))
	if drawErr != nil {
		t.Error(drawErr)
	}
	t.Fatalf("%v\ndrawn in %s", err, strings.Join(paths, ", "))
}
