package main

import (
	"encoding/json"
	"io"
	"maps"
	"strconv"
	"sync"

	"github.com/raftyard/raftyard/group"
)

// A stock is the state machine of one shard: how many there are of each article.
// It is in memory; the node brings it back at each start.
type stock struct {
	mu     sync.RWMutex // reads of the program run beside Apply
	counts map[string]int
}

func newStock(group.Env) (group.StateMachine, error) {
	return &stock{counts: make(map[string]int)}, nil
}

// total returns how many there are of all articles of the shard.
func (s *stock) total() (sum int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, n := range s.counts {
		sum += n
	}
	return sum
}

// Apply adds one for each command, which is the name of an article, and answers
// with the new count.
func (s *stock) Apply(batch []group.Command) ([]group.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]group.Result, len(batch))
	for i, cmd := range batch {
		article := string(cmd.Data)
		s.counts[article]++
		results[i].Data = strconv.AppendInt(nil, int64(s.counts[article]), 10)
	}
	return results, nil
}

// Snapshot returns a copy, which stays as it is while Apply goes on.
func (s *stock) Snapshot() (group.Snapshot, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return snapshot(maps.Clone(s.counts)), nil
}

// Restore replaces the counts once all of them have come. ReadAll is what tells:
// it ends well only at io.EOF.
func (s *stock) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	counts := make(map[string]int)
	if err := json.Unmarshal(b, &counts); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = counts
	return nil
}

func (s *stock) Close() error { return nil }

type snapshot map[string]int

// WriteTo writes the counts. The encoder sorts them by article, so equal stocks
// have equal snapshots.
func (s snapshot) WriteTo(w io.Writer) (int64, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(b)
	return int64(n), err
}

func (s snapshot) Close() error { return nil }
