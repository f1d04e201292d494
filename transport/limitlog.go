package transport

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// limitedLog logs each kind of event about each subject at most once in an
// interval, and then says how often it has happened meanwhile.
type limitedLog struct {
	log      func(event string, attrs []slog.Attr)
	interval time.Duration

	mu   sync.Mutex
	seen map[logKey]*logged
}

// logKey is what is counted together. Subjects come from peers, so their number
// is bounded by maxLogKeys.
type logKey struct {
	event   string
	subject uint64
}

type logged struct {
	at         time.Time
	suppressed int
}

const maxLogKeys = 1024

func newLimitedLog(log *slog.Logger, interval time.Duration) *limitedLog {
	// What is logged is about connections and peers, not about a caller's request,
	// so no caller's context belongs to it.
	warn := func(event string, attrs []slog.Attr) {
		//nolint:sloglint // the events are few, and named where they are found
		log.LogAttrs(context.Background(), slog.LevelWarn, event, attrs...)
	}
	return &limitedLog{log: warn, interval: interval, seen: make(map[logKey]*logged)}
}

// warn logs the event about the subject, a node or zero, unless it did a short
// time ago.
func (l *limitedLog) warn(event string, subject uint64, attrs ...slog.Attr) {
	suppressed, ok := l.admit(logKey{event, subject}, time.Now())
	if !ok {
		return
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	l.log(event, attrs)
}

func (l *limitedLog) admit(k logKey, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.seen[k]
	if e == nil {
		if len(l.seen) >= maxLogKeys {
			l.forgetLocked(now)
		}
		if len(l.seen) >= maxLogKeys {
			return 0, false
		}
		l.seen[k] = &logged{at: now}
		return 0, true
	}
	if now.Sub(e.at) < l.interval {
		e.suppressed++
		return 0, false
	}
	suppressed, e.suppressed, e.at = e.suppressed, 0, now
	return suppressed, true
}

func (l *limitedLog) forgetLocked(now time.Time) {
	for k, e := range l.seen {
		if now.Sub(e.at) >= l.interval {
			delete(l.seen, k)
		}
	}
}
