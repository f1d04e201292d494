package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/inspect"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node/registry"
)

// errEnough ends a list at its limit.
var errEnough = errors.New("enough")

// inspectLog shows the entries of a log.
func (a *app) inspectLog(d *inspect.Dir, g raftyard.GroupID, f *inspectFlags) error {
	entries := []inspect.Entry{}
	more := uint64(0)
	err := d.Log(g, f.from, f.to, func(e inspect.Entry) error {
		if f.limit > 0 && len(entries) == f.limit {
			more = e.Index
			return errEnough
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	v := view{
		data:   map[string]any{"group": g, "entries": entries},
		header: []string{"INDEX", "TERM", "TYPE", "BYTES", "COMMITTED", "WHAT"},
	}
	for i := range entries {
		e := &entries[i]
		committed := "-"
		if e.Committed {
			committed = "yes"
		}
		index := strconv.FormatUint(e.Index, 10)
		v.names = append(v.names, index)
		v.rows = append(v.rows, []string{
			index, strconv.FormatUint(e.Term, 10), e.Type, strconv.Itoa(e.Bytes), committed,
			strings.Join(e.What, "; "),
		})
	}
	if err := a.show(v); err != nil {
		return err
	}
	if more > 0 {
		a.say("there are more: --from %d", more)
	}
	return nil
}

// inspectState shows what a state machine holds.
func (a *app) inspectState(d *inspect.Dir, g raftyard.GroupID, f *inspectFlags) error {
	if g == raftyard.SystemGroup {
		return a.inspectRegistry(d)
	}
	// All items are read, to check them together; not all of them are kept.
	items := []client.Item{}
	state, err := d.KV(g, func(it kv.ListItem) error {
		if f.limit > 0 && len(items) == f.limit {
			return nil
		}
		item := client.Item{
			Key: bytes.Clone(it.Key), Revision: it.Revision, CreateRevision: it.CreateRevision,
		}
		if !f.keysOnly {
			item.Value = append([]byte{}, it.Data...)
		}
		items = append(items, item)
		return nil
	})
	if err != nil {
		return err
	}
	v := itemsView(client.Items{Items: items, Revision: state.Revision}, f.keysOnly, &keyFlags{})
	v.data = map[string]any{
		"group": g, "applied": state.Applied, "revision": state.Revision,
		"count": state.Items, "bytes": state.Bytes, "hash": fmt.Sprintf("%x", state.Hash),
		"items": items,
	}
	for i := range items {
		v.names = append(v.names, printable(items[i].Key))
	}
	if err := a.show(v); err != nil {
		return err
	}
	a.say("group %s at index %d, revision %d: %s of %d bytes, hash %x", g, state.Applied,
		state.Revision, countWord(state.Items, "item", "items"), state.Bytes, state.Hash)
	return nil
}

// inspectRegistry shows the nodes and groups that the registry holds.
func (a *app) inspectRegistry(d *inspect.Dir) error {
	reg, index, err := d.Registry()
	if err != nil {
		return err
	}
	doc := registryDoc{
		Index: index, Version: reg.Version(), Nodes: []registryNode{},
		Groups: []registryGroup{},
	}
	v := view{header: []string{"WHAT", "ID", "STATE", "DETAIL"}}
	nodes := reg.Nodes()
	for i := range nodes {
		n := &nodes[i]
		doc.Nodes = append(doc.Nodes, registryNode{
			ID: n.ID, State: n.State.String(), Peer: n.Peer, HTTP: n.HTTP, Labels: n.Labels,
			Store: n.Store.String(), Boot: n.Boot,
		})
		v.rows = append(v.rows, []string{
			"node", n.ID.String(), n.State.String(),
			fmt.Sprintf("peer %s, http %s, directory %s, start %d",
				dash(n.Peer), dash(n.HTTP), n.Store, n.Boot),
		})
	}
	for g := range reg.All() {
		doc.add(&g)
		v.rows = append(v.rows, groupRow(&g))
	}
	for _, row := range v.rows {
		v.names = append(v.names, row[0]+"/"+row[1])
	}
	v.data = doc
	if err := a.show(v); err != nil {
		return err
	}
	a.say("the registry at index %d, version %d", index, reg.Version())
	return nil
}

// registryDoc is the registry as a document.
type registryDoc struct {
	Index   uint64          `json:"index"`
	Version uint64          `json:"version"`
	Nodes   []registryNode  `json:"nodes"`
	Groups  []registryGroup `json:"groups"`
}

type registryNode struct {
	ID     raftyard.NodeID   `json:"id"`
	State  string            `json:"state"`
	Peer   string            `json:"peer"`
	HTTP   string            `json:"http"`
	Labels map[string]string `json:"labels,omitempty"`
	Store  string            `json:"store"`
	Boot   uint64            `json:"boot"`
}

type registryGroup struct {
	ID          raftyard.GroupID  `json:"id"`
	Kind        string            `json:"kind"`
	Incarnation string            `json:"incarnation"`
	Deleted     bool              `json:"deleted"`
	Voters      []raftyard.NodeID `json:"voters"`
	Learners    []raftyard.NodeID `json:"learners"`
}

func (doc *registryDoc) add(g *registry.Group) {
	doc.Groups = append(doc.Groups, registryGroup{
		ID: g.ID, Kind: g.Kind, Incarnation: g.Incarnation.String(), Deleted: g.Deleted,
		Voters:   append([]raftyard.NodeID{}, g.Voters...),
		Learners: append([]raftyard.NodeID{}, g.Learners...),
	})
}

func groupRow(g *registry.Group) []string {
	state := "wanted"
	if g.Deleted {
		state = "deleted"
	}
	return []string{"group", g.ID.String(), state, fmt.Sprintf("kind %s, voters %s, learners %s,"+
		" incarnation %s", dash(printableWord(g.Kind)), dash(join(g.Voters)),
		dash(join(g.Learners)), g.Incarnation)}
}
