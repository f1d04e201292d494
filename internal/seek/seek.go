// Package seek goes through the addresses at which a node may be found.
package seek

import (
	"slices"
	"sync"
)

// A Seeker says where to look for one node next: at the same address for as long as it
// is found there, else at each of several in turn. The zero value is ready. Its methods
// are safe for concurrent use: what one attempt finds out serves the others.
type Seeker struct {
	mu   sync.Mutex
	list []string // never changed
	at   int      // in list
	last string
}

// Next returns the address for an attempt, or false if there is none. addrs are those
// that are known now, the best one first; empty ones and repetitions count for nothing.
// When they are others than before, the best one is next.
func (s *Seeker) Next(addrs []string) (addr string, ok bool) {
	list := distinct(addrs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.list, list) {
		s.list, s.at = list, 0
	}
	if len(list) == 0 {
		return "", false
	}
	s.last = list[s.at]
	return s.last, true
}

// Missed says that the node was not found at an address that Next has returned. If
// another attempt has found that out before, this is not said twice.
func (s *Seeker) Missed(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) > 0 && s.list[s.at] == addr {
		s.at = (s.at + 1) % len(s.list)
	}
}

// Last returns what Next has returned last, or "".
func (s *Seeker) Last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func distinct(addrs []string) []string {
	list := make([]string, 0, len(addrs))
	for _, a := range addrs {
		if a != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}
