package group

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/raftyard/raftyard"
)

// raftLogger gives raft's messages to slog. raft tells of every election and
// change of configuration as information; with thousands of groups that is
// debugging. What raft calls a panic is one, with a [*FaultError] as its value.
type raftLogger struct {
	group   raftyard.GroupID
	replica raftyard.ReplicaID
	to      *slog.Logger
}

func newRaftLogger(c Config) *raftLogger {
	return &raftLogger{group: c.Group, replica: c.Replica, to: c.Logger}
}

// say logs a text of raft's. Whose it is is added now: a logger of its own that says it takes
// some hundred bytes for each of many replicas.
func (l *raftLogger) say(ctx context.Context, level slog.Level, text string) {
	l.to.LogAttrs(ctx, level, "raft", slog.Uint64("group", uint64(l.group)),
		slog.Uint64("replica", uint64(l.replica)), slog.String("text", text))
}

func (l *raftLogger) log(level slog.Level, format string, args []any) {
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	text := fmt.Sprint(args...)
	if format != "" {
		text = fmt.Sprintf(format, args...)
	}
	l.say(ctx, level, text)
}

func (l *raftLogger) fault(text string) {
	l.say(context.Background(), slog.LevelError, text)
	panic(&FaultError{Group: l.group, Replica: l.replica, Reason: "raft: " + text})
}

// Debug implements raft.Logger.
func (l *raftLogger) Debug(v ...any) { l.log(slog.LevelDebug, "", v) }

// Debugf implements raft.Logger.
func (l *raftLogger) Debugf(f string, v ...any) { l.log(slog.LevelDebug, f, v) }

// Info implements raft.Logger.
func (l *raftLogger) Info(v ...any) { l.log(slog.LevelDebug, "", v) }

// Infof implements raft.Logger.
func (l *raftLogger) Infof(f string, v ...any) { l.log(slog.LevelDebug, f, v) }

// Warning implements raft.Logger.
func (l *raftLogger) Warning(v ...any) { l.log(slog.LevelWarn, "", v) }

// Warningf implements raft.Logger.
func (l *raftLogger) Warningf(f string, v ...any) { l.log(slog.LevelWarn, f, v) }

// Error implements raft.Logger.
func (l *raftLogger) Error(v ...any) { l.log(slog.LevelError, "", v) }

// Errorf implements raft.Logger.
func (l *raftLogger) Errorf(f string, v ...any) { l.log(slog.LevelError, f, v) }

// Fatal implements raft.Logger.
func (l *raftLogger) Fatal(v ...any) { l.fault(fmt.Sprint(v...)) }

// Fatalf implements raft.Logger.
func (l *raftLogger) Fatalf(f string, v ...any) { l.fault(fmt.Sprintf(f, v...)) }

// Panic implements raft.Logger.
func (l *raftLogger) Panic(v ...any) { l.fault(fmt.Sprint(v...)) }

// Panicf implements raft.Logger.
func (l *raftLogger) Panicf(f string, v ...any) { l.fault(fmt.Sprintf(f, v...)) }
