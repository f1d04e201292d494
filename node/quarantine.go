package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// A Quarantine says that a replica was taken out of service for a fault of its own, and
// why. Nothing else on the node is concerned.
type Quarantine struct {
	Reason QuarantineReason `json:"reason"`
	// Detail is the reason for people.
	Detail string `json:"detail"`
	// Index is the index in the log that the fault is about, and Term the term of the
	// entry there; zero: none, or not known.
	Index uint64 `json:"index,omitempty"`
	Term  uint64 `json:"term,omitempty"`
	// EntryBytes is the size of that entry, EntryHash the SHA-256 of its first 4096 bytes.
	EntryBytes int64  `json:"entry_bytes,omitempty"`
	EntryHash  string `json:"entry_hash,omitempty"`
	// Since is when it was taken out of service, by the node's clock.
	Since time.Time `json:"since"`
	// Votes: the log is sound, so that the replica goes on to keep it, acknowledges and
	// votes, and only its state machine stands still. Otherwise the replica is silent.
	Votes bool `json:"votes,omitempty"`
	// Events are the last things that happened to the replica, the oldest first.
	Events []string `json:"events,omitempty"`
}

// A QuarantineReason is a stable word for why a replica is in quarantine.
type QuarantineReason string

// The reasons.
const (
	// DamagedLog: the log has lost or changed something, so that the replica must neither
	// vote nor acknowledge.
	DamagedLog QuarantineReason = "damaged_log"
	// DamagedState: what the state machine has stored is damaged, or is not what the
	// group has decided. The log is sound.
	DamagedState QuarantineReason = "damaged_state"
	// MachineFailed: the state machine returned an error.
	MachineFailed QuarantineReason = "machine_failed"
	// MachinePanicked: the state machine panicked.
	MachinePanicked QuarantineReason = "machine_panicked"
	// RaftPanicked: a panic in what drives the replica: an invariant is broken.
	RaftPanicked QuarantineReason = "raft_panicked"
	// PoisonEntry: a committed entry cannot be understood.
	PoisonEntry QuarantineReason = "poison_entry"
	// RefusedWrite: the log store refused what the replica wanted to write.
	RefusedWrite QuarantineReason = "refused_write"
)

// QuarantineReasons returns all reasons, in a fixed order.
func QuarantineReasons() []QuarantineReason {
	return []QuarantineReason{
		DamagedLog, DamagedState, MachineFailed, MachinePanicked, RaftPanicked, PoisonEntry,
		RefusedWrite,
	}
}

// damaged reports whether something that was stored is lost.
func (q QuarantineReason) damaged() bool { return q == DamagedLog || q == DamagedState }

// A faultError is why a replica is in quarantine. It is [ErrFaulty].
type faultError struct {
	reason     QuarantineReason
	index      uint64 // in the log; zero: none, or not known
	term       uint64
	entryBytes int64
	entryHash  string
	held       bool // it is not known yet whether the entry is skipped
	err        error
}

// faulty returns err as the reason of a quarantine.
func faulty(reason QuarantineReason, err error) error {
	return &faultError{reason: reason, err: err}
}

// faultyAt is faulty for a fault that is about one entry of the log.
func faultyAt(reason QuarantineReason, index, term uint64, err error) error {
	return &faultError{reason: reason, index: index, term: term, err: err}
}

// machineFault returns an error of a state machine as the reason of a quarantine.
func machineFault(index, term uint64, err error) error {
	if _, known := errors.AsType[*faultError](err); known {
		return err
	}
	reason := MachineFailed
	if _, ok := errors.AsType[*panicError](err); ok {
		reason = MachinePanicked
	}
	if errors.Is(err, errRotten) {
		reason = DamagedState
	}
	return faultyAt(reason, index, term, err)
}

func (e *faultError) Error() string { return ErrFaulty.Error() + ": " + e.err.Error() }

// Unwrap returns ErrFaulty and the cause.
func (e *faultError) Unwrap() []error { return []error{ErrFaulty, e.err} }

// quarantineOf describes the fault that err is.
func quarantineOf(err error) *Quarantine {
	q := &Quarantine{Reason: RaftPanicked, Detail: err.Error()}
	if errors.Is(err, group.ErrDamaged) {
		q.Reason = DamagedLog
	}
	if f, ok := errors.AsType[*faultError](err); ok {
		q.Reason, q.Index, q.Term = f.reason, f.index, f.term
		q.EntryBytes, q.EntryHash = f.entryBytes, f.entryHash
	}
	return q
}

