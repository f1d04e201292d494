package inspect

import (
	"fmt"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node/registry"
)

// An Entry is one of a log.
type Entry struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`

	// Type is "empty", "commands" or "members".
	Type  string `json:"type"`
	Bytes int    `json:"bytes"`

	// Committed: the replica has noted durably that it is. Others may be as well.
	Committed bool `json:"committed"`

	// What is each command, or the members, in one line.
	What []string `json:"what"`
}

// Log calls fn with the entries of a group's log from one index to another, zero: the last,
// until fn returns an error, which it returns.
func (d *Dir) Log(g raftyard.GroupID, from, to uint64, fn func(Entry) error) error {
	_, rec, err := d.live(g)
	if err != nil {
		return err
	}
	l := d.logs.Log(g)
	_, last := l.Bounds()
	if to == 0 {
		to = last
	}
	commit := l.HardState().GetCommit()
	describe := describer(g, rec.State.Descriptor.Kind)
	return d.logs.Entries(g, from, to, func(e *raftpb.Entry) error {
		entry := Entry{
			Index: e.GetIndex(), Term: e.GetTerm(), Bytes: len(e.GetData()),
			Committed: e.GetIndex() <= commit, What: []string{},
		}
		entry.describe(e, describe)
		return fn(entry)
	})
}

// describer returns what describes the commands of a group.
func describer(g raftyard.GroupID, kind string) func([]byte) string {
	switch {
	case g == raftyard.SystemGroup:
		return registry.Describe
	case kind == kvKind:
		return kv.Describe
	default:
		return func(data []byte) string { return fmt.Sprintf("%d bytes", len(data)) }
	}
}

func (e *Entry) describe(raw *raftpb.Entry, describe func([]byte) string) {
	next, change, err := group.DecodeChange(raw)
	if err != nil {
		e.Type, e.What = "members", append(e.What, "unreadable: "+err.Error())
		return
	}
	if change {
		e.Type, e.What = "members", append(e.What, describeMembers(&next))
		return
	}
	commands, err := group.DecodeEntry(raw)
	switch {
	case err != nil:
		e.Type, e.What = "commands", append(e.What, "unreadable: "+err.Error())
	case len(commands) == 0:
		e.Type = "empty"
	default:
		e.Type = "commands"
		for i := range commands {
			e.What = append(e.What, describe(commands[i].Data))
		}
	}
}

func describeMembers(d *group.Descriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d:", d.Epoch)
	for _, m := range d.Members {
		fmt.Fprintf(&b, " %v@%v %s", m.ID, m.Node, m.Role)
	}
	return b.String()
}
