package registry

import (
	"fmt"
	"strings"

	"github.com/raftyard/raftyard"
)

// Describe says in one line what an encoded command does, for people. It can be shown on
// a terminal, whatever the command holds.
func Describe(data []byte) string {
	c, err := decodeCommand(data)
	if err != nil {
		return fmt.Sprintf("unreadable, %d bytes: %v", len(data), err)
	}
	switch c := c.(type) {
	case CreateGroup:
		return fmt.Sprintf("create group %v (%q, incarnation %v, voters %s, learners %s,"+
			" seed node %v)",
			c.ID, c.Kind, c.Incarnation, nodeList(c.Voters), nodeList(c.Learners), c.Seed)
	case DeleteGroup:
		return fmt.Sprintf("delete group %v (incarnation %v)", c.ID, c.Incarnation)
	case WantMembers:
		return fmt.Sprintf("group %v wants voters %s, learners %s",
			c.ID, nodeList(c.Voters), nodeList(c.Learners))
	case setNodeV1:
		return describeNode(&c.Node)
	case SetNode:
		return describeNode(&c.Node)
	case SetNodeState:
		return fmt.Sprintf("node %v is %v", c.ID, c.State)
	case ReplaceStore:
		return fmt.Sprintf("node %v goes on with directory %v instead of %v", c.ID, c.New, c.Old)
	case ForgetGroup:
		return fmt.Sprintf("forget group %v (incarnation %v)", c.ID, c.Incarnation)
	case Reached:
		return fmt.Sprintf("group %v has come to the members of version %d (incarnation %v)",
			c.ID, c.Version, c.Incarnation)
	default:
		return fmt.Sprintf("a command of %d bytes", len(data))
	}
}

func describeNode(n *Node) string {
	return fmt.Sprintf("node %v: peer %q, http %q, directory %v, boot %d",
		n.ID, n.Peer, n.HTTP, n.Store, n.Boot)
}

func nodeList(nodes []raftyard.NodeID) string {
	if len(nodes) == 0 {
		return "-"
	}
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		texts[i] = n.String()
	}
	return strings.Join(texts, ",")
}
