package group

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/mutant"
)

// New starts a replica from what is durable. It returns an error that wraps
// [ErrDamaged] if log, state and state machine do not fit together, [ErrRemoved]
// if the group has removed the replica, so that its data can go, and [ErrInvalid]
// for a wrong Config.
func New(c Config) (*Replica, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	start, err := readStart(c)
	if err != nil {
		return nil, err
	}
	boot := c.Boot
	if boot == 0 {
		var random [8]byte
		if _, err = rand.Read(random[:]); err != nil {
			return nil, fmt.Errorf("group: start: %w", err)
		}
		boot = binary.LittleEndian.Uint64(random[:])
	}
	r := &Replica{
		cfg:   c.settings(),
		state: c.State,
		view: view{
			hard: start.hard, saved: start.onDisk,
			first: start.first, last: start.last, safeLast: start.last, applied: start.applied,
			settled: start.applied,
		},
		proposals: proposals{limits: c.Limits.ofProposals()},
		reads:     reads{replica: c.Replica, boot: boot, limit: c.Limits.MaxReads},
	}
	if mutant.On(mutant.TruncatePast) {
		c.Storage = pastEnd{c.Storage, start.first, start.hard.term}
	}
	r.skips.known = c.Skips
	if last := min(c.SkipAt, start.last); last > start.applied {
		if err = r.findSkips(start.applied+1, last); err != nil {
			return nil, err
		}
	}
	r.log = &logView{Storage: c.Storage, start: start.hard, replica: r}
	if r.rn, err = newRawNode(c, r.log, start.applied); err != nil {
		return nil, err
	}
	return r, nil
}

// newRawNode starts raft, which panics when it does not like its storage.
func newRawNode(c Config, log *logView, applied uint64) (rn *raft.RawNode, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: raft does not start: %v", ErrDamaged, v)
		}
	}()
	l := c.Limits
	return raft.NewRawNode(&raft.Config{
		ID:                        uint64(c.Replica),
		ElectionTick:              c.ElectionTicks,
		HeartbeatTick:             c.HeartbeatTicks,
		Storage:                   log,
		Applied:                   applied,
		MaxSizePerMsg:             uint64(l.MaxSizePerMsg),
		MaxCommittedSizePerReady:  uint64(l.MaxCommittedSizePerReady),
		MaxUncommittedEntriesSize: uint64(l.MaxUncommittedBytes),
		MaxInflightMsgs:           l.MaxInflightMsgs,
		MaxInflightBytes:          uint64(l.MaxInflightBytes),
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		Logger:                    newRaftLogger(c),
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	})
}

// A start is where a replica begins: what the disk holds, made consistent.
type start struct {
	first, last uint64
	applied     uint64
	onDisk      hardState
	hard        hardState
}

// readStart reads and checks what a replica starts from.
func readStart(c Config) (start, error) {
	var s start
	hs, _, err := c.Storage.InitialState()
	if err != nil {
		return s, fmt.Errorf("group: start: %w", err)
	}
	if s.first, err = c.Storage.FirstIndex(); err != nil {
		return s, fmt.Errorf("group: start: %w", err)
	}
	if s.last, err = c.Storage.LastIndex(); err != nil {
		return s, fmt.Errorf("group: start: %w", err)
	}
	s.onDisk = hardStateOf(hs)
	s.hard = s.onDisk
	if c.State.IsZero() {
		err = s.checkUninitialised(c)
		return s, err
	}
	if stateErr := checkOwnState(c); stateErr != nil {
		return s, stateErr
	}
	snap, err := c.Storage.Snapshot()
	if err != nil && !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		return s, fmt.Errorf("group: start: %w", err)
	}
	s.applied = max(c.Applied, emptyUpTo(snap))
	err = s.checkLog(c)
	return s, err
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

func (s *start) checkUninitialised(c Config) error {
	if s.last != 0 || s.hard.commit != 0 || c.Applied != 0 {
		return damaged("no state, but a log up to %d, commit %d and applied %d",
			s.last, s.hard.commit, c.Applied)
	}
	return nil
}

