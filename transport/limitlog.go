package transport

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// limitedLog logs each kind of event about each subject at most once in an
// interval, and then says how often it has happened meanwhile. A logger may write
// to a full disk or to a pipe that nobody reads: it has a goroutine of its own, so
// that nobody else waits for it. What it cannot keep up with is dropped.
type limitedLog struct {
	log      func(r *logRecord)
	interval time.Duration
	records  chan logRecord
	dropped  atomic.Int64 // since the last record that was not

	mu   sync.Mutex
	seen map[logKey]*logged
}

type logRecord struct {
	event string
	attrs []slog.Attr
}

// maxLogRecords bounds what waits for the logger.
const maxLogRecords = 128

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
	warn := func(r *logRecord) {
		//nolint:sloglint // the events are few, and named where they are found
		log.LogAttrs(context.Background(), slog.LevelWarn, r.event, r.attrs...)
	}
	return &limitedLog{
		log: warn, interval: interval, records: make(chan logRecord, maxLogRecords),
		seen: make(map[logKey]*logged),
	}
}

// run logs what is to be logged until ctx ends, and then what there still is.
func (l *limitedLog) run(ctx context.Context) {
	for {
		select {
		case r := <-l.records:
			l.log(&r)
		case <-ctx.Done():
			for {
				select {
				case r := <-l.records:
					l.log(&r)
				default:
					return
				}
			}
		}
	}
}

// warn has the event about the subject, a node or zero, logged, unless it was a
// short time ago. It does not block.
func (l *limitedLog) warn(event string, subject uint64, attrs ...slog.Attr) {
	suppressed, ok := l.admit(logKey{event, subject}, time.Now())
	if !ok {
		return
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	dropped := l.dropped.Swap(0)
	if dropped > 0 {
		attrs = append(attrs, slog.Int64("dropped_records", dropped))
	}
	select {
	case l.records <- logRecord{event, attrs}:
	default:
		l.dropped.Add(dropped + 1)
	}
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
