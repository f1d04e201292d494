package storage

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/raftyard/raftyard/internal/mutant"
)

// checkInventory compares what was recovered with the inventory. Who has less than it says
// is damaged; a tombstone that is not there any more is put back. It returns what is to be
// written for that, so that it is known without the inventory as well.
func (s *Store) checkInventory() (amends []op) {
	if mutant.On(mutant.ClampTail) {
		return nil
	}
	for _, g := range slices.Sorted(maps.Keys(s.inventory.entries)) {
		e, r := s.inventory.entries[g], s.replicas[g]
		if r == nil {
			r = &replica{info: Replica{Group: g}}
			s.replicas[g] = r
		}
		if r.info.ID == 0 { // nothing of it could be read
			r.info.ID, r.info.Incarnation = e.id, e.incarnation
		}
		if r.seq >= e.seq {
			continue
		}
		had := r.seq
		r.seq = e.seq // what comes next must be newer than all that was lost
		switch {
		case e.dead != nil:
			amends = append(amends, s.buryAgain(r, e))
		case r.info.Damage == nil || !e.isOf(&r.info):
			// Or it is known to be damaged already.
			text := fmt.Sprintf("record %d of replica %d was durable, and the newest that is "+
				"there is %d", e.seq, e.id, had)
			s.spoilReplica(r, e, fmt.Errorf("%w: group %d: %s", ErrDamaged, g, text))
			amends = append(amends, op{kind: opDamaged, group: g, damage: text})
		}
	}
	return amends
}

// spoilReplica makes a replica, or a tombstone that is too old, one that is damaged.
func (s *Store) spoilReplica(r *replica, e inventoryEntry, damage error) {
	if !e.isOf(&r.info) || r.info.Tombstone != nil {
		r.info = Replica{Group: r.info.Group, ID: e.id, Incarnation: e.incarnation}
	}
	s.dropRead(r, damage)
	r.info.Damage = damage
	s.opts.Logger.Error("replica is damaged", slog.Uint64("group", uint64(r.info.Group)),
		slog.Any("error", damage))
}

// buryAgain puts a tombstone back, in the place of whatever is there, and returns what is
// to be written. Nothing says whether what the replica had stored elsewhere is still gone.
func (s *Store) buryAgain(r *replica, e inventoryEntry) op {
	g := r.info.Group
	s.dropRead(r, fmt.Errorf("%w: group %d", ErrNotFound, g))
	r.info = Replica{
		Group: g, ID: e.id, Incarnation: e.incarnation,
		Tombstone: &Tombstone{
			NextReplica: e.dead.NextReplica, Epoch: e.dead.Epoch, Data: e.dead.Data,
		},
	}
	s.opts.Logger.Error("tombstone was lost, and is put back", slog.Uint64("group", uint64(g)),
		slog.Uint64("replica", uint64(e.id)))
	return op{kind: opDestroy, group: g, tombstone: *r.info.Tombstone}
}

// dropRead lets go of a log that was recovered.
func (s *Store) dropRead(r *replica, why error) {
	if r.log != nil {
		r.slots.freed(r.log.drop(&s.cache, why))
		r.log = nil
	}
}

// has reports whether the inventory that was found at the start knows of a replica's group.
func (v *inventory) has(r *replica) bool {
	_, there := v.entries[r.info.Group]
	return there
}
