package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// errTimeout is what a connection's read returns after its deadline.
var errTimeout = os.ErrDeadlineExceeded

// newProblem returns a problem with the status, title and waiting time of its
// code. Its outcome is that nothing happened.
func newProblem(code, format string, args ...any) *client.Problem {
	status, title, wait := describe(code)
	p := &client.Problem{
		Type:         "about:blank",
		Status:       status,
		Title:        title,
		Detail:       fmt.Sprintf(format, args...),
		Code:         code,
		RetryAfterMS: wait.Milliseconds(),
		Outcome:      client.OutcomeNotApplied,
	}
	// What is decided must never be read as "nothing happened".
	if code == client.CodeOutcomeUnknown || code == client.CodeNotReached {
		p.Outcome = client.OutcomeUnknown
	}
	return p
}

// describe returns what every problem of a code has: its HTTP status, its title
// and after how long a retry may help, if ever.
func describe(code string) (status int, title string, wait time.Duration) {
	switch code {
	case client.CodeInvalid:
		return http.StatusBadRequest, "Invalid request", 0
	case client.CodeMalformed:
		return http.StatusBadRequest, "Malformed body", 0
	case client.CodeCrossOrigin:
		return http.StatusForbidden, "Request from another site", 0
	case client.CodeBadHost:
		return http.StatusForbidden, "Request for another host", 0
	case client.CodeNotFound:
		return http.StatusNotFound, "No such path", 0
	case client.CodeGroupNotFound:
		return http.StatusNotFound, "No such group", 0
	case client.CodeNodeNotFound:
		return http.StatusNotFound, "No such node", 0
	case client.CodeNoReplica:
		return http.StatusNotFound, "No replica on this node", 0
	case client.CodeKeyNotFound:
		return http.StatusNotFound, "No such key", 0
	case client.CodeMethod:
		return http.StatusMethodNotAllowed, "Method not allowed", 0
	case client.CodeGroupExists:
		return http.StatusConflict, "Group exists with another spec", 0
	case client.CodeEpochMismatch:
		return http.StatusConflict, "Epoch mismatch", 0
	case client.CodeChangeUnderWay:
		return http.StatusConflict, "Membership change in progress", 500 * time.Millisecond
	case client.CodeTransferFailed:
		return http.StatusConflict, "Leadership not transferred", 0
	case client.CodeNoQuorum:
		return http.StatusConflict, "No quorum", 0
	case client.CodeUnhealthy:
		return http.StatusConflict, "Unhealthy members", 0
	case client.CodeNodeInUse:
		return http.StatusConflict, "Node in use", 0
	case client.CodeNodeRemoved:
		return http.StatusGone, "Node removed", 0
	case client.CodePrecondition:
		return http.StatusPreconditionFailed, "Precondition failed", 0
	case client.CodeTooLarge:
		return http.StatusRequestEntityTooLarge, "Too large", 0
	case client.CodeMediaType:
		return http.StatusUnsupportedMediaType, "Unsupported media type", 0
	default:
		return describeFailure(code)
	}
}

// describeFailure goes on with what is not the request's fault.
func describeFailure(code string) (status int, title string, wait time.Duration) {
	switch code {
	case client.CodeSkipped:
		return http.StatusConflict, "Skipped", 0
	case client.CodeOverloaded:
		return http.StatusTooManyRequests, "Overloaded", 100 * time.Millisecond
	case client.CodeUnsupported:
		return http.StatusNotImplemented, "Not supported by the group", 0
	case client.CodeNotImplemented:
		return http.StatusNotImplemented, "Not implemented yet", 0
	case client.CodeNoLeader:
		return http.StatusServiceUnavailable, "No leader", 200 * time.Millisecond
	case client.CodeNotLeader:
		return http.StatusServiceUnavailable, "Not the leader", 50 * time.Millisecond
	case client.CodeNoState:
		return http.StatusServiceUnavailable, "No state", 500 * time.Millisecond
	case client.CodeNotReady:
		return http.StatusServiceUnavailable, "Not ready", 500 * time.Millisecond
	case client.CodeReplicaStopped:
		return http.StatusServiceUnavailable, "Replica stopped", time.Second
	case client.CodeStoreFailed:
		return http.StatusServiceUnavailable, "Store failed", 0
	case client.CodeClosing:
		return http.StatusServiceUnavailable, "Node closing", time.Second
	case client.CodeTimeout:
		return http.StatusServiceUnavailable, "Out of time", 100 * time.Millisecond
	case client.CodeClientCancelled:
		return http.StatusServiceUnavailable, "Cancelled", 0
	case client.CodeNotReached:
		return http.StatusGatewayTimeout, "Not reached", 0
	case client.CodeOutcomeUnknown:
		return http.StatusGatewayTimeout, "Outcome unknown", 0
	case client.CodeDiskFull:
		return http.StatusInsufficientStorage, "Disk full", 0
	default:
		return http.StatusInternalServerError, "Internal error", 0
	}
}

