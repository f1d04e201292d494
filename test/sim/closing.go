package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// stop closes the node in order.
func (h *host) stop() {
	if h.state != running {
		return
	}
	h.state = stopping
	h.log("closes", "")
	st, n := h.st, h.node
	st.Go("close", func() {
		ctx, cancel := st.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := n.Close(ctx)
		h.w.turns.After(0, func() {
			if h.st == st && h.state == stopping {
				h.closed(err)
			}
		})
	})
}

// closed hears that the node has closed. Whoever has called it and has no answer yet gets
// one soon, and has helpers until then: what is left over shows after that.
func (h *host) closed(err error) {
	if slices.Contains(h.st.Processes(), callProcess) {
		st := h.st
		h.w.turns.After(5*time.Millisecond, func() {
			if h.st == st && h.state == stopping {
				h.closed(err)
			}
		})
		return
	}
	if err != nil && !h.broken {
		h.w.fail("closes", fmt.Errorf("node %d: close: %w", h.id, err))
	}
	for _, name := range h.st.Processes() {
		if name != "watch" {
			h.w.leaks = append(h.w.leaks, fmt.Sprintf("node %d: process %s", h.id, name))
		}
	}
	h.log("is closed", "")
	h.crash((*simdisk.Disk).Kill, check.LostNothing)
}
