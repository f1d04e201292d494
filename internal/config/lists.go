package config

import (
	"fmt"
	"strings"

	"github.com/raftyard/raftyard"
)

// nodeID reads the id of a node.
func (d *decoder) nodeID(v value, key string, to *raftyard.NodeID) {
	decodeID(d, v, key, raftyard.ParseNodeID, to)
}

// groupID reads the id of a group that is created: the system group is not.
func (d *decoder) groupID(v value, key string, to *raftyard.GroupID) {
	decodeID(d, v, key, func(text string) (raftyard.GroupID, error) {
		id, err := raftyard.ParseGroupID(text)
		if err == nil {
			err = id.CheckUser()
		}
		return id, err
	}, to)
}

func decodeID[ID any](
	d *decoder, v value, key string, parse func(text string) (ID, error), to *ID,
) {
	_, none := parse("")
	text, ok := d.scalar(v, key, strings.TrimPrefix(none.Error(), "want "))
	if !ok {
		return
	}
	id, err := parse(text)
	if err != nil {
		d.report.bad(v, key, "%v", err)
		return
	}
	*to = id
}

// items returns the elements of a list of at most most elements, each with its
// key.
func (d *decoder) items(v value, key string, most int) func(yield func(string, value) bool) {
	return func(yield func(string, value) bool) {
		switch {
		case v.kind != list:
			d.report.bad(v, key, "got %s, want a list", v.kind)
			return
		case len(v.items) > most:
			d.report.bad(v, key, "%d elements, want at most %d", len(v.items), most)
			return
		}
		d.origins[key] = v.origin
		for i, item := range v.items {
			if !yield(fmt.Sprintf("%s[%d]", key, i), item) {
				return
			}
		}
	}
}

func (d *decoder) nodes(v value, key string, to *[]Peer) {
	var peers []Peer
	for at, item := range d.items(v, key, maxNodes) {
		peers = append(peers, d.peer(item, at))
	}
	*to = peers
}

func (d *decoder) peer(v value, key string) Peer {
	var p Peer
	d.origins[key] = v.origin
	if v.kind != mapping {
		d.report.bad(v, key, "got %s, want a node such as "+
			"{id: 1, peer: 127.0.0.1:8701, http: 127.0.0.1:8700}", v.kind)
		return p
	}
	seen := d.mapping(v, key, []entry{
		{name: "id", read: func(v value, key string) { d.nodeID(v, key, &p.ID) }},
		{name: "peer", read: func(v value, key string) { d.routable(v, key, &p.Peer) }},
		{name: "http", read: func(v value, key string) { d.routable(v, key, &p.HTTP) }},
		{name: "labels", read: func(v value, key string) { d.labels(v, key, &p.Labels) }},
	})
	d.require(v, key, seen, "id", "the node's id, an integer from 1 on")
	d.require(v, key, seen, "peer", "the host:port that other nodes dial")
	return p
}

func (d *decoder) require(v value, key string, seen map[string]bool, name, want string) {
	if !seen[name] {
		d.report.add(Problem{Origin: v.origin, Key: join(key, name), Want: "missing, want " + want})
	}
}

// routable reads an address that others dial.
func (d *decoder) routable(v value, key string, to *string) {
	before := *to
	d.address(v, key, to)
	if *to != before && isWildcard(*to) {
		d.report.bad(v, key, "others cannot dial this host, want one that they can")
		*to = before
	}
}

func (d *decoder) labels(v value, key string, to *map[string]string) {
	if v.kind != mapping {
		d.report.bad(v, key, "got %s, want a mapping such as {zone: a}", v.kind)
		return
	}
	labels := make(map[string]string, len(v.fields))
	for i := range v.fields {
		f := &v.fields[i]
		at := join(key, f.name)
		if _, twice := labels[f.name]; twice {
			d.report.add(Problem{Origin: f.origin, Key: at, Want: "given twice, want it once"})
			continue
		}
		var label string
		d.text(f.value, at, "a word", &label)
		labels[f.name] = label
	}
	*to = labels
}

func (d *decoder) groups(v value, key string, to *[]Group) {
	var groups []Group
	for at, item := range d.items(v, key, maxGroups) {
		groups = append(groups, d.group(item, at))
	}
	*to = groups
}

func (d *decoder) group(v value, key string) Group {
	var g Group
	d.origins[key] = v.origin
	if v.kind != mapping {
		d.report.bad(v, key, "got %s, want a group such as "+
			"{id: 1, kind: kv, voters: [1, 2, 3]}", v.kind)
		return g
	}
	count := func(to *uint64) func(v value, key string) {
		return func(v value, key string) {
			if n, ok := d.unsigned(v, key, 0, maxIndexEntries); ok {
				*to = n
			}
		}
	}
	seen := d.mapping(v, key, []entry{
		{name: "id", read: func(v value, key string) { d.groupID(v, key, &g.ID) }},
		{name: "kind", read: func(v value, key string) { d.word(v, key, Kinds(), &g.Kind) }},
		{name: "voters", read: func(v value, key string) { d.ids(v, key, &g.Voters) }},
		{name: "learners", read: func(v value, key string) { d.ids(v, key, &g.Learners) }},
		{name: "snapshot_entries", read: count(&g.SnapshotEntries)},
		{name: "trailing_entries", read: count(&g.TrailingEntries)},
	})
	d.require(v, key, seen, "id", "the group's id, an integer from 1 on")
	d.require(v, key, seen, "kind", "the kind of state machine, such as kv")
	d.require(v, key, seen, "voters", "a list of node ids, such as [1, 2, 3]")
	return g
}

func (d *decoder) ids(v value, key string, to *[]raftyard.NodeID) {
	var ids []raftyard.NodeID
	for at, item := range d.items(v, key, maxNodes) {
		var id raftyard.NodeID
		d.nodeID(item, at, &id)
		ids = append(ids, id)
	}
	*to = ids
}
