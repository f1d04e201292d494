package group

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// TestDecideOverSeveralTerms: a replica that led, lost the lead with batches in the
// log, and leads again, has batches in flight whose indexes overlap.
func TestDecideOverSeveralTerms(t *testing.T) {
	var q proposals
	for _, b := range []struct{ index, term uint64 }{
		{3, 2}, {4, 2}, {5, 2}, {6, 2}, {5, 4}, {6, 4}, {7, 4},
	} {
		q.inflight = append(q.inflight, batch{
			index: b.index, term: b.term, tokens: []any{fmt.Sprintf("%d@%d", b.index, b.term)},
		})
	}
	fates := make(map[string]string)
	note := func(outcomes []Outcome) {
		for _, o := range outcomes {
			token := fmt.Sprint(o.Token)
			if fates[token] != "" {
				t.Errorf("%s has a second outcome, %v", token, o.Err)
			}
			switch {
			case errors.Is(o.Err, ErrDropped):
				fates[token] = "dropped"
			case errors.Is(o.Err, ErrUnknown):
				fates[token] = "unknown"
			}
		}
	}
	// What came to be committed: 3 and 4 of the leader in between, then our own.
	for _, e := range []struct{ index, term uint64 }{{3, 3}, {4, 4}, {5, 4}, {6, 4}} {
		var outcomes []Outcome
		entry := &raftpb.Entry{Index: new(e.index), Term: new(e.term)}
		for _, token := range q.decide(entry, &outcomes) {
			fates[fmt.Sprint(token)] = "applied"
		}
		note(outcomes)
	}
	var outcomes []Outcome
	q.pass(9, &outcomes)
	note(outcomes)
	want := map[string]string{
		"3@2": "dropped", "4@2": "dropped", "5@2": "dropped", "6@2": "dropped",
		"5@4": "applied", "6@4": "applied", "7@4": "unknown",
	}
	for token, fate := range want {
		if fates[token] != fate {
			t.Errorf("%s is %s, want %s", token, fates[token], fate)
		}
	}
	if len(q.inflight) != 0 {
		t.Errorf("%d batches are left", len(q.inflight))
	}
}
