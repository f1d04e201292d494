package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/transport"
)

// What nodes ask each other. The numbers are part of the wire format; see
// docs/formats/node.md.
const (
	askReplica     uint8 = 5  // group → ReplicaStatus
	askNode        uint8 = 6  // → nodeReport
	askGroups      uint8 = 7  // first group, limit → replica reports
	askHolding     uint8 = 8  // group, incarnation, version → holding
	askKnown       uint8 = 9  // node → what is known of its directory
	askForget      uint8 = 10 // group, version → nothing
	askDirectories uint8 = 11 // → hearsay
	askWhereabouts uint8 = 12 // → whereabouts of nodes

	// Those that have to do with replicas without a state machine.
	askState   uint8 = 20 // group, incarnation, replica, least index → nothing, after a stream
	askAppend  uint8 = 21 // group, incarnation, command id, command → index
	askResidue uint8 = 23 // group, incarnation → residue

	// Those that have to do with replicas in quarantine.
	askRetry   uint8 = 30 // group, incarnation → ReplicaStatus
	askRebuild uint8 = 31 // group, incarnation → ReplicaStatus
	askSkip    uint8 = 32 // group, incarnation, index → nothing, when that is committed
	askFaulty  uint8 = 33 // first group, limit → replica reports

	askDisk uint8 = 40 // → condition of the disk

	askRemembered uint8 = 50 // first group → next one, what is remembered of the asker

	// Those that are for one incarnation of a group, and have it after the group.
	askPropose  uint8 = 60 // …, command id, command → index, result
	askThrough  uint8 = 61 // …, command id, command → index, result
	askQuery    uint8 = 62 // …, consistency, query → answer
	askTransfer uint8 = 63 // …, node → nothing
	askSnapshot uint8 = 64 // … → SnapshotInfo
)

// remoteCodes give the errors of this package that travel between nodes their
// numbers. The order is part of the wire format: append only.
var remoteCodes = []error{
	nil, // 0: any other error
	ErrUnknownOutcome, ErrNoLeader, ErrGroupNotFound, ErrNoReplica, ErrGroupExists,
	ErrEpochMismatch, ErrChangeInProgress, ErrOverloaded, ErrTooLarge, ErrInvalid,
	ErrTransfer, ErrFaulty, ErrUnsupported, ErrDiskFull, ErrClosed, ErrTimeout, ErrQueryFailed,
	ErrNotReady, ErrDropped, ErrNoState, ErrNoQuorum, ErrUnhealthy, ErrNodeInUse, ErrNodeRemoved,
	ErrSkipped,
}

// codeNotLeader is the number of a NotLeaderError; its leader is in the body.
const codeNotLeader = 100

// HandleRequest serves what another node asks.
func (h *handler) HandleRequest(
	ctx context.Context, from transport.Identity, kind uint8, body []byte,
) ([]byte, error) {
	if err := h.accept(from); err != nil {
		return nil, encodeError(err)
	}
	answer, err := h.serve(ctx, &from, kind, wire.NewReader(body))
	if err != nil {
		return nil, encodeError(err)
	}
	return answer, nil
}

func (n *Node) serve(
	ctx context.Context, from *transport.Identity, kind uint8, r *wire.Reader,
) ([]byte, error) {
	if n.isClosing() {
		return nil, fmt.Errorf("%w: node %d", ErrClosed, n.cfg.ID)
	}
	switch kind {
	case askPropose:
		return n.servePropose(ctx, r, n.proposeAsked)
	case askQuery:
		return n.serveQuery(ctx, r)
	case askTransfer:
		at, to := readAddress(r), raftyard.NodeID(r.Uvarint())
		if err := r.Close(); err != nil {
			return nil, err
		}
		return nil, n.transferLocal(ctx, at, to)
	case askSnapshot:
		return n.serveSnapshot(ctx, r)
	case askReplica:
		return n.serveReplica(ctx, r)
	case askResidue:
		return n.serveResidue(ctx, r)
	case askAppend:
		return n.serveAppend(ctx, r)
	case askThrough:
		return n.servePropose(ctx, r, n.proposeHereAsked)
	case askState:
		return n.serveState(ctx, r)
	case askNode:
		return jsonAnswer(n.report(), r.Close())
	case askDisk:
		return jsonAnswer(n.condition(), r.Close())
	case askDirectories:
		return jsonAnswer(n.serveDirectories(), r.Close())
	case askWhereabouts:
		return jsonAnswer(n.serveWhereabouts(), r.Close())
	case askKnown:
		return jsonAnswer(n.serveKnown(raftyard.NodeID(r.Uvarint())), r.Close())
	case askGroups:
		from, limit := raftyard.GroupID(r.Uvarint()), r.Uvarint()
		return jsonAnswer(n.replicaReports(from, int(min(limit, maxPage))), r.Close())
	case askForget:
		return nil, n.serveForget(ctx, r)
	case askHolding:
		return n.serveHolding(ctx, r)
	case askRemembered:
		return n.serveRemembered(ctx, from, r)
	default:
		return n.serveMend(ctx, kind, r)
	}
}

// answerTime is how much earlier than asked a node ends what may change something: whoever
// asks then hears what is certain about it, and need not take the outcome for unknown.
const answerTime = 200 * time.Millisecond

// answerWithin is how long a request of another node may take, zero if it has no end: it
// leaves the answer a quarter of the time, and no more than [answerTime].
func (n *Node) answerWithin(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := deadline.Sub(n.world.now())
	return max(left-min(left/4, answerTime), 1)
}

