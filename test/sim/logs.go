package sim

import (
	"context"
	"log/slog"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/sim/internal/trace"
)

// logs puts what a node logs into the trace.
type logs struct {
	w     *World
	node  raftyard.NodeID
	attrs string
}

// Enabled leaves out what is only for debugging.
func (l logs) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle adds a record to the trace.
func (l logs) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" { // it has addresses
			b.WriteString(" " + a.String())
		}
		return true
	})
	l.w.trace.Add(trace.Event{
		At: l.w.turns.Time(), Node: l.node, What: "logs", Text: b.String(),
	})
	return nil
}

// WithAttrs implements slog.Handler.
func (l logs) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		l.attrs += " " + a.String()
	}
	return l
}

// WithGroup implements slog.Handler. Nobody groups.
func (l logs) WithGroup(string) slog.Handler { return l }
