package grouptest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"
)

// patience is how long a machine may take for what must not wait.
const patience = 10 * time.Second

// errStuck: the machine waits for something that comes after it.
var errStuck = errors.New("it waits until the snapshot is written")

// A gate is a writer that does not take its first bytes before it is opened.
type gate struct {
	started chan struct{}
	opened  chan struct{}
	once    sync.Once
	release sync.Once
	buf     bytes.Buffer // of the writer's goroutine
}

func newGate() *gate {
	return &gate{started: make(chan struct{}), opened: make(chan struct{})}
}

// Write implements io.Writer.
func (g *gate) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.started) })
	<-g.opened
	return g.buf.Write(p)
}

func (g *gate) open() { g.release.Do(func() { close(g.opened) }) }

// waitStarted waits until the writer is at its first bytes, or has none.
func (g *gate) waitStarted(done <-chan struct{}) {
	select {
	case <-g.started:
	case <-done:
	}
}

// bytes returns what was written. The writer must be done.
func (g *gate) bytes() []byte { return g.buf.Bytes() }

// applyBeside applies the next n entries on another goroutine.
func (m *machine) applyBeside(n int) <-chan error {
	batch := m.batch(n)
	sm := m.sm
	c := make(chan error, 1)
	go func() {
		results, err := sm.Apply(batch)
		if err == nil && len(results) != len(batch) {
			err = fmt.Errorf("%d commands, %d results", len(batch), len(results))
		}
		c <- err
	}()
	return c
}

// await waits for what must not wait for anything else.
func (s Suite) await(c <-chan error) error {
	select {
	case err := <-c:
		return err
	case <-time.After(s.patience):
		return errStuck
	}
}
