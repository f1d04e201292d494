package node

import (
	"bytes"
	"log/slog"
	"testing"
)

// TestGroupHandler compares what is logged with what a logger says that has the group among
// its attributes.
func TestGroupHandler(t *testing.T) {
	tests := []struct {
		name string
		of   func(l *slog.Logger) *slog.Logger
	}{
		{"as it is", func(l *slog.Logger) *slog.Logger { return l }},
		{"with an attribute", func(l *slog.Logger) *slog.Logger {
			return l.With(slog.Int("a", 1))
		}},
		{"in a group of attributes", func(l *slog.Logger) *slog.Logger { return l.WithGroup("g") }},
		{"with both", func(l *slog.Logger) *slog.Logger {
			return l.With(slog.Int("a", 1)).WithGroup("g").With(slog.Int("b", 2))
		}},
		{"with nothing", func(l *slog.Logger) *slog.Logger { return l.WithGroup("").With() }},
	}
	for _, base := range []func(l *slog.Logger) *slog.Logger{
		tests[0].of, tests[1].of, tests[3].of,
	} {
		for _, tt := range tests {
			var got, want bytes.Buffer
			say := func(to *bytes.Buffer, logger func(l *slog.Logger) *slog.Logger) {
				l := base(slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{
					ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
						if a.Key == slog.TimeKey {
							return slog.Attr{}
						}
						return a
					},
				})))
				l = tt.of(logger(l))
				l.Info("hello", slog.Int("c", 3))
				l.Debug("not this")
			}
			say(&got, func(l *slog.Logger) *slog.Logger {
				return slog.New(groupHandler{next: l.Handler(), group: 7})
			})
			say(&want, func(l *slog.Logger) *slog.Logger { return l.With(groupAttr(7)) })
			if got.String() != want.String() || want.Len() == 0 {
				t.Errorf("%s: %s, want %s", tt.name, &got, &want)
			}
		}
	}
}
