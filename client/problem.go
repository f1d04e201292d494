package client

import (
	"errors"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
)

// Codes of a [Problem]. Each is one reaction of the caller. They are stable; new
// ones may be added.
const (
	CodeInvalid         = "invalid"            // the request makes no sense
	CodeMalformed       = "malformed"          // the body is not the JSON that is wanted
	CodeNotFound        = "not_found"          // no such path
	CodeMethod          = "method_not_allowed" // the path has other methods
	CodeMediaType       = "unsupported_media_type"
	CodeCrossOrigin     = "cross_origin" // a browser sent it from another site
	CodeBadHost         = "bad_host"     // it is for a host that the node does not go by
	CodeTooLarge        = "too_large"
	CodeGroupNotFound   = "group_not_found"
	CodeNodeNotFound    = "node_not_found"
	CodeNoReplica       = "no_replica" // this node has none of the group
	CodeKeyNotFound     = "key_not_found"
	CodePrecondition    = "precondition_failed"
	CodeGroupExists     = "group_exists"
	CodeEpochMismatch   = "epoch_mismatch"
	CodeChangeUnderWay  = "change_in_progress"
	CodeNotReached      = "not_reached" // it is decided, and goes on by itself
	CodeTransferFailed  = "transfer_failed"
	CodeNoQuorum        = "no_quorum"         // a majority of the voters cannot be reached
	CodeUnhealthy       = "unhealthy_members" // no majority of the wanted voters is alive
	CodeNodeInUse       = "node_in_use"       // it still holds members of groups
	CodeNodeRemoved     = "node_removed"      // its id is spent
	CodeNoState         = "no_state"          // it is led by a replica that only has the log
	CodeSkipped         = "skipped"           // the group has skipped the command's entry
	CodeUnsupported     = "unsupported"       // the group's kind cannot do it
	CodeNotImplemented  = "not_implemented"
	CodeOverloaded      = "overloaded"
	CodeNoLeader        = "no_leader"
	CodeNotLeader       = "not_leader"
	CodeNotReady        = "not_ready"
	CodeReplicaStopped  = "replica_stopped"
	CodeStoreFailed     = "store_failed"
	CodeClosing         = "closing"
	CodeDiskFull        = "disk_full"
	CodeTimeout         = "timeout"
	CodeOutcomeUnknown  = "outcome_unknown"
	CodeClientCancelled = "cancelled"
	CodeInternal        = "internal"
)

// Codes returns every code.
func Codes() []string {
	return []string{
		CodeInvalid, CodeMalformed, CodeNotFound, CodeMethod, CodeMediaType, CodeCrossOrigin,
		CodeBadHost, CodeTooLarge, CodeGroupNotFound, CodeNodeNotFound, CodeNoReplica,
		CodeKeyNotFound,
		CodePrecondition, CodeGroupExists, CodeEpochMismatch, CodeChangeUnderWay,
		CodeNotReached,
		CodeTransferFailed, CodeNoQuorum, CodeUnhealthy, CodeNodeInUse, CodeNodeRemoved,
		CodeNoState, CodeSkipped, CodeUnsupported, CodeNotImplemented, CodeOverloaded, CodeNoLeader,
		CodeNotLeader, CodeNotReady, CodeReplicaStopped, CodeStoreFailed, CodeClosing,
		CodeDiskFull, CodeTimeout, CodeOutcomeUnknown, CodeClientCancelled, CodeInternal,
	}
}

// Outcomes of a request that did not succeed.
const (
	// OutcomeNotApplied: it had no effect and will have none. A blind retry is safe.
	OutcomeNotApplied = "not_applied"
	// OutcomeUnknown: it may have had its effect, or may still have it.
	OutcomeUnknown = "unknown"
)

// ProblemType is the media type of a [Problem], from RFC 9457.
const ProblemType = "application/problem+json"

// A Problem is why a node did not do what it was asked to, as RFC 9457 puts it.
//
//nolint:errname // the RFC's word, and what users look for
type Problem struct {
	Type   string `json:"type,omitempty"`
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`
	// Code is one of [Codes], or of a later version's.
	Code   string            `json:"code"`
	Group  *raftyard.GroupID `json:"group,omitempty"`
	Leader raftyard.NodeID   `json:"leader,omitempty"` // zero: not known
	// RetryAfterMS is after how long a retry may help; zero: it will not.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Revision is the key's after [CodePrecondition]; zero: no such key.
	Revision uint64 `json:"revision,omitempty"`
	// Checks are those of a node that is not ready.
	Checks []Check `json:"checks,omitempty"`
	// Outcome is not_applied for a request that changes nothing.
	Outcome string `json:"outcome"`
}

// Error returns title and detail, and the code unless the title says the same.
func (p *Problem) Error() string {
	title := strings.ToLower(p.Title)
	text := title
	if p.Detail != "" {
		text = strings.TrimPrefix(title+": "+p.Detail, ": ")
	}
	if p.Code == "" || strings.ReplaceAll(p.Code, "_", " ") == title {
		return text
	}
	return text + " (" + p.Code + ")"
}

// isAnothers reports whether the node takes no part in its cluster for good: another may
// have the answer, and this one never will.
func (p *Problem) isAnothers() bool {
	return p != nil && p.Code == CodeNotReady && p.RetryAfterMS == 0 &&
		p.Outcome == OutcomeNotApplied
}

// retryAfter returns how long to wait before a retry, if one is safe and what was
// in the way passes by itself.
func (p *Problem) retryAfter() (time.Duration, bool) {
	switch p.Code {
	case CodeNoLeader, CodeNotLeader, CodeNoState, CodeNotReady, CodeOverloaded, CodeClosing,
		CodeTimeout:
	default:
		return 0, false
	}
	const least = 50 * time.Millisecond
	wait := max(time.Duration(p.RetryAfterMS)*time.Millisecond, least)
	return wait, p.Outcome != OutcomeUnknown
}

// UnreachableError reports that no address answered. The request had no effect.
type UnreachableError struct {
	Addrs []string
	Errs  []error // one for each address
}

// Error names every address with its reason.
func (e *UnreachableError) Error() string {
	reasons := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		reasons[i] = e.Addrs[i] + ": " + Explain(err)
	}
	return "cannot reach a node: " + strings.Join(reasons, "; ")
}

// Unwrap returns the reasons.
func (e *UnreachableError) Unwrap() []error { return e.Errs }

// UnknownError reports that a request that changes something was sent, and that
// the connection or the time ended before its answer, or the answer cannot be
// read: it may or may not have its effect.
type UnknownError struct {
	Err error
}

// Error returns why there is no answer.
func (e *UnknownError) Error() string {
	return "the outcome is unknown: " + Explain(e.Err)
}

// Unwrap returns why there is no answer.
func (e *UnknownError) Unwrap() error { return e.Err }

// NotApplied reports whether the request that ended with err certainly had, and
// will have, no effect. It is false for nil, and whenever err holds an
// [UnknownError].
func NotApplied(err error) bool {
	if err == nil || isUnknown(err) {
		return false
	}
	p, ok := errors.AsType[*Problem](err)
	return !ok || p.Outcome != OutcomeUnknown
}

// IsCode reports whether err is a [Problem] with the code. An [UnknownError] is
// none, whatever it holds.
func IsCode(err error, code string) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.Code == code && !isUnknown(err)
}

func isUnknown(err error) bool {
	_, unknown := errors.AsType[*UnknownError](err)
	return unknown
}
