package node

import (
	"errors"
	"testing"

	"github.com/raftyard/raftyard/group"
)

// TestReopeningsAreJoined: a replica that is to be opened again is opened once, and in the
// way of all who have asked for it.
func TestReopeningsAreJoined(t *testing.T) {
	l := &lifecycle{wake: make(chan struct{}, 1), reopens: make(map[*replica]*reopening)}
	r, skip := new(replica), &group.Skip{Index: 3, Term: 1, At: 9}
	first, second := make(chan error, 1), make(chan error, 1)
	l.reopen(r, &reopening{told: []chan error{first}})
	l.reopen(r, &reopening{careful: span{first: 5, last: 7}})
	l.reopen(r, &reopening{rebuild: true})
	l.reopen(r, &reopening{skip: skip, careful: span{first: 4, last: 6}})
	l.reopen(r, &reopening{told: []chan error{second}})
	how := l.reopens[r]
	if len(l.reopens) != 1 || !how.rebuild || how.skip != skip || how.careful != (span{4, 7}) {
		t.Fatalf("%d replicas, one of them %+v", len(l.reopens), how)
	}
	failed := errors.New("failed")
	how.tell(failed)
	for _, told := range []chan error{first, second} {
		select {
		case err := <-told:
			if !errors.Is(err, failed) {
				t.Errorf("told %v, want %v", err, failed)
			}
		default:
			t.Error("somebody was not told")
		}
	}
}
