package node

import (
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// TestConfigRefusesIDsAndAddresses: an id that cannot be, and an address that two nodes have,
// are refused before anything is opened.
func TestConfigRefusesIDsAndAddresses(t *testing.T) {
	const most = raftyard.MaxNodeID
	kinds := map[string]group.Factory{"k": func(group.Env) (group.StateMachine, error) {
		return nil, nil
	}}
	good := Config{ID: most, Dir: "d", Cluster: "c", Kinds: kinds, Peers: []Peer{
		{ID: 1, Addr: "a:1", HTTP: "a:2"}, {ID: most, Addr: "b:1", HTTP: "b:2"},
	}}
	for _, tt := range []struct {
		name string
		bend func(c *Config)
		want string // empty: it is good
	}{
		{name: "as it is", bend: func(*Config) {}},
		{
			name: "no id", bend: func(c *Config) { c.ID = 0 },
			want: "ID is 0, want a node id, a decimal number from 1 to 9007199254740991",
		},
		{
			name: "a large id", bend: func(c *Config) { c.ID, c.Advertise.Addr = most+1, "c:1" },
			want: "ID is 9007199254740992, want a node id",
		},
		{
			name: "a large peer", bend: func(c *Config) { c.Peers[0].ID = most + 1 },
			want: "Peers[0].ID is 9007199254740992, want a node id",
		},
		{
			name: "one peer address", bend: func(c *Config) { c.Peers[1].Addr = "a:1" },
			want: "Peers[1]: node 9007199254740991: a:1 is the peer address of node 1",
		},
		{name: "one HTTP address", bend: func(c *Config) { c.Peers[1].HTTP = "a:2" }},
		{
			name: "a peer at an HTTP address", bend: func(c *Config) { c.Peers[1].Addr = "a:2" },
			want: "a:2 is the HTTP address of node 1, want another",
		},
		{
			name: "HTTP at a peer address", bend: func(c *Config) { c.Peers[1].HTTP = "a:1" },
			want: "a:1 is the peer address of node 1, want another",
		},
		{
			name: "one for both", bend: func(c *Config) { c.Peers[0].HTTP = "a:1" },
			want: "a:1 is both its peer and its HTTP address, want two",
		},
		{
			name: "advertised", bend: func(c *Config) { c.Advertise.Addr = "b:2" },
			want: "Advertise: b:2 is both its peer and its HTTP address",
		},
		{name: "own", bend: func(c *Config) { c.Advertise = Peer{Addr: "b:3", HTTP: "b:2"} }},
		{
			name: "the system group",
			bend: func(c *Config) { c.Groups = []Spec{{Kind: "k", Voters: nodeIDs(1)}} },
			want: "want a group id, a decimal number from 1 to 18446744073709551615: 0 is",
		},
		{
			name: "the largest group", bend: func(c *Config) {
				c.Groups = []Spec{{ID: 1<<64 - 1, Kind: "k", Voters: nodeIDs(1)}}
			},
		},
		{
			name: "a rate at which nothing arrives",
			bend: func(c *Config) { c.SnapshotRate = 1<<20 - 1 },
			want: "SnapshotRate is 1048575, want at least 1048576, or less than 0",
		},
		{name: "no bound of the rate", bend: func(c *Config) { c.SnapshotRate = -1 }},
		{
			name: "a bound of requests",
			bend: func(c *Config) { c.Bounds.PeerRequests = -1 },
			want: "Bounds.PeerRequests is -1, want at least 1",
		},
		{
			name: "a bound that a message may not fit into",
			bend: func(c *Config) { c.Bounds.WorkerQueueBytes = 16<<20 - 1 },
			want: "Bounds.WorkerQueueBytes is 16777215, want at least 16777216",
		},
		{
			name: "bounds", bend: func(c *Config) {
				c.Bounds = Bounds{
					PeerRequests: 1, PeerRequestBytes: minBound, PeerQueueBytes: minBound,
					WorkerQueueBytes: minBound, UnsavedBytes: minBound, ApplyBacklogBytes: minBound,
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			c.Peers = append([]Peer(nil), good.Peers...)
			tt.bend(&c)
			err := c.Validate()
			if tt.want == "" && err != nil {
				t.Errorf("Validate: %v", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Validate = %v, want %q", err, tt.want)
			}
		})
	}
}
