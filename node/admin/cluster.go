package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

func (h *Handler) getStatus(c *call) error {
	return c.send(http.StatusOK, h.cfg.Node.Status(c.r.Context()))
}

// livez tells a supervisor whether to restart the process. It asks nothing but
// whether the log store works: a cluster without a quorum is not mended by
// killing its nodes.
func (h *Handler) livez(c *call) error {
	if err := h.cfg.Node.Live(); err != nil {
		return newProblem(client.CodeStoreFailed, "%v", err)
	}
	return c.send(http.StatusOK, liveness{Live: true})
}

type liveness struct {
	Live bool `json:"live"`
}

type readiness struct {
	Ready  bool         `json:"ready"`
	Checks []node.Check `json:"checks"`
}

// readyz tells a load balancer whether to send requests here.
func (h *Handler) readyz(c *call) error {
	verbose, err := c.flag("verbose")
	if err != nil {
		return err
	}
	ready, checks := h.cfg.Node.Ready()
	switch {
	case verbose:
		status := http.StatusOK
		if !ready {
			status = http.StatusServiceUnavailable
		}
		c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		c.write(status, checkLines(ready, checks))
		return nil
	case ready:
		return c.send(http.StatusOK, readiness{Ready: true, Checks: checks})
	default:
		return notReady(checks)
	}
}

// checkLines returns a line for each check and one for all.
func checkLines(ready bool, checks []node.Check) []byte {
	var b bytes.Buffer
	for _, check := range checks {
		sign, detail := "+", "ok"
		if !check.OK {
			sign, detail = "-", "failed"
		}
		if check.Detail != "" {
			detail = check.Detail
		}
		fmt.Fprintf(&b, "[%s]%s %s\n", sign, check.Name, detail)
	}
	if ready {
		b.WriteString("ready\n")
	} else {
		b.WriteString("not ready\n")
	}
	return b.Bytes()
}

func notReady(checks []node.Check) error {
	var failing []string
	p := newProblem(client.CodeNotReady, "")
	for _, check := range checks {
		p.Checks = append(p.Checks, client.Check(check))
		switch {
		case check.OK:
		case check.Detail != "":
			failing = append(failing, check.Name+": "+check.Detail)
		default:
			failing = append(failing, check.Name)
		}
	}
	p.Detail = strings.Join(failing, "; ")
	return p
}
