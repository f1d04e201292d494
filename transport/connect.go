package transport

import "github.com/raftyard/raftyard"

// Connect asks for a connection to a node to be made, and kept, though nothing
// is to be sent yet: that it stands is how nodes know of each other.
func (t *Transport) Connect(node raftyard.NodeID) {
	if p := t.peer(node); p != nil {
		p.queue.poke()
	}
}
