package node

import (
	"context"
	"log/slog"

	"github.com/raftyard/raftyard"
)

// groupHandler adds a group to what is logged of it. A logger of its own, as With of package
// slog makes it, takes some hundred bytes for each of thousands of replicas, of which few
// ever say anything: it is made then.
type groupHandler struct {
	next  slog.Handler
	group raftyard.GroupID
}

func (h groupHandler) with(attrs ...slog.Attr) slog.Handler {
	return h.next.WithAttrs(append([]slog.Attr{groupAttr(h.group)}, attrs...))
}

// Enabled implements [slog.Handler].
func (h groupHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h groupHandler) Handle(ctx context.Context, rec slog.Record) error {
	return h.with().Handle(ctx, rec)
}

// WithAttrs implements [slog.Handler].
func (h groupHandler) WithAttrs(attrs []slog.Attr) slog.Handler { return h.with(attrs...) }

// WithGroup implements [slog.Handler].
func (h groupHandler) WithGroup(name string) slog.Handler { return h.with().WithGroup(name) }

// logger is what the replica logs with.
func (r *replica) logger() *slog.Logger {
	return r.worker.node.logger.With(groupAttr(r.group), replicaAttr(r.id))
}
