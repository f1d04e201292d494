//go:build unix

package crash

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/raftyard/raftyard"
)

// What a child says, one line each, and in which order the words follow.
const (
	sayTry   = "try"     // number, operation, group, token or voters: a call begins
	sayOK    = "ok"      // number: it was acknowledged
	sayNo    = "no"      // number: it certainly is not done
	sayMaybe = "unknown" // number: it may be done

	sayState = "state" // group, present or absent, wanted voters: a view begins
	sayItem  = "item"  // group, token, part, how often: something is there
	sayHash  = "hash"  // group, node, hash: of the content there
	sayEnd   = "end"   // group: that was all of it

	sayListen = "listen" // node, address: where it listens, if the network is TCP
	sayOpened = "opened" // all nodes are open
	sayReady  = "ready"  // all groups were shown, and take writes
	sayPhase  = "phase"  // name, group, node: a replica comes to it
	sayHeld   = "held"   // name: it stays there
	sayFault  = "fault"  // text: something is wrong
)

// The operations.
const (
	opAppend  = "append"  // to a list
	opPut     = "put"     // a key
	opPair    = "pair"    // two keys at once
	opDelete  = "delete"  // a key
	opCreate  = "create"  // a group
	opDestroy = "destroy" // a group
	opMembers = "members" // of a group
)

// The phases of a replica's life that a parent can aim at.
const (
	phaseFound    = "found"    // a replica begins here: its state machine is opened, empty
	phaseOpen     = "open"     // a replica comes back: its state machine is opened
	phaseRead     = "read"     // a state is read out: into a file, or to a follower
	phaseRead2    = "was-read" // it was: the file is synced, the log is cut
	phaseDurable  = "durable"  // a durable state machine was asked for its index: the log is cut
	phaseRestore  = "restore"  // a snapshot is installed: the intent is synced
	phaseRestore2 = "restored" // it is in the state machine: the log is reset
	phaseDestroy  = "destroy"  // a replica is removed: its tombstone is synced
	phaseDestroy2 = "gone"     // its state is deleted: that is noted
)

// A speaker says lines to the parent. It may be used from several goroutines.
type speaker struct {
	mu  sync.Mutex
	out io.Writer
}

func (s *speaker) say(words ...any) { s.write(line(words...)) }

func line(words ...any) string { return fmt.Sprintln(words...) }

// write says whole lines. A child that nobody hears has nothing to live for.
func (s *speaker) write(lines string) {
	s.mu.Lock()
	_, err := io.WriteString(s.out, lines)
	s.mu.Unlock()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the parent does not listen:", err)
		os.Exit(exitUnheard)
	}
}

const exitUnheard = 3

// votersText names a list of voters in one word.
func votersText(ids []raftyard.NodeID) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(id.String())
	}
	return b.String()
}
