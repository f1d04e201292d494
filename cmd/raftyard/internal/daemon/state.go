package daemon

import (
	"errors"
	"fmt"
	"sync"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
)

// A stateStore is the store of all key-value groups of a node, opened when it is
// first needed.
type stateStore struct {
	options kv.StoreOptions

	mu     sync.Mutex // guards what follows
	store  *kv.Store
	err    error // why it could not be opened: that is not tried twice
	closed bool
}

var errStateClosed = errors.New("the state store is closed")

// open returns the store.
func (s *stateStore) open() (*kv.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errStateClosed
	case s.store != nil, s.err != nil:
		return s.store, s.err
	}
	s.store, s.err = kv.OpenStore(s.options)
	if s.err != nil {
		s.err = fmt.Errorf("open the state in %s: %w", s.options.Dir, s.err)
	}
	return s.store, s.err
}

// factory opens the state machine of a replica.
func (s *stateStore) factory(env group.Env) (group.StateMachine, error) {
	store, err := s.open()
	if err != nil {
		return nil, err
	}
	return store.Factory()(env)
}

// close closes the store if it is open. The node must be closed before.
func (s *stateStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.store == nil {
		s.closed = true
		return nil
	}
	s.closed = true
	return s.store.Close()
}
