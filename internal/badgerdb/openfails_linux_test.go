package badgerdb

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// onText is a log that does something once, when it is told a text.
type onText struct {
	slog.Handler

	text string
	once *sync.Once
	do   func()
}

func (onText) Enabled(context.Context, slog.Level) bool { return true }

func (h onText) Handle(_ context.Context, r slog.Record) error {
	said := r.Message
	r.Attrs(func(a slog.Attr) bool {
		said += " " + a.Value.String()
		return true
	})
	if strings.Contains(said, h.text) {
		h.once.Do(h.do)
	}
	return nil
}

// TestOpenFailsHalfWay has Open fail when Badger is open already, or what is adopted partly so. It
// says why, leaves nothing behind in the process, and the next one opens the database with all
// that it had.
func TestOpenFailsHalfWay(t *testing.T) {
	const badgerIsOpen, adopting = "Set nextTxnTs to", "of which the journal has everything"
	whole, want := withJournal(t, testOptions)
	for _, tt := range []struct{ name, when, pattern string }{
		{"Badger's log is none", badgerIsOpen, "9%04d.mem"},
		{"no next file", badgerIsOpen, "%05d-new" + spareExt},
		{"no name for the next file", badgerIsOpen, "%05d" + journalExt},
		{"no name for a log", adopting, "%05d.mem"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			watches := descriptors(t, "inotify")
			o := copied(t, whole)
			var made []string
			broken := o
			broken.Logger = slog.New(onText{
				Handler: slog.DiscardHandler, text: tt.when, once: new(sync.Once),
				do: func() { made = inTheWay(t, o.Dir, tt.pattern) },
			})
			_, err := Open(broken)
			if err == nil || !slices.ContainsFunc(made, func(path string) bool {
				return strings.Contains(err.Error(), filepath.Base(path))
			}) {
				t.Fatalf("Open = %v, want it to name one of %d directories", err, len(made))
			}
			goleak.VerifyNone(t, before)
			if got := descriptors(t, o.Dir); len(got) > 0 {
				t.Errorf("it has left open %q", got)
			}
			if got := descriptors(t, "inotify"); len(got) != len(watches) {
				t.Errorf("%d watches are open, want %d as before", len(got), len(watches))
			}
			for _, path := range made {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			checkContent(t, "after Open has failed", o, want)
			o = killed(t, o, func(db *DB) {
				if got := openContent(t, db); !slices.Equal(got, want) {
					t.Errorf("it holds other things: %s", cmp.Diff(want, got))
				}
			})
			checkContent(t, "opened once more", o, want)
		})
	}
}

// inTheWay makes directories, with something in them, of all names that are free.
func inTheWay(t *testing.T, dir, pattern string) (made []string) {
	t.Helper()
	for id := range 60 {
		path := filepath.Join(dir, fmt.Sprintf(pattern, id+1))
		if os.Mkdir(path, 0o700) != nil {
			continue
		}
		if err := os.Mkdir(filepath.Join(path, "x"), 0o700); err != nil {
			t.Error(err)
		}
		made = append(made, path)
	}
	return made
}

// descriptors returns what this process has open, or mapped, that has a text in its name.
func descriptors(t *testing.T, text string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		// One is that of the directory itself, and closed by now.
		name, closed := os.Readlink("/proc/self/fd/" + e.Name())
		if closed == nil && strings.Contains(name, text) {
			names = append(names, name)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, text) {
			names = append(names, strings.TrimSpace(line))
		}
	}
	return names
}
