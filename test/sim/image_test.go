package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

// TestShunned says who must refuse a node on an older copy of its disk: those who knew of
// a later start when the connection came up.
func TestShunned(t *testing.T) {
	s := shunned{last: 5}
	tests := []struct {
		name      string
		noted     map[raftyard.NodeID]uint64
		connected []raftyard.NodeID
		want      []raftyard.NodeID
	}{
		{name: "nobody connects", noted: map[raftyard.NodeID]uint64{1: 5, 2: 6}},
		{
			name: "who knows the last start", noted: map[raftyard.NodeID]uint64{1: 4, 2: 5},
			connected: []raftyard.NodeID{2}, want: []raftyard.NodeID{2},
		},
		{
			name: "who knows a later one", noted: map[raftyard.NodeID]uint64{1: 6},
			connected: []raftyard.NodeID{1}, want: []raftyard.NodeID{1},
		},
		{
			name:  "who knows an earlier one, and who knows nothing",
			noted: map[raftyard.NodeID]uint64{1: 4, 2: 0}, connected: []raftyard.NodeID{1, 2, 3},
		},
		{
			name: "some do", noted: map[raftyard.NodeID]uint64{1: 5, 2: 0, 4: 9},
			connected: []raftyard.NodeID{1, 2, 3, 4}, want: []raftyard.NodeID{1, 4},
		},
	}
	for i, tt := range tests {
		now := time.Duration(i) * time.Second
		s.look(now, tt.noted)
		if got := s.wronglyBy(tt.connected); !slices.Equal(got, tt.want) || s.at != now {
			t.Errorf("%s: %v at %v, want %v at %v", tt.name, got, s.at, tt.want, now)
		}
	}
}
