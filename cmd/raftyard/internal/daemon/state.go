package daemon

import (
	"errors"
	"fmt"
	"log/slog"
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
	if errors.Is(s.err, kv.ErrStoreDamaged) {
		s.store, s.err = s.beginAnew(s.err)
	}
	if s.err != nil {
		s.err = fmt.Errorf("open the state in %s: %w", s.options.Dir, s.err)
	}
	return s.store, s.err
}

// beginAnew opens an empty store in the place of one that is damaged. The node notices
// that its replicas have lost their states, and has them take those of other members.
func (s *stateStore) beginAnew(damage error) (*kv.Store, error) {
	aside, err := kv.SetAside(s.options.Dir)
	if errors.Is(err, kv.ErrAside) {
		return nil, fmt.Errorf("%w: restore what is damaged as it was, or delete %s, which was "+
			"set aside before, and start: the states come from the other nodes then; an empty "+
			"data directory will do as well", damage, kv.AsideDir(s.options.Dir))
	}
	if err != nil {
		return nil, errors.Join(damage, err)
	}
	s.options.Logger.Error("the state of the key-value groups is damaged: it is set aside, and "+
		"taken from other members of the groups; delete it when no group has a problem",
		slog.String("set_aside", aside), slog.Any("error", damage))
	return kv.OpenStore(s.options)
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

// upkeep tells what the store has done about its files; nothing while it is being opened.
func (s *stateStore) upkeep() kv.Upkeep {
	if !s.mu.TryLock() {
		return kv.Upkeep{}
	}
	defer s.mu.Unlock()
	if s.closed || s.store == nil {
		return kv.Upkeep{}
	}
	return s.store.Upkeep()
}