// A mapping gives an error its code.
type mapping struct {
	err  error
	code string
}

// mappings are in the order in which they count: an error that wraps several is
// what the first of them says. An unknown outcome comes first, because a blind
// retry is what must never be invited by mistake.
func mappings() []mapping {
	return []mapping{
		{node.ErrUnknownOutcome, client.CodeOutcomeUnknown},
		{group.ErrUnknown, client.CodeOutcomeUnknown},
		{kv.ErrReplayed, client.CodeOutcomeUnknown},
		{node.ErrGroupNotFound, client.CodeGroupNotFound},
		{node.ErrNodeNotFound, client.CodeNodeNotFound},
		{node.ErrNoReplica, client.CodeNoReplica},
		{node.ErrGroupExists, client.CodeGroupExists},
		{node.ErrEpochMismatch, client.CodeEpochMismatch},
		{node.ErrNotReached, client.CodeNotReached},
		{node.ErrChangeInProgress, client.CodeChangeUnderWay},
		{node.ErrNoQuorum, client.CodeNoQuorum},
		{node.ErrUnhealthy, client.CodeUnhealthy},
		{node.ErrNodeInUse, client.CodeNodeInUse},
		{node.ErrNodeRemoved, client.CodeNodeRemoved},
		{node.ErrNoState, client.CodeNoState},
		{node.ErrDiskFull, client.CodeDiskFull},
		{node.ErrOverloaded, client.CodeOverloaded},
		{node.ErrTooLarge, client.CodeTooLarge},
		{node.ErrTransfer, client.CodeTransferFailed},
		{node.ErrFaulty, client.CodeReplicaStopped},
		{node.ErrUnsupported, client.CodeUnsupported},
		{node.ErrInvalid, client.CodeInvalid},
		{kv.ErrNotFound, client.CodeKeyNotFound},
		{kv.ErrPrecondition, client.CodePrecondition},
		{kv.ErrEmptyKey, client.CodeInvalid},
		{kv.ErrKeyTooLarge, client.CodeTooLarge},
		{kv.ErrValueTooLarge, client.CodeTooLarge},
		{kv.ErrTxnTooLarge, client.CodeTooLarge},
		{kv.ErrResultTooLarge, client.CodeTooLarge},
		{kv.ErrInvalid, client.CodeInvalid},
		{kv.ErrFailed, client.CodeStoreFailed},
		{kv.ErrDamaged, client.CodeReplicaStopped},
		{kv.ErrClosed, client.CodeClosing},
		{node.ErrClosed, client.CodeClosing},
		{node.ErrNotReady, client.CodeNotReady},
		{node.ErrNoLeader, client.CodeNoLeader},
		{node.ErrDropped, client.CodeNotLeader},
		{node.ErrSkipped, client.CodeSkipped},
		{node.ErrTimeout, client.CodeTimeout},
		{node.ErrQueryFailed, client.CodeInternal},
		{context.DeadlineExceeded, client.CodeTimeout},
		{context.Canceled, client.CodeClientCancelled},
	}
}

// toProblem returns the problem that err is. Its outcome is that of a change: of a
// request that only reads, nothing is unknown.
func toProblem(err error) *client.Problem {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return p
	}
	for _, m := range mappings() {
		if errors.Is(err, m.err) {
			return withData(newProblem(m.code, "%s", detail(err, m.err)), err)
		}
	}
	if nl, ok := errors.AsType[*node.NotLeaderError](err); ok {
		return withData(newProblem(notLeaderCode(nl), "%v", err), err)
	}
	// Nobody knows it, so nobody knows whether it came before the effect or after.
	p := newProblem(client.CodeInternal, "%v", err)
	p.Outcome = client.OutcomeUnknown
	return p
}

// detail is the text of err without what others say already: the reason, which is
// the title, the package that it is from, and what Go calls the end of a context.
func detail(err, reason error) string {
	text := err.Error()
	for _, known := range []string{
		context.DeadlineExceeded.Error(), context.Canceled.Error(), reason.Error(),
		strings.TrimPrefix(reason.Error(), "kv: "),
	} {
		text = strings.Replace(text, known, "", 1)
	}
	text = strings.TrimPrefix(text, "kv: ")
	var parts []string
	for part := range strings.SplitSeq(text, ": ") {
		if part = strings.Trim(part, "; "); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

func notLeaderCode(nl *node.NotLeaderError) string {
	if nl.Leader == 0 {
		return client.CodeNoLeader
	}
	return client.CodeNotLeader
}

// withData adds what typed errors know.
func withData(p *client.Problem, err error) *client.Problem {
	if nl, ok := errors.AsType[*node.NotLeaderError](err); ok {
		p.Leader = nl.Leader
		if nl.Group != 0 {
			p.Group = new(nl.Group)
		}
	}
	if pe, ok := errors.AsType[*kv.PreconditionError](err); ok {
		p.Revision = pe.Current
	}
	return p
}