func (n *Node) serveSnapshot(ctx context.Context, r *wire.Reader) ([]byte, error) {
	at := readAddress(r)
	if err := r.Close(); err != nil {
		return nil, err
	}
	info, err := n.snapshotLocal(ctx, at)
	return jsonAnswer(info, err)
}

func (n *Node) serveReplica(ctx context.Context, r *wire.Reader) ([]byte, error) {
	g := raftyard.GroupID(r.Uvarint())
	if err := r.Close(); err != nil {
		return nil, err
	}
	st, err := n.RaftStatus(ctx, g)
	return jsonAnswer(st, err)
}

func jsonAnswer(v any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func (n *Node) servePropose(
	ctx context.Context, r *wire.Reader,
	propose func(context.Context, address, group.Proposal) (group.Result, error),
) ([]byte, error) {
	at, id, cmd := readAddress(r), group.CommandID(r.ID()), r.Bytes()
	if err := r.Close(); err != nil {
		return nil, err
	}
	res, err := propose(ctx, at, group.Proposal{ID: id, Data: cmd})
	if err != nil {
		return nil, err
	}
	return wire.AppendBytes(wire.AppendUvarint(nil, res.Index), res.Data), nil
}

func (n *Node) serveQuery(ctx context.Context, r *wire.Reader) ([]byte, error) {
	at, c, q := readAddress(r), Consistency(r.Byte()), r.Bytes()
	if err := r.Close(); err != nil {
		return nil, err
	}
	if err := n.keepsLogOnly(at.group); err != nil {
		return nil, err
	}
	return n.queryLocal(ctx, at, c, q)
}

// encodeError puts an error into the form in which it travels.
func encodeError(err error) error {
	if nl, ok := errors.AsType[*NotLeaderError](err); ok {
		body := wire.AppendUvarint(wire.AppendUvarint(nil, uint64(nl.Group)), uint64(nl.Leader))
		return &transport.RemoteError{Code: codeNotLeader, Message: err.Error(), Body: body}
	}
	remote := &transport.RemoteError{Message: err.Error()}
	for code, known := range remoteCodes {
		if known != nil && errors.Is(err, known) {
			remote.Code = uint16(code)
			break
		}
	}
	return remote
}

// remoteError is an error of another node: its words, and what it is to us.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// decodeError turns what the transport returned into an error of this package.
func decodeError(to raftyard.NodeID, err error) error {
	remote, ok := errors.AsType[*transport.RemoteError](err)
	switch {
	case !ok && errors.Is(err, transport.ErrUnknown):
		return fmt.Errorf("node %d: %w: %w", to, ErrUnknownOutcome, err)
	case !ok && errors.Is(err, transport.ErrTooLarge):
		return fmt.Errorf("node %d: %w: %w", to, ErrTooLarge, err)
	case !ok && errors.Is(err, transport.ErrBusy):
		return &unreachableError{node: to, err: fmt.Errorf("%w: %w", ErrOverloaded, err)}
	case !ok && transport.NotDelivered(err):
		return &unreachableError{node: to, err: err}
	case !ok:
		return fmt.Errorf("node %d: %w: %w", to, ErrUnknownOutcome, err)
	case remote.Code == codeNotLeader:
		r := wire.NewReader(remote.Body)
		nl := &NotLeaderError{
			Group: raftyard.GroupID(r.Uvarint()), Leader: raftyard.NodeID(r.Uvarint()),
		}
		if r.Close() == nil {
			return nl
		}
	case remote.Code > 0 && int(remote.Code) < len(remoteCodes):
		return &remoteError{text: remote.Message, kind: remoteCodes[remote.Code]}
	}
	return fmt.Errorf("node %d: %w: %s", to, ErrUnknownOutcome, remote.Message)
}

// unreachableError: the request certainly was not handled.
type unreachableError struct {
	node raftyard.NodeID
	err  error
}

func (e *unreachableError) Error() string { return fmt.Sprintf("node %d: %v", e.node, e.err) }
func (e *unreachableError) Unwrap() error { return e.err }

// ask sends a request to another node and returns its answer.
func (n *Node) ask(
	ctx context.Context, to raftyard.NodeID, kind uint8, body []byte,
) ([]byte, error) {
	answer, err := n.transport.Request(ctx, to, kind, body)
	if err != nil {
		return nil, decodeError(to, err)
	}
	return answer, nil
}

// A poll is a question that several nodes are asked at the same time.
type poll struct {
	name     string // for traces
	kind     uint8
	body     []byte
	patience time.Duration // with each of them
}

// askAll asks nodes, and returns what they have said, in their order: the zero value for
// those that have not answered in time, or not so that it can be read.
func askAll[T any](ctx context.Context, n *Node, ids []raftyard.NodeID, p poll) []T {
	said := make([]T, len(ids))
	asks := make([]func(), 0, len(ids))
	for i, id := range ids {
		asks = append(asks, func() {
			short, cancel := n.world.withTimeout(ctx, p.patience)
			defer cancel()
			var one T
			if n.askJSON(short, id, p.kind, p.body, &one) == nil {
				said[i] = one
			}
		})
	}
	n.world.all(p.name, asks)
	return said
}

// askJSON asks and decodes the answer into v.
func (n *Node) askJSON(
	ctx context.Context, to raftyard.NodeID, kind uint8, body []byte, v any,
) error {
	answer, err := n.ask(ctx, to, kind, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("node %d: answer to request %d: %w", to, kind, err)
	}
	return nil
}
