package node

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestRoster has replicas come and go in any order, several times between two looks, and
// compares the roster with a set.
func TestRoster(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := make([]*replica, 1+rng.IntN(40))
		for i := range all {
			all[i] = &replica{group: raftyard.GroupID(i)}
		}
		in := make(map[*replica]bool)
		var o roster
		for range 50 {
			for range rng.IntN(2 * len(all)) {
				r := all[rng.IntN(len(all))]
				if in[r] && rng.IntN(2) == 0 {
					delete(in, r)
					o.leave()
				} else {
					in[r] = true
					o.join(r)
				}
			}
			if rng.IntN(3) == 0 { // another one in the place of one that is gone
				i := rng.IntN(len(all))
				delete(in, all[i])
				all[i] = &replica{group: all[i].group}
				in[all[i]] = true
				o.leave()
				o.join(all[i])
			}
			want := slices.DeleteFunc(slices.Clone(all), func(r *replica) bool { return !in[r] })
			got := o.settle(func(r *replica) bool { return in[r] })
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %v, want %v", seed, got, want)
			}
		}
	}
}

// TestRosterStaysWhileItIsGoneThrough: who wakes, or falls asleep, while the others are
// ticked does not move them.
func TestRosterStaysWhileItIsGoneThrough(t *testing.T) {
	var o roster
	rs := make([]*replica, 10)
	for i := range rs {
		rs[i] = &replica{group: raftyard.GroupID(i)}
	}
	for i := 1; i < len(rs); i += 2 {
		o.join(rs[i])
	}
	stays := func(*replica) bool { return true }
	var seen []*replica
	for i, r := range o.settle(stays) {
		seen = append(seen, r)
		o.join(rs[2*i])
		o.leave()
	}
	want := []*replica{rs[1], rs[3], rs[5], rs[7], rs[9]}
	if !slices.Equal(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
	if got := o.settle(stays); !slices.Equal(got, rs) {
		t.Errorf("then %v, want %v", got, rs)
	}
}
