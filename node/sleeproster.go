package node

import "slices"

// A roster are the replicas of a worker that are awake, by group. Thousands may wake or fall
// asleep at once, so that a change is noted where it happens, and all that there were are
// made together when somebody looks. The zero value is empty.
type roster struct {
	list   []*replica // by group
	joined []*replica // not in the list yet, in any order
	left   bool       // some of those may have to go
}

// join takes in a replica unless it is there.
func (o *roster) join(r *replica) {
	if !r.listed {
		r.listed = true
		o.joined = append(o.joined, r)
	}
}

// leave notes that replicas may have to go: settle finds out which.
func (o *roster) leave() { o.left = true }

// settle returns the replicas, by group, without those that are not to stay. They do not
// change until the next call.
func (o *roster) settle(stays func(*replica) bool) []*replica {
	if o.left {
		o.left = false
		goes := func(r *replica) bool {
			if !stays(r) {
				r.listed = false
			}
			return !r.listed
		}
		o.list = slices.DeleteFunc(o.list, goes)
		o.joined = slices.DeleteFunc(o.joined, goes)
	}
	if len(o.joined) > 0 {
		slices.SortFunc(o.joined, byGroup)
		o.list = mergeByGroup(o.list, o.joined)
		clear(o.joined)
		o.joined = o.joined[:0]
	}
	return o.list
}

// mergeByGroup adds some replicas to others, which it moves; both are by group.
func mergeByGroup(list, some []*replica) []*replica {
	at, left := len(list), len(some)
	list = append(list, some...)
	for to := len(list) - 1; left > 0; to-- {
		if at > 0 && byGroup(list[at-1], some[left-1]) > 0 {
			at--
			list[to] = list[at]
		} else {
			left--
			list[to] = some[left]
		}
	}
	return list
}
