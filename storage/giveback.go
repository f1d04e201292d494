package storage

import "slices"

// spaceLimits say how much room dead records may take: that of what was
// overwritten in time is not counted, see slots.trim.
//
// They are what a store may hold for nothing, so small beside a memtable's worth
// of tables. The share of a group is so large that a group of small records never
// reaches it: 256 KiB are two thousand records of a hundred bytes, and deleting
// pays only for records that are much larger than the deletion.
type spaceLimits struct {
	group int64 // bytes, each group
	store int64 // bytes, all groups together
}

func defaultSpaceLimits() spaceLimits { return spaceLimits{group: 256 << 10, store: 64 << 20} }

// trimChunk is how many groups are looked at while commits wait.
const trimChunk = 256

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

func (s *Store) liveReplicas() []*replica {
	s.mu.RLock()
	defer s.mu.RUnlock()
	live := make([]*replica, 0, len(s.replicas))
	for _, r := range s.replicas {
		if r.log != nil {
			live = append(live, r)
		}
	}
	return live
}

func (s *Store) trim(some []*replica, allow int64) error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	for _, r := range some {
		if r.log != nil { // still
			s.garbage.add(r.log.group, r.slots.trim(allow))
		}
	}
	return nil
}
