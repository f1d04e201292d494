package storage

import (
	"cmp"
	"slices"
)

// spaceLimits say how much room records may take beyond what the logs have needed
// lately, see slots.trim. That is held for nothing: for all groups together four
// memtables, little beside level 0. The share of a group is so large that one of
// small records hardly reaches it, two thousand of a hundred bytes; deleting pays
// only for records that are much larger than the deletion.
type spaceLimits struct {
	group int64 // bytes, each group
	store int64 // bytes, all groups together
}

func defaultSpaceLimits() spaceLimits { return spaceLimits{group: 256 << 10, store: 64 << 20} }

const (
	// trimChunk is how many groups are looked at while commits wait.
	trimChunk = 256

	// trimBacklog is the garbage with which no more is added to it: it must not
	// grow without a bound where logs are cut so slowly and are so busy that they
	// could be trimmed after each cut.
	trimBacklog = 4096
)

// giveBack finds the free slots that hold too much and makes them garbage, which
// batches and collect delete. The deletion, not an overwriting with something
// small: it is as long in Badger as that would be, and goes away when compaction
// brings it to the last level, while the small record would stay.
//
// A kill loses nothing but the list. The next start finds dead records in free
// slots, as before.
func (s *Store) giveBack(limits spaceLimits) error {
	live := s.liveReplicas()
	if len(live) == 0 {
		return nil
	}
	allow := min(limits.group, limits.store/int64(len(live)))
	for some := range slices.Chunk(live, trimChunk) {
		if err := s.trim(some, allow); err != nil {
			return err
		}
	}
	return nil
}

// liveReplicas returns the replicas that have a log, by group id.
func (s *Store) liveReplicas() []*replica {
	s.mu.RLock()
	defer s.mu.RUnlock()
	live := make([]*replica, 0, len(s.replicas))
	for _, r := range s.replicas {
		if r.log != nil {
			live = append(live, r)
		}
	}
	slices.SortFunc(live, func(a, b *replica) int {
		return cmp.Compare(a.info.Group, b.info.Group)
	})
	return live
}

func (s *Store) trim(some []*replica, allow int64) error {
	s.lockCommits()
	defer s.commitMu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	for _, r := range some {
		if r.log != nil && s.garbage.size.Load() < trimBacklog { // live, still
			s.garbage.add(r.log.group, r.slots.trim(allow))
		}
	}
	return nil
}
