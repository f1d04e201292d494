package config

import (
	"fmt"
	"maps"

	"github.com/raftyard/raftyard"
)

// isShared reports whether this is the file of all founding nodes, and not of one.
func (v *validator) isShared() bool {
	return v.Node.ID == 0 && !v.known("node.id") && len(v.Nodes) > 0
}

// validateShared checks the file for each founding node, which is to be told its id and its
// directory when it is started. What is wrong for one is mostly wrong for the next ones, and
// is said once.
func (v *validator) validateShared() {
	v.requireCluster()
	v.common()
	before := len(v.report.problems)
	all, origins := v.Config, v.origins
	for i, p := range all.Nodes {
		if len(v.report.problems) > before {
			break
		}
		v.Node.ID, v.origins = p.ID, maps.Clone(origins)
		v.fillListen()
		if v.Listen.HTTP == "" {
			line := fmt.Sprintf("nodes[%d]", i)
			v.report.add(Problem{
				Origin: v.at(line), Key: line + ".http", Want: fmt.Sprintf("missing, want the "+
					"host:port on which node %s listens for clients, or listen.http", p.ID),
			})
		} else {
			v.listen()
		}
		v.Config, v.origins = all, origins
	}
}

func (v *validator) addressBook() {
	if len(v.Nodes) == 0 {
		v.require(true, "nodes",
			"the address book of the cluster: the nodes that it is founded with")
		return
	}
	ids := map[raftyard.NodeID]string{}
	addresses, shared := map[string]string{}, map[string]bool{}
	for i, p := range v.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		if p.ID != 0 {
			unique(v, ids, p.ID, at+".id", p.ID.String())
		}
		if p.Peer != "" {
			unique(v, addresses, p.Peer, at+".peer", p.Peer)
		}
		if p.HTTP != "" && !shared[p.HTTP] { // what is in front of several nodes
			shared[p.HTTP] = addresses[p.HTTP] == ""
			unique(v, addresses, p.HTTP, at+".http", p.HTTP)
		}
	}
	v.evenFounders()
}

// evenFounders warns of a number of founding nodes that is no better than one less. An odd
// number of them votes in the system group, five at most.
func (v *validator) evenFounders() {
	const key = "nodes"
	switch len(v.Nodes) {
	case 2:
		v.report.odd(v.at(key), key, "2 founding nodes: only the one with the lower id votes on "+
			"nodes and groups, and nothing about them can be changed while it is down; 3 survive "+
			"a failure")
	case 4:
		v.report.odd(v.at(key), key, "4 founding nodes: only the 3 with the lowest ids vote on "+
			"nodes and groups, so that 4 survive as many failures as 3: one")
	}
}
