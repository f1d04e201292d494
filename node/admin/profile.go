package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"time"

	"github.com/raftyard/raftyard/client"
)

// maxProfileSeconds bounds a CPU profile and an execution trace.
const maxProfileSeconds = 60

// The handlers of net/http/pprof would do, but importing it registers them on
// the default mux of whichever program embeds a node.

func (h *Handler) profileIndex(c *call) error {
	var b bytes.Buffer
	b.WriteString("profile?seconds=30\ntrace?seconds=1\n")
	for _, p := range pprof.Profiles() {
		fmt.Fprintf(&b, "%s?debug=1 (%d)\n", p.Name(), p.Count())
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.write(http.StatusOK, b.Bytes())
	return nil
}

func (h *Handler) profile(c *call) error {
	switch name := c.r.PathValue("name"); name {
	case "profile":
		return c.record(30, func(b *bytes.Buffer) error { return pprof.StartCPUProfile(b) },
			pprof.StopCPUProfile)
	case "trace":
		return c.record(1, func(b *bytes.Buffer) error { return trace.Start(b) }, trace.Stop)
	default:
		return c.lookup(name)
	}
}

func (c *call) lookup(name string) error {
	debug, err := c.number("debug", 0, 0, 2)
	if err != nil {
		return err
	}
	p := pprof.Lookup(name)
	if p == nil {
		var names []string
		for _, p := range pprof.Profiles() {
			names = append(names, p.Name())
		}
		slices.Sort(names)
		return newProblem(client.CodeNotFound, "no profile %q, there are %v", name, names)
	}
	var b bytes.Buffer
	if err := p.WriteTo(&b, int(debug)); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	c.sendProfile(name, b.Bytes(), debug > 0)
	return nil
}

// record runs a recorder for some seconds. The process has one of each; who comes
// while it runs is told so.
func (c *call) record(absent uint64, start func(*bytes.Buffer) error, stop func()) error {
	seconds, err := c.number("seconds", absent, 1, maxProfileSeconds)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := start(&b); err != nil {
		return newProblem(client.CodeOverloaded, "%v", err)
	}
	length := time.Duration(seconds) * time.Second
	c.limitTo(length + c.limit)
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		stop()
	case <-c.r.Context().Done():
		stop()
		return c.r.Context().Err()
	}
	c.sendProfile(c.r.PathValue("name"), b.Bytes(), false)
	return nil
}

func (c *call) sendProfile(name string, data []byte, text bool) {
	header := c.w.Header()
	if text {
		header.Set("Content-Type", "text/plain; charset=utf-8")
	} else {
		header.Set("Content-Type", "application/octet-stream")
		header.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	}
	c.write(http.StatusOK, data)
}
