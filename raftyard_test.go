package raftyard_test

import (
	"testing"

	"github.com/raftyard/raftyard"
)

func TestUUIDs(t *testing.T) {
	id := [16]byte{0x01, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xff}
	const want = "01020304-0506-0708-090a-0b0c0d0e0fff"
	if got := raftyard.Incarnation(id).String(); got != want {
		t.Errorf("Incarnation = %s, want %s", got, want)
	}
	if got := raftyard.StoreID(id).String(); got != want {
		t.Errorf("StoreID = %s, want %s", got, want)
	}
	var none raftyard.StoreID
	if !none.IsZero() || raftyard.StoreID(id).IsZero() {
		t.Error("IsZero does not tell the zero id from another")
	}
}

// TestIDs: an id is read from what it is printed as, and from nothing else.
func TestIDs(t *testing.T) {
	for _, tt := range []struct {
		text        string
		node, group bool // whether it is an id of one
	}{
		{text: "1", node: true, group: true},
		{text: "9007199254740991", node: true, group: true},
		{text: "9007199254740992", group: true},
		{text: "18446744073709551615", group: true},
		{text: "0", group: true},
		{text: "18446744073709551616"},
		{text: ""},
		{text: "07"},
		{text: "+7"},
		{text: "-1"},
		{text: "0x1"},
		{text: "1_0"},
		{text: " 1"},
	} {
		node, err := raftyard.ParseNodeID(tt.text)
		if tt.node != (err == nil) || tt.node && node.String() != tt.text {
			t.Errorf("ParseNodeID(%q) = %d, %v, want an id: %t", tt.text, node, err, tt.node)
		}
		group, err := raftyard.ParseGroupID(tt.text)
		if tt.group != (err == nil) || tt.group && group.String() != tt.text {
			t.Errorf("ParseGroupID(%q) = %d, %v, want an id: %t", tt.text, group, err, tt.group)
		}
	}
	if raftyard.SystemGroup.CheckUser() == nil || raftyard.GroupID(1).CheckUser() != nil {
		t.Error("users may have every group but the system group")
	}
}
