package cli

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
)

// A demoPhase is what the nodes of a demo do: they start, run, stop.
type demoPhase struct{ now atomic.Int32 }

const (
	demoStarts = iota
	demoRuns
	demoStops // nothing comes after it
)

func (p *demoPhase) run()  { p.now.CompareAndSwap(demoStarts, demoRuns) }
func (p *demoPhase) stop() { p.now.Store(demoStops) }

// A calmHandler leaves out what nodes warn of when all of them come or go at
// once, which on its own would be worth a look.
type calmHandler struct {
	slog.Handler
	phase *demoPhase
}

// startNoise are the warnings of nodes that wait for each other.
func startNoise() []string {
	return []string{
		"peer lost", "connection to peer lost or not made",
		"waiting for a majority of the system group",
	}
}

// Handle passes a record on, or drops it.
func (h calmHandler) Handle(ctx context.Context, r slog.Record) error {
	switch h.phase.now.Load() {
	case demoStarts:
		if r.Level < slog.LevelError && slices.Contains(startNoise(), r.Message) {
			return nil
		}
	case demoStops:
		if r.Level < slog.LevelError {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that adds attributes.
func (h calmHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return calmHandler{Handler: h.Handler.WithAttrs(attrs), phase: h.phase}
}

// WithGroup returns a handler that begins a group of attributes.
func (h calmHandler) WithGroup(name string) slog.Handler {
	return calmHandler{Handler: h.Handler.WithGroup(name), phase: h.phase}
}
