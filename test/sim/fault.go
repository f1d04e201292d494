package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
)

// A FaultKind is something that is done to a cluster.
type FaultKind string

// The kinds of faults. Those with a For end after it, the others at once.
const (
	Crash     FaultKind = "crash"    // Node loses power for For; what it had not synced may be gone
	Kill      FaultKind = "kill"     // Node's process is killed, and starts again after For
	Stop      FaultKind = "stop"     // Node is closed in order, and starts again after For
	CrashAll  FaultKind = "crashall" // every node loses power for For
	Rot       FaultKind = "rot"      // Node crashes, and its disk has lost what it had durably
	Trip      FaultKind = "trip"     // Node loses power in its N-th sync from now, for For
	Ambush    FaultKind = "ambush"   // Node crashes, within N ms, when it next gets a snapshot
	Tear      FaultKind = "tear"     // a chunk of any snapshot breaks its stream with N percent
	Wipe      FaultKind = "wipe"     // Node crashes and comes back with an empty disk
	Revert    FaultKind = "revert"   // Node runs an older copy of its disk for For, and is lost
	Clock     FaultKind = "clock"    // Node is killed, and its clock N ms ahead, M behind
	Pause     FaultKind = "pause"    // Node stands still for For
	Usurp     FaultKind = "usurp"    // whichever node leads Group stands still for For
	Stall     FaultKind = "stall"    // one process of Node gets no turn for For
	SlowDisk  FaultKind = "slowdisk" // every sync of Node takes up to N ms
	HangDisk  FaultKind = "hangdisk" // the next sync of Node's log takes For
	FailDisk  FaultKind = "faildisk" // the next sync of Node fails, and the node with it
	Cut       FaultKind = "cut"      // nothing that Node sends reaches Peer
	Split     FaultKind = "split"    // the nodes in the set N are cut off from the others
	Isolate   FaultKind = "isolate"  // Node hears and is heard by nobody
	Flaky     FaultKind = "flaky"    // messages of Node to Peer, or of all to all, get lost, ...
	SlowNet   FaultKind = "slownet"  // messages of Node to Peer, or of all to all, take N ms more
	LagBehind FaultKind = "lag"      // Node is isolated until a group has cut its log behind it
	Transfer  FaultKind = "transfer" // Group is led by Node
	Members   FaultKind = "members"  // Group gets the voters in the set N, learners in the set M
	Replace   FaultKind = "replace"  // as members, by somebody who names the epoch
	Snapshot  FaultKind = "snapshot" // Node takes a snapshot of Group
	Create    FaultKind = "create"   // Group, which comes and goes, is created
	Delete    FaultKind = "delete"   // Group, which comes and goes, is deleted
	Recreate  FaultKind = "recreate" // Group, or one of its own, is deleted, and created again
	Join      FaultKind = "join"     // Node, which is in no cluster, joins it, within For
	Move      FaultKind = "move"     // Node, or all if N, come back after For at another address
	Drain     FaultKind = "drain"    // Node leads nothing any more
	Undrain   FaultKind = "undrain"  // Node may lead again
	Leave     FaultKind = "leave"    // Node is taken out of the cluster, by force if N
	Attach    FaultKind = "attach"   // Node is attached to Group as a learner
	Detach    FaultKind = "detach"   // Node is detached from Group
	Forget    FaultKind = "forget"   // Group, which was deleted, is forgotten
	Contest   FaultKind = "contest"  // some create and delete one group at the same time, M times
)

// A Fault is something that is done at a time. Which fields mean something depends
// on the kind. In a set of nodes, N or M, node i is bit i-1.
type Fault struct {
	At    time.Duration
	Kind  FaultKind
	Node  raftyard.NodeID
	Peer  raftyard.NodeID
	Group raftyard.GroupID
	For   time.Duration
	N, M  uint64
}

// String returns the fault in the form that [ParseSchedule] reads.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", f.At, f.Kind)
	number := func(name string, v uint64) {
		if v != 0 {
			fmt.Fprintf(&b, " %s=%d", name, v)
		}
	}
	number("node", uint64(f.Node))
	number("peer", uint64(f.Peer))
	number("group", uint64(f.Group))
	number("n", f.N)
	number("m", f.M)
	if f.For != 0 {
		fmt.Fprintf(&b, " for=%v", f.For)
	}
	return b.String()
}

// A Schedule is a list of faults, in the order of their times.
type Schedule []Fault

// String returns the schedule, one fault a line.
func (s Schedule) String() string {
	var b strings.Builder
	for _, f := range s {
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// ErrSchedule says that a text is no schedule.
var ErrSchedule = errors.New("sim: not a schedule")

// ParseSchedule reads what [Schedule.String] has written. Empty lines and those that
// begin with # are skipped.
func ParseSchedule(text string) (Schedule, error) {
	s := Schedule{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f, err := parseFault(line)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrSchedule, i+1, err)
		}
		s = append(s, f)
	}
	return s, nil
}

func parseFault(line string) (f Fault, err error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return f, fmt.Errorf("%q has no time and kind", line)
	}
	if f.At, err = time.ParseDuration(words[0]); err != nil {
		return f, err
	}
	f.Kind = FaultKind(words[1])
	if _, known := faultActions[f.Kind]; !known {
		return f, fmt.Errorf("kind %q is not known", words[1])
	}
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		if name == "for" {
			if f.For, err = time.ParseDuration(value); err != nil {
				return f, err
			}
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return f, err
		}
		switch name {
		case "node":
			f.Node = raftyard.NodeID(n)
		case "peer":
			f.Peer = raftyard.NodeID(n)
		case "group":
			f.Group = raftyard.GroupID(n)
		case "n":
			f.N = n
		case "m":
			f.M = n
		default:
			return f, fmt.Errorf("%q is not known", name)
		}
	}
	return f, nil
}