// checkOwnState checks that c.State is that of this replica.
func checkOwnState(c Config) error {
	d := c.State.Descriptor
	if err := d.Validate(); err != nil {
		return damaged("%w", err)
	}
	if c.State.Index == 0 {
		return damaged("the state has no index")
	}
	if d.Group != c.Group || d.Incarnation != c.Incarnation {
		return damaged("the state is of group %d, incarnation %s; want group %d, incarnation %s",
			d.Group, d.Incarnation, c.Group, c.Incarnation)
	}
	m, ok := d.Member(c.Replica)
	if !ok {
		return fmt.Errorf("%w: replica %d at epoch %d", ErrRemoved, c.Replica, d.Epoch)
	}
	if m.Node != c.Node {
		return damaged("replica %d is on node %d, not on %d", c.Replica, m.Node, c.Node)
	}
	if self := c.settings(); !self.owns(m) {
		return damaged("replica %d was given to data directory %s, this is %s",
			c.Replica, m.Store, c.Store)
	}
	return nil
}

// emptyUpTo returns the index at which the state machine is known to be empty: one
// that has nothing is as far as that.
func emptyUpTo(snap *raftpb.Snapshot) uint64 {
	if m, err := DecodeManifest(snap.GetData()); err == nil && m.Empty {
		return snap.GetMetadata().GetIndex()
	}
	return 0
}

// checkLog compares the bounds of the log with what was committed and applied, and
// raises the commit index to what certainly is: it is not written for its own sake,
// so the state machine may be ahead of it. So may be the state, if it came with a
// snapshot; see [logView.Snapshot].
func (s *start) checkLog(c Config) error {
	s.hard.commit = max(s.hard.commit, s.first-1, s.applied, c.Commit)
	if s.hard.commit > s.last {
		return damaged("the log ends at %d, but %d is committed "+
			"(on disk %d, applied %d)", s.last, s.hard.commit, s.onDisk.commit, s.applied)
	}
	if s.applied+1 < s.first {
		return damaged("the state machine has applied %d, but the log begins at %d",
			s.applied, s.first)
	}
	term, err := c.Storage.Term(s.last)
	if err != nil {
		return damaged("the log ends at %d: %w", s.last, err)
	}
	if term == 0 || term > s.hard.term {
		return damaged("the log ends at %d in term %d, the hard state is of term %d",
			s.last, term, s.hard.term)
	}
	return nil
}

// A logView is the storage as raft sees it. The configuration and the commit index
// with which raft starts come from the replica's state, not from the log, and a
// snapshot that is offered to others carries the present configuration.
type logView struct {
	raft.Storage

	start   hardState
	replica *Replica
}

// InitialState implements raft.Storage.
func (l *logView) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	cs := &raftpb.ConfState{AutoLeave: new(false)}
	if !l.replica.state.IsZero() {
		cs = l.replica.state.Descriptor.ConfState()
	}
	return l.start.proto(), cs, nil
}

// Snapshot implements raft.Storage. A member that was added after the stored
// snapshot is not in its configuration, and raft refuses a snapshot that does not
// name its receiver. The membership changes between the two are committed, so the
// receiver may as well start with them: it takes changes up to State.Index for
// applied. A new member of a fresh group needs no snapshot to be taken that way.
func (l *logView) Snapshot() (*raftpb.Snapshot, error) {
	snap, err := l.Storage.Snapshot()
	if err != nil {
		return nil, err
	}
	m, err := checkSnapshot(snap)
	if err != nil {
		return nil, damaged("stored snapshot: %w", err)
	}
	if m.State.Index >= l.replica.state.Index {
		return snap, nil
	}
	m.State = l.replica.state
	meta := snap.GetMetadata()
	return NewSnapshot(meta.GetIndex(), meta.GetTerm(), m), nil
}
