package node

import (
	"fmt"
	"path/filepath"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// checkOwnAddress compares what Advertise says with what the list of founding nodes gives to
// others. For a node without a directory that is a slip: a configuration was copied, and
// nothing is to come of it, not even a directory that belongs to the wrong node. Later the
// list is history: the others may have moved away from there, or be gone, and the registry
// says where they are. Even if not, whoever is called there says who it is.
func (n *Node) checkOwnAddress() error {
	if !n.cfg.Advertise.advertises() {
		return nil // it is where its own line says
	}
	clash := n.cfg.self().clash(n.cfg.Peers)
	if clash == nil {
		return nil
	}
	used, err := n.world.files.Exists(filepath.Join(n.cfg.Dir, storage.IdentityName))
	switch {
	case err != nil:
		return fmt.Errorf("node: %w", err)
	case !used:
		return fmt.Errorf("node: config: Advertise: %w", clash)
	}
	n.logger.Warn("the list of founding nodes gives this node's address to another one; "+
		"that is right only if the other one has moved", errAttr(clash))
	return nil
}

// foundAt returns which node is found at which peer address, and says so itself, as far as
// this one knows.
func (n *Node) foundAt(peers []transport.PeerStatus) map[string]raftyard.NodeID {
	found := map[string]raftyard.NodeID{n.cfg.self().Addr: n.cfg.ID}
	for i := range peers {
		if p := &peers[i]; p.Up && p.Addr == p.Told {
			found[p.Addr] = p.Node
		}
	}
	return found
}

// othersAddress says that another node is found where a node is registered, if that is so. It
// is not refused: two nodes that move may have each other's address for a while, see decision
// 14. Of itself a node knows better where it is: nobody reaches it to tell what is registered.
func (n *Node) othersAddress(rec *registry.Node, found map[string]raftyard.NodeID) string {
	addr := rec.Peer
	if rec.ID == n.cfg.ID {
		addr = n.cfg.self().Addr
	}
	id, ok := found[addr]
	if !ok || id == rec.ID || addr == "" {
		return ""
	}
	return fmt.Sprintf("its peer address, %s, is that of node %d, which is found there: start it "+
		"with an address of its own", addr, id)
}
