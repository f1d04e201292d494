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
