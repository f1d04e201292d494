package badgerdb

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4/y"
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

	// readPiece is how much of a file cannot be read when one of its sectors cannot.
	readPiece = 64 << 10

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

// free writes anew what counts in a file.
func (c *collector) free(id uint32) error {
	content, _, err := c.load(id)
	if err != nil {
		return err
	}
	for at := walHeaderSize; at < len(content) && c.ctx.Err() == nil; {
		began := time.Now()
		if at, err = c.move(id, content, at); err != nil {
			return err
		}
		c.sleep(rewriteShare * time.Since(began))
	}
	if c.ctx.Err() == nil {
		return c.check(id, content)
	}
	return nil
}

// check tells of what could not be written anew, since it is not there. It looks a second time:
// what was wrong may have been the reading. If it was, the next one who frees the file has what
// this one had not.
func (c *collector) check(id uint32, content []byte) error {
	if len(c.db.values.lostIn(id, content)) == 0 {
		return nil
	}
	content, what, err := c.load(id)
	if err != nil {
		return err
	}
	lost := c.db.values.lostIn(id, content)
	if len(lost) == 0 {
		return nil
	}
	c.db.values.spoil(id)
	c.db.scrubber.noteValues(id, lost, wrongWith(lost, what))
	return nil
}

// load reads a whole file, or nothing if it was let go of. What is set if some of it cannot be
// read, for which there are zeros then.
func (c *collector) load(id uint32) (content []byte, what, err error) {
	f, size := c.db.values.whole(id)
	if f == nil {
		return nil, nil, nil
	}
	switch content, what = readPieces(f, size); {
	case errors.Is(what, os.ErrClosed): // just now
		return nil, nil, nil
	case saysNothing(what):
		return nil, nil, what
	default:
		return content, what, nil
	}
}

// readPieces reads a file of a length piece by piece. What is the first error: another one than
// that the file is shorter leaves zeros in place of a piece.
func readPieces(f io.ReaderAt, size int64) (content []byte, what error) {
	content = make([]byte, size)
	for at := int64(0); at < size; at += readPiece {
		piece := content[at:min(at+readPiece, size)]
		n, err := f.ReadAt(piece, at)
		if errors.Is(err, io.EOF) {
			return content[:at+int64(n)], what
		}
		if err != nil {
			clear(piece)
			what = cmp.Or(what, unreadable(err))
		}
	}
	return content, what
}

// move writes some of a file anew, from an offset on, and returns where to go on.
func (c *collector) move(id uint32, content []byte, from int) (at int, err error) {
	var moving []livePair
	size := 0
	for at = from; at < len(content); {
		e, ok := parseEntry(content[at:])
		if !ok { // the end, or something is damaged
			at = c.db.values.nextIn(id, at, len(content))
			continue
		}
		where := place{file: id, offset: uint32(at), size: uint32(e.size)}
		if key := y.ParseKey(e.key); c.db.values.counts(key, where) {
			if size += e.size; size > c.limit && len(moving) > 0 {
				break
			}
			moving = append(moving, livePair{where, key, e.value})
		}
		at += e.size
	}
	if len(moving) == 0 {
		return at, nil
	}
	var written uint64
	err = c.rewrite(func(to Setter) error {
		for _, p := range moving {
			if !c.db.values.counts(p.key, p.at) {
				continue
			}
			if err = to.Set(p.key, p.value); err != nil {
				return err
			}
			written += uint64(p.at.size)
		}
		return nil
	})
	if err == nil {
		c.rewritten.Add(written)
	}
	return at, err
}

// A Setter takes pairs of a transaction.
type Setter interface {
	Set(key, value []byte) error
}

// A livePair is a pair that counts, and where it is.
type livePair struct {
	at         place
	key, value []byte
}
