package registry

import (
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
)

func TestDescribe(t *testing.T) {
	nodes := []raftyard.NodeID{1, 2}
	tests := []struct {
		data []byte
		want string
	}{
		{
			EncodeCreateGroup(CreateGroup{ID: 7, Kind: "kv\n", Voters: nodes, Seed: 2}),
			`create group 7 ("kv\n", incarnation 00000000-0000-0000-0000-000000000000,` +
				` voters 1,2, learners -, seed node 2)`,
		},
		{EncodeDeleteGroup(DeleteGroup{ID: 7}), "delete group 7 (incarnation 00000000"},
		{EncodeForgetGroup(ForgetGroup{ID: 7}), "forget group 7 (incarnation 00000000"},
		{EncodeWantMembers(WantMembers{ID: 7, Voters: nodes}), "group 7 wants voters 1,2"},
		{EncodeSetNode(SetNode{Node: Node{ID: 3, Peer: "a:1"}}), `node 3: peer "a:1"`},
		{EncodeSetNodeState(SetNodeState{ID: 3, State: NodeDrained}), "node 3 is drained"},
		{EncodeReached(Reached{ID: 7, Version: 9}), "group 7 has come to the members of version 9"},
		{EncodeReplaceStore(ReplaceStore{ID: 3}), "node 3 goes on with directory"},
		{[]byte{99}, "unreadable, 1 bytes"},
		{nil, "unreadable, 0 bytes"},
	}
	for _, tt := range tests {
		if got := Describe(tt.data); !strings.HasPrefix(got, tt.want) {
			t.Errorf("Describe = %s, want %s", got, tt.want)
		}
	}
}