// quarantine describes why the replica is in quarantine; nil: it is not.
func (r *replica) quarantine() *Quarantine {
	err := r.fault()
	if err == nil {
		return nil
	}
	q := quarantineOf(err)
	q.Since, q.Events = r.events.told()
	q.Votes = r.serving()
	return q
}

// countQuarantined returns how many replicas are in quarantine, by reason.
func countQuarantined(rs []*replica) map[string]uint64 {
	count := make(map[string]uint64)
	for _, reason := range QuarantineReasons() {
		count[string(reason)] = 0
	}
	for _, r := range rs {
		if err := r.fault(); err != nil {
			count[string(quarantineOf(err).Reason)]++
		}
	}
	return count
}

// faultsOf are the faults of a group's replicas in quarantine.
type faultsOf map[raftyard.ReplicaID]standing

// standing is where a state machine stands, and why.
type standing struct {
	reason QuarantineReason
	index  uint64
}

// poison returns the entry at which the state machines of a majority of the voters fail,
// or zero.
func (f faultsOf) poison(d group.Descriptor) uint64 {
	at, voters := make(map[uint64]int), 0
	for _, m := range d.Members {
		if m.Role != group.Voter && m.Role != group.Incoming {
			continue
		}
		voters++
		if s, ok := f[m.ID]; ok && s.index != 0 && s.reason.ofEntry() {
			at[s.index]++
		}
	}
	for index, count := range at { // a majority is the only one
		if count > voters/2 {
			return index
		}
	}
	return 0
}

// addFault adds the problems that replicas in quarantine are.
func (s *GroupSummary) addFault(faults faultsOf, d group.Descriptor) {
	damaged := false
	for _, f := range faults {
		damaged = damaged || f.reason.damaged()
	}
	s.addProblem(len(faults) > 0, "faulty")
	s.addProblem(damaged, "damaged")
	s.addProblem(faults.poison(d) != 0, "poison")
}

// Poison is an entry of a group's log at which the state machines of a majority of its
// voters fail. See [Node.SkipEntry].
type Poison struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// Bytes is the size of the entry, and Hash the SHA-256 of its first 4096 bytes, in
	// hexadecimal.
	Bytes int64  `json:"bytes"`
	Hash  string `json:"hash"`
	// Nodes are those with a replica that fails at it.
	Nodes []raftyard.NodeID `json:"nodes"`
}

// fillPoison finds the poisoned entry, if there is one.
func (st *GroupStatus) fillPoison() {
	faults, d := make(faultsOf), group.Descriptor{}
	for _, m := range st.Members {
		d.Members = append(d.Members, group.Member{
			ID: m.Replica, Node: m.Node, Role: roleFromString(m.Role),
		})
	}
	for i := range st.Replicas {
		if q := st.Replicas[i].Quarantine; q != nil {
			faults[st.Replicas[i].Replica] = standing{q.Reason, q.Index}
		}
	}
	index := faults.poison(d)
	if index == 0 {
		return
	}
	p := &Poison{Index: index}
	for i := range st.Replicas {
		r := &st.Replicas[i]
		if q := r.Quarantine; q != nil && q.Index == index && q.Reason.ofEntry() {
			p.Term, p.Bytes, p.Hash = q.Term, q.EntryBytes, q.EntryHash
			p.Nodes = append(p.Nodes, r.Node)
		}
	}
	st.Poison = p
}

// hashedBytes is how much of an entry is hashed to tell it from others.
const hashedBytes = 4096

// describeEntry notes size and hash of the entry that a fault is about.
func (e *faultError) describeEntry(log *storage.Log) {
	entries, err := log.Entries(e.index, e.index+1, 1)
	if err != nil || len(entries) == 0 {
		return // it may have been cut off since; the fault says enough
	}
	data := entries[0].GetData()
	sum := sha256.Sum256(data[:min(len(data), hashedBytes)])
	e.entryBytes, e.entryHash = int64(len(data)), hex.EncodeToString(sum[:])
}

// loadFault returns the error with which a replica could not be loaded as the reason of
// its quarantine.
func loadFault(err error) error {
	if errors.Is(err, group.ErrDamaged) {
		return faulty(DamagedLog, err)
	}
	return machineFault(0, 0, err)
}
