package badgerdb

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// logger passes what Badger reports to slog. Badger's information is a level
// lower here: it tells of every flush and compaction.
type logger struct {
	to        *slog.Logger
	mergeStep func()              // called before each step of Flatten, by its goroutine
	build     func(compactor int) // called before each table of a compaction
	merged    func()              // called when a part of a compaction has read all of its input
	built     func(compactor int) // called when all of them have been written
	failed    func(error)         // called when something could not be written or synced
	halt      func()              // called when a flush or compaction has failed; may wait for ever
}

// mergeText begins what Flatten says, and nobody else, before each of its steps.
// It holds nothing then, and no compaction is running: the one place where it can
// be held up or ended.
const mergeText = "Attempting to compact"

// buildText begins what a compaction says, and nobody else, when it has merged what goes
// into a table and is about to write it. It holds nothing then that others need.
const buildText = "[%d] LOG Compact. Added"

// mergedText is what each part of a compaction says, and nobody else, when it has read all of
// its input. The MANIFEST does not name what it becomes before all parts have said so and have
// been let go on. It holds nothing then that others need.
const mergedText = "Discard stats: %v"

// builtText and failedText begin what a compactor says when it is done.
const (
	builtText  = "[Compactor: %d] Compaction for level: %d DONE"
	failedText = "[Compactor: %d] LOG Compact FAILED"
)

// flushFailedText begins what a flush says that has failed, before it is tried again.
const flushFailedText = "error flushing memtable to disk"

// failTexts begin what Badger says of a write or sync that has failed, and that it would
// do again, or pass over.
var failTexts = []string{ //nolint:gochecknoglobals // a constant list
	flushFailedText,
	"Error while curlf sync",
	failedText,
}

// Errorf implements badger.Logger.
func (l logger) Errorf(format string, args ...any) {
	l.to.Error("badger", slog.String("text", text(format, args)))
	l.noteFailure(format, args)
	if l.halt != nil && strings.HasPrefix(format, flushFailedText) {
		l.halt()
	}
}

// Warningf implements badger.Logger.
func (l logger) Warningf(format string, args ...any) {
	l.to.Warn("badger", slog.String("text", text(format, args)))
	l.noteFailure(format, args)
	if !strings.HasPrefix(format, failedText) {
		return
	}
	if l.built != nil {
		l.built(compactor(args))
	}
	if l.halt != nil {
		l.halt()
	}
}

func (l logger) noteFailure(format string, args []any) {
	for _, t := range failTexts {
		if l.failed != nil && strings.HasPrefix(format, t) {
			l.failed(errors.New(text(format, args)))
		}
	}
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
func (l logger) Debugf(format string, args ...any) {
	switch {
	case l.build != nil && strings.HasPrefix(format, buildText):
		l.build(compactor(args))
	case l.merged != nil && format == mergedText:
		l.merged()
	case l.built != nil && strings.HasPrefix(format, builtText):
		l.built(compactor(args))
	}
}

// compactor returns which one says something: it comes first.
func compactor(args []any) int {
	if len(args) > 0 {
		if id, ok := args[0].(int); ok {
			return id
		}
	}
	return 0
}

func text(format string, args []any) string {
	return strings.TrimSpace(fmt.Sprintf(format, args...))
}
