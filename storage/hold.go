package storage

// Commits wait while there is too little disk space to write the database, because to
// write it then would be the end of the process. Nothing fails meanwhile, and they go on
// by themselves.

// A holder is a database whose commits wait for disk space. A simulated one need not be.
type holder interface {
	Held() bool
	StopWaiting()
}

// Held reports whether commits wait for disk space.
func (s *Store) Held() bool {
	h, ok := s.db.(holder)
	return ok && h.Held()
}

// StopWaiting has commits that wait for disk space, now or later, end with [ErrNoSpace],
// for an owner who is about to close the store.
func (s *Store) StopWaiting() {
	if h, ok := s.db.(holder); ok {
		h.StopWaiting()
	}
}
