package cli

import (
	"errors"
	"strings"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/config"
)

// Codes of a [failure] that did not come from a node.
const (
	codeUsage         = "usage"
	codeConfiguration = "configuration"
	codeUnreachable   = "unreachable"
	codeDiskFailed    = "disk_failed"
	codeInterrupted   = "interrupted"
	codeFailed        = "failed"
)

// A failure is what -o json writes to standard error when it was no node that
// said no: a problem as RFC 9457 puts it, without an HTTP status.
type failure struct {
	Title   string `json:"title"`
	Detail  string `json:"detail"`
	Code    string `json:"code"`
	Outcome string `json:"outcome,omitempty"`
}

// complainJSON writes why the command has failed as a problem.
func (a *app) complainJSON(err error) {
	var doc any = describe(err)
	if p, ok := errors.AsType[*client.Problem](err); ok && exitCode(err) != ExitInterrupted {
		doc = p
	}
	text, encodeErr := encodeJSON(doc)
	if encodeErr != nil {
		text = err.Error()
	}
	a.say("%s", strings.TrimSuffix(text, "\n"))
}

// describe returns the failure that err is.
func describe(err error) failure {
	f := failure{Title: "Failed", Detail: err.Error(), Code: codeFailed}
	switch exitCode(err) {
	case ExitUsage:
		f.Title, f.Code = "Wrong usage", codeUsage
		if _, ok := errors.AsType[*config.Error](err); ok {
			f.Title, f.Code = "Wrong configuration", codeConfiguration
		}
	case ExitUnreachable:
		f.Title, f.Code = "No node could be reached", codeUnreachable
		f.Outcome = client.OutcomeNotApplied
	case ExitUnknown:
		f.Title, f.Code = "Outcome unknown", client.CodeOutcomeUnknown
		f.Outcome = client.OutcomeUnknown
	case ExitDiskFailed:
		f.Title, f.Code = "Disk failed", codeDiskFailed
	case ExitInterrupted:
		f.Title, f.Code = "Interrupted", codeInterrupted
	}
	return f
}
