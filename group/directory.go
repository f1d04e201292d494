package group

import "github.com/raftyard/raftyard"

// A NodeStore is what is known of a node's data directories.
type NodeStore struct {
	// Current is the directory that the node has now, First the first one that it was
	// known with. Zero: not known.
	Current raftyard.StoreID
	First   raftyard.StoreID
}

// Of returns the directory that a member on the node was given to, or zero if it is
// not known. A member that does not say is one from before anybody knew the node, or
// a founder of the system group: it was given to the node's first directory.
func (s NodeStore) Of(m Member) raftyard.StoreID {
	if m.Store.IsZero() {
		return s.First
	}
	return m.Store
}

// Lost reports whether a member on the node was given to a directory that the node has
// not any more. Its replica is nowhere.
func (s NodeStore) Lost(m Member) bool {
	given := s.Of(m)
	return !given.IsZero() && !s.Current.IsZero() && given != s.Current
}
