package daemon

import (
	"io"
	"log/slog"
	"time"

	"github.com/sirupsen/logrus"
	logrusslog "github.com/sirupsen/logrus/hooks/slog"

	"github.com/raftyard/raftyard/internal/config"
)

// NewLogger returns the daemon's logger. It writes through logrus, which is
// where a program that embeds the library may already send its own.
func NewLogger(out io.Writer, cfg config.Log) *slog.Logger {
	l := logrus.New()
	l.SetOutput(out)
	l.SetLevel(level(cfg.Level))
	if cfg.Format == "json" {
		l.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	} else {
		l.SetFormatter(&logrus.TextFormatter{
			FullTimestamp: true, TimestampFormat: "2006-01-02T15:04:05.000Z07:00",
		})
	}
	return slog.New(logrusslog.NewHandler(l, nil))
}

// level returns the level of a word that a configuration allows.
func level(word string) logrus.Level {
	switch word {
	case "debug":
		return logrus.DebugLevel
	case "warn":
		return logrus.WarnLevel
	case "error":
		return logrus.ErrorLevel
	default:
		return logrus.InfoLevel
	}
}
