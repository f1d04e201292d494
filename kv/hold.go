package kv

// Held reports whether changes wait for disk space. They wait instead of failing, because
// to write the database without space would be the end of the process, and go on by
// themselves.
func (s *Store) Held() bool { return s.db.Held() }

// StopWaiting has changes that wait for disk space, now or later, end with [ErrClosed], for
// an owner who is about to close the store.
func (s *Store) StopWaiting() { s.db.StopWaiting() }

// StopWaiting is [Store.StopWaiting]. A node calls it when it closes; it would wait for the
// machine's Apply otherwise.
func (m *Machine) StopWaiting() { m.store.StopWaiting() }
