package badgerdb

import (
	"fmt"
	"log/slog"
	"strings"
)

// logger passes what Badger reports to slog. Badger's information is a level
// lower here: it tells of every flush and compaction.
type logger struct {
	to        *slog.Logger
	mergeStep func() // called before each step of Flatten, by its goroutine
}

// mergeText begins what Flatten says, and nobody else, before each of its steps.
// It holds nothing then, and no compaction is running: the one place where it can
// be held up or ended.
const mergeText = "Attempting to compact"

// Errorf implements badger.Logger.
func (l logger) Errorf(format string, args ...any) {
	l.to.Error("badger", slog.String("text", text(format, args)))
}

// Warningf implements badger.Logger.
func (l logger) Warningf(format string, args ...any) {
	l.to.Warn("badger", slog.String("text", text(format, args)))
}

// Infof implements badger.Logger.
func (l logger) Infof(format string, args ...any) {
	if l.mergeStep != nil && strings.HasPrefix(format, mergeText) {
		l.mergeStep()
	}
	l.to.Debug("badger", slog.String("text", text(format, args)))
}

// Debugf implements badger.Logger. Badger calls it several times for each
// commit, so it is dropped.
func (l logger) Debugf(string, ...any) {}

func text(format string, args []any) string {
	return strings.TrimSpace(fmt.Sprintf(format, args...))
}
