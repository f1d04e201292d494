package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/raftyard/raftyard"
)

// An Effective is a setting with the value that counts and where it is from.
type Effective struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`

	// Items are the elements of a list, one by one.
	Items []string `json:"-"`
}

// Effective returns every setting with its value and origin, in the order of
// the file.
func (l *Loaded) Effective() []Effective {
	var list []Effective
	for _, s := range Settings() {
		list = append(list, Effective{
			Key:    s.Key,
			Value:  s.showValue(&l.Config),
			Origin: l.origins[s.Key].String(),
			Items:  s.showItems(&l.Config),
		})
	}
	return list
}

// showList returns items as one list, in YAML so that it can be pasted.
func showList(items []string) string { return "[" + strings.Join(items, ", ") + "]" }

// showNodes returns the lines of the address book.
func showNodes(peers []Peer) []string {
	items := make([]string, len(peers))
	for i, p := range peers {
		item := fmt.Sprintf("id: %d, peer: %s", p.ID, quote(p.Peer))
		if p.HTTP != "" {
			item += ", http: " + quote(p.HTTP)
		}
		if len(p.Labels) > 0 {
			item += ", labels: " + showLabels(p.Labels)
		}
		items[i] = "{" + item + "}"
	}
	return items
}

func showLabels(labels map[string]string) string {
	items := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		items = append(items, quote(name)+": "+quote(labels[name]))
	}
	return "{" + strings.Join(items, ", ") + "}"
}

func showGroups(groups []Group) []string {
	items := make([]string, len(groups))
	for i, g := range groups {
		item := fmt.Sprintf("id: %d, kind: %s, voters: %s", g.ID, g.Kind, showIDs(g.Voters))
		if len(g.Learners) > 0 {
			item += ", learners: " + showIDs(g.Learners)
		}
		if g.SnapshotEntries > 0 {
			item += fmt.Sprintf(", snapshot_entries: %d", g.SnapshotEntries)
		}
		if g.TrailingEntries > 0 {
			item += fmt.Sprintf(", trailing_entries: %d", g.TrailingEntries)
		}
		items[i] = "{" + item + "}"
	}
	return items
}

func showIDs(ids []raftyard.NodeID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// quote returns text as a YAML scalar that stays text inside a flow mapping. The
// double-quoted form of YAML takes every escape that JSON has.
func quote(text string) string {
	if text != "" && !strings.ContainsFunc(text, notPlain) {
		return text
	}
	return fmt.Sprintf("%q", text)
}

func notPlain(r rune) bool { return r != ':' && notInName(r) }
