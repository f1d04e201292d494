package badgerdb

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// A collector returns the space of files that are kept for few of their values: it writes those
// anew, so that they are in the journal, and the file goes when all that has come to tables.
//
// A value that is written anew is the same pair in another place. Whether it still counts is
// looked at in the transaction that writes it: nothing is committed meanwhile.
//
// It has one goroutine, which start launches and stop waits for.
type collector struct {
	db      *DB
	rewrite func(fn func(Setter) error) error
	limit   int   // of what is written anew in one transaction
	file    int64 // bytes that a file takes
	log     *slog.Logger
	quiet   atomic.Bool // nobody writes

	rewritten atomic.Uint64 // bytes

	wake   chan struct{}   // of one
	ctx    context.Context //nolint:containedctx // it is the life of the goroutine
	cancel context.CancelFunc
	done   chan struct{}
}

const (
	// valueSlack is how many files of the journal may be kept for nothing.
	valueSlack = 8

	// quietSlack is valueSlack when nobody writes.
	quietSlack = 2

	// rewriteBytes is how much is written anew in one transaction, about.
	rewriteBytes = 256 << 10

	// rewritePause is how long passes after an error, and rewriteShare how many times as long
	// as a transaction the disk is left to others after it.
	rewritePause = 10 * time.Second
	rewriteShare = 3
)

func newCollector(db *DB, o Options) *collector {
	c := &collector{
		db: db, rewrite: o.Rewrite, file: walSize(o.MemTableSize), log: o.Logger,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if c.rewrite == nil {
		c.rewrite = func(fn func(Setter) error) error {
			return db.Commit(func(to *Txn) error { return fn(to) })
		}
	}
	c.limit = int(min(rewriteBytes, db.maxTxnBytes/2))
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *collector) start() { go c.run() }

// stop may wait for one transaction.
func (c *collector) stop() {
	c.cancel()
	<-c.done
}

// worst returns the file to be freed next, if there is one.
func (c *collector) worst() (id uint32, found bool) {
	slack := valueSlack * c.file
	if c.quiet.Load() {
		slack = quietSlack * c.file
	}
	return c.db.values.worst(slack)
}

// look has it work if there is something to be done.
func (c *collector) look() {
	if _, found := c.worst(); !found {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default: // it is about to
	}
}

func (c *collector) run() {
	defer close(c.done)
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.wake:
		}
		err := c.collect()
		if err == nil || errors.Is(err, ErrLater) || c.ctx.Err() != nil {
			continue
		}
		c.log.Warn("a file was not freed of the values that count",
			slog.String("dir", c.db.values.dir), slog.Any("error", err))
		c.sleep(rewritePause)
	}
}

func (c *collector) sleep(d time.Duration) {
	clock := time.NewTimer(d)
	defer clock.Stop()
	select {
	case <-c.ctx.Done():
	case <-clock.C:
	}
}

// collect frees the file in which the least counts.
func (c *collector) collect() error {
	id, found := c.worst()
	if !found {
		return nil
	}
	return c.free(id)
}

// free writes anew what counts in a file, and tells of what could not be, since it is not there. It
// looks a second time then: what was wrong may have been the reading.
func (c *collector) free(id uint32) error {
	lost, what, err := c.move(id, c.db.values.pairsIn(id))
	if err == nil && len(lost) > 0 {
		lost, what, err = c.move(id, lost)
	}
	if err != nil || len(lost) == 0 {
		return err
	}
	c.db.values.spoil(id)
	c.db.scrubber.noteValues(id, lost, wrongWith(lost, what))
	return nil
}

// move writes pairs of a file anew, and returns those that count and are not there. What is set if
// one of them cannot be read. When it is stopped it does not look at the rest.
func (c *collector) move(id uint32, pairs []livePair) (lost []livePair, what, err error) {
	f := c.db.values.fileOf(id)
	if f == nil { // it was let go of
		return nil, nil, nil
	}
	m := moving{pairs: pairs, counts: c.db.values.counts, file: pairReader{file: f}}
	for len(m.pairs) > 0 && c.ctx.Err() == nil {
		began := time.Now()
		batch, err := m.next(c.limit)
		if err == nil && len(batch) > 0 {
			err = c.write(batch)
		}
		if err != nil {
			return nil, nil, err
		}
		c.sleep(rewriteShare * time.Since(began))
	}
	return m.lost, m.what, nil
}

// write commits pairs again that still count.
func (c *collector) write(batch []livePair) error {
	var written uint64
	err := c.rewrite(func(to Setter) error {
		for _, p := range batch {
			if !c.db.values.counts(p.key, p.at) {
				continue
			}
			if err := to.Set(p.key, p.value); err != nil {
				return err
			}
			written += uint64(p.at.size)
		}
		return nil
	})
	if err == nil {
		c.rewritten.Add(written)
	}
	return err
}

// moving is what is left of a file to be written anew.
type moving struct {
	pairs  []livePair // in the order of the file
	counts func(key []byte, at place) bool
	file   pairReader

	lost []livePair // those that are not there
	what error      // why one of them cannot be read
}

// next returns the next pairs that count, with their values: of so many bytes at most, or one.
func (m *moving) next(limit int) (batch []livePair, err error) {
	for size := 0; len(m.pairs) > 0; m.pairs = m.pairs[1:] {
		p := m.pairs[0]
		if !m.counts(p.key, p.at) {
			continue
		}
		if size+int(p.at.size) > limit && len(batch) > 0 {
			break
		}
		value, err := m.file.value(p)
		switch {
		case saysNothing(err):
			return nil, err
		case value != nil:
			p.value = bytes.Clone(value)
			batch, size = append(batch, p), size+int(p.at.size)
		case m.counts(p.key, p.at): // or the file may have been closed meanwhile
			m.lose(p, err)
		}
	}
	return batch, nil
}

func (m *moving) lose(p livePair, err error) {
	m.lost = append(m.lost, p)
	if err != nil {
		m.what = cmp.Or(m.what, unreadable(err))
	}
}

// A Setter takes pairs of a transaction.
type Setter interface {
	Set(key, value []byte) error
}
