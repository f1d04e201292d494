package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// Damage to files that nobody reads is found by the databases themselves, which read all of
// their tables again and again. The node asks what they have found:
//
//   - a replica that has lost something of its log is out of its group, and replaced;
//   - one that has lost something of its state takes over that of another member;
//   - the table itself stays, and with it the directory does not start again. The node goes
//     on, and says so, for as long as the table is in use.

const (
	// defaultScrubRate reads a terabyte in three days.
	defaultScrubRate = 4 << 20

	// rotEvery is how often the node asks.
	rotEvery = time.Second
)

// scrubRate is the rate as a store takes it.
func (c Config) scrubRate() int64 { return max(c.ScrubRate, 0) }

// watchRot hears of damage until the node stops.
func (n *Node) watchRot() {
	n.world.every(n.running, rotEvery, func() {
		for _, rotten := range n.store.TakeRotten() {
			if r := n.replica(rotten.Group); r != nil && r.id == rotten.ID {
				n.condemn(r, rotten.Err, nil)
			}
		}
		for _, r := range n.allReplicas() {
			if err := r.machine.damage(); err != nil {
				n.stateRotten(r, err)
			}
		}
	})
}

// damage returns why the state machine says that what it has stored cannot be trusted, or nil.
func (m *machine) damage() (err error) {
	defer recovered(&err, "Damage")
	if !m.access.TryRLock() {
		return nil // it is being opened or closed; next time
	}
	defer m.access.RUnlock()
	c, ok := m.sm.(group.Checked)
	if !ok || m.closed || m.isLogOnly() || m.fault() != nil {
		return nil
	}
	return c.Damage()
}

// rotReason tells what is wrong with a state machine that says so itself. One whose store cannot
// write any more has lost nothing: were it damage, the others would have another replica take its
// place, where a restart of the node is enough.
func rotReason(why error) QuarantineReason {
	if errors.Is(why, group.ErrFatal) {
		return MachineFailed
	}
	return DamagedState
}

// stateRotten has a replica whose state has been found to be damaged take over another's.
func (n *Node) stateRotten(r *replica, why error) {
	fault := faulty(rotReason(why), why)
	if !r.mayStandStill(fault) {
		n.stopReplica(r, fault)
		return
	}
	if !r.rotten.CompareAndSwap(false, true) {
		return // it is on its way; the state machine may be busy for long
	}
	n.appliers.add(r, task{run: func(m *machine) {
		defer r.rotten.Store(false)
		if m.fault() != nil {
			return
		}
		n.standStill(r, fault)
		r.worker.box.control(func() {
			r.worker.guard(r, "replace its state", func() {
				// A state from before would need entries that may be gone.
				r.own.wanted, r.own.from = true, max(r.own.from, r.applied.Load())
				r.worker.hurryOwn(r)
			})
		})
	}, drop: func(error) { r.rotten.Store(false) }})
}

// DatabaseStatus is what a node has done about the files of one of its databases since it was
// started.
type DatabaseStatus struct {
	Name       string `json:"name"` // log or state
	TableBytes int64  `json:"table_bytes"`

	// ValueBytes are the files that are kept for large records of the log, and LiveValueBytes
	// what counts in them.
	ValueBytes     int64 `json:"value_bytes,omitempty"`
	LiveValueBytes int64 `json:"live_value_bytes,omitempty"`

	// Reclaims is how often disk space was returned, ReclaimsFailed how often that failed, and
	// ReclaimedBytes how much it was. Reclaimed is when it was last done.
	Reclaims       uint64    `json:"reclaims"`
	ReclaimsFailed uint64    `json:"reclaims_failed"`
	ReclaimedBytes uint64    `json:"reclaimed_bytes"`
	Reclaimed      time.Time `json:"reclaimed,omitzero"`

	// Scrubs is how often all tables were read and compared with their checksums, and
	// Scrubbed when that was last done.
	Scrubs   uint64    `json:"scrubs"`
	Scrubbed time.Time `json:"scrubbed,omitzero"`

	// Damaged are the tables in use of which that has found that they are damaged, with what
	// is wrong.
	Damaged []string `json:"damaged,omitempty"`
}

// databases describes the databases of which there is something to tell: one that is
// simulated has no tables.
func (n *Node) databases() (all []DatabaseStatus) {
	logs, states := n.upkeep()
	for i, u := range []*storage.Upkeep{&logs, &states} {
		if u.TableBytes == 0 {
			continue
		}
		name := [...]string{"log", "state"}[i]
		st := DatabaseStatus{
			Name: name, TableBytes: u.TableBytes,
			ValueBytes: u.ValueBytes, LiveValueBytes: u.LiveValueBytes,
			Reclaims: u.Reclaims, ReclaimsFailed: u.ReclaimsFailed,
			ReclaimedBytes: u.ReclaimedBytes, Reclaimed: u.Reclaimed.UTC(),
			Scrubs: u.Scrubs, Scrubbed: u.Scrubbed.UTC(),
		}
		for _, f := range u.Damaged {
			st.Damaged = append(st.Damaged, name+"/"+f.File+" "+f.What)
		}
		all = append(all, st)
	}
	return all
}

// upkeep is what is done about the files of the log store, and of the state machines'.
func (n *Node) upkeep() (logs, states storage.Upkeep) {
	logs = n.store.Upkeep()
	if n.cfg.StateUpkeep != nil {
		states = n.cfg.StateUpkeep()
	}
	return logs, states
}

// damageProblem says which tables are damaged, and what can be done, or nothing.
func (rep *nodeReport) damageProblem() string {
	var said []string
	for i := range rep.Databases {
		db := &rep.Databases[i]
		if len(db.Damaged) == 0 {
			continue
		}
		way := "restart the node: it takes the states from the other members, if no " +
			"state.damaged of an earlier time is there, which is to be deleted first"
		switch {
		case db.Name == "log" && !slices.ContainsFunc(db.Damaged, isOfTable):
			way = "replicas that have lost something of their log are replaced; nothing else is " +
				"lost"
		case db.Name == "log":
			way = "the node goes on, and would not start again: while the other members are " +
				"well, stop it, empty its data directory and start it"
		}
		said = append(said, fmt.Sprintf("%s; %s", strings.Join(db.Damaged, ", "), way))
	}
	return strings.Join(said, "; ")
}

// isOfTable reports whether what is said about a file is about a table: without one the database
// does not open.
func isOfTable(damaged string) bool {
	file, _, _ := strings.Cut(damaged, " ")
	return strings.HasSuffix(file, ".sst")
}

// problem says what is wrong with a node, by its own report, beside what is known already.
func (rep *nodeReport) problem(known string, active bool) string {
	if !active {
		known = cmp.Or(known, rep.drainProblem())
	}
	if damage := rep.damageProblem(); damage != "" && known != "" {
		return known + "; " + damage
	} else if damage != "" {
		return damage
	}
	return known
}
