package badgerdb

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestHoldBeginsWithALogThatHasNoBlocks: nobody may commit between the moment at which a log
// gets no blocks and the next look, which makes that log and may remove it again.
func TestHoldBeginsWithALogThatHasNoBlocks(t *testing.T) {
	var free atomic.Int64
	r := testRoom(t, &free)
	free.Store(100 * r.need) // of which a quota leaves nothing
	next := filepath.Join(t.TempDir(), walName(2))
	r.rotated("", next, false)
	if !r.held.Load() || len(r.kick) != 1 {
		t.Errorf("held: %t, looks at once: %d; the next log has no blocks",
			r.held.Load(), len(r.kick))
	}
	r.stopWaiting()
	if err := r.admit(); err == nil {
		t.Error("a commit was admitted, and the next log has no blocks")
	}
}

// TestReserveIsMadeOverOneThatIsThere: what was given is told a moment later, when there may be
// another one. That must not keep the reserve from being made for ever, and so commits waiting.
func TestReserveIsMadeOverOneThatIsThere(t *testing.T) {
	var free atomic.Int64
	log := slog.New(slog.DiscardHandler)
	r := &testRoom(t, &free).reserve
	if !r.make(time.Now(), log) || !r.there {
		t.Skip("the file system of the test cannot allocate ahead")
	}
	r.given.Store(true) // of one before
	r.settle(log)
	if r.there {
		t.Fatal("a reserve that was given is there")
	}
	if !r.make(time.Now(), log) || !r.there || r.short {
		t.Errorf("made again: there %t, short %t", r.there, r.short)
	}
	if got := blocks(t, r.path); got < r.size {
		t.Errorf("the reserve has %d bytes of blocks, want %d", got, r.size)
	}
	if !r.give() {
		t.Error("there was none to give")
	}
	if _, err := os.Stat(r.path); !os.IsNotExist(err) {
		t.Errorf("after it was given: %v", err)
	}
}
