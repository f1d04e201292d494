package registry

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/internal/wire"
)

// encodeCommand is the inverse of decodeCommand.
func encodeCommand(t testing.TB, c command) []byte {
	t.Helper()
	switch c := c.(type) {
	case CreateGroup:
		return EncodeCreateGroup(c)
	case DeleteGroup:
		return EncodeDeleteGroup(c)
	case WantMembers:
		return EncodeWantMembers(c)
	case SetNode:
		return EncodeSetNode(c)
	case setNodeV1:
		b := appendNodeSpec([]byte{commandFormatV1, byte(kindSetNode)}, &c.Node)
		return wire.AppendBool(b, c.IfAbsent)
	case SetNodeState:
		return EncodeSetNodeState(c)
	case ReplaceStore:
		return EncodeReplaceStore(c)
	case ForgetGroup:
		return EncodeForgetGroup(c)
	default:
		t.Fatalf("no encoder for %T", c)
		return nil
	}
}

func FuzzCommand(f *testing.F) {
	f.Add(EncodeCreateGroup(create()))
	f.Add(EncodeDeleteGroup(DeleteGroup{ID: 7}))
	f.Add(EncodeWantMembers(WantMembers{ID: 7, Voters: ids(1, 2), IfVersion: 5}))
	labelled := Node{ID: 1, Peer: "h:1", Labels: map[string]string{"zone": "a"}}
	f.Add(EncodeSetNode(SetNode{Node: labelled}))
	labelled.Store, labelled.Boot = Store{1}, 3
	f.Add(EncodeSetNode(SetNode{Node: labelled, IfAbsent: true}))
	f.Add(EncodeSetNode(SetNode{Node: node(9), IfPresent: true}))
	f.Add(EncodeSetNode(SetNode{Node: node(1), Sparse: true}))
	f.Add(EncodeSetNode(SetNode{Node: labelled, Late: true}))
	f.Add(EncodeSetNodeState(SetNodeState{ID: 4, State: NodeLeaving, Forced: true}))
	f.Add(EncodeSetNode(SetNode{
		Node: labelled, Starts: lineage.Lineage{Since: 3, Starts: []lineage.Start{
			{Boot: 3, Process: [16]byte{4}},
		}},
	}))
	f.Add(encodeCommand(f, setNodeV1{Node: labelled, IfAbsent: true}))
	f.Add(EncodeSetNodeState(SetNodeState{ID: 4, State: NodeDrained}))
	f.Add(EncodeReplaceStore(ReplaceStore{ID: 1, New: Store{1}}))
	f.Add(EncodeForgetGroup(ForgetGroup{ID: 2, Incarnation: incarnation(1)}))
	f.Add([]byte{commandFormat, 99})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeCommand(data)
		if err == nil {
			again, err := decodeCommand(encodeCommand(t, c))
			if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Fatalf("decoded, encoded, decoded: %v\n%s", err, diff)
			}
		}
		r := sample(t)
		before := hash(t, r)
		res := apply(t, r, data)
		changed := !bytes.Equal(hash(t, r), before)
		if changed && res.Code != OK && res.Code != Created {
			t.Fatalf("%v changed the state", res.Code)
		}
		// Whatever a command makes of the state must survive a snapshot.
		restore(t, New(nil, nil), save(t, r))
	})
}

func FuzzDecodeResult(f *testing.F) {
	r := sample(f)
	for _, cmd := range [][]byte{
		EncodeCreateGroup(create()), EncodeSetNode(SetNode{Node: node(1)}), nil,
	} {
		results, err := r.Apply([]group.Command{{Data: cmd}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(results[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		res, err := DecodeResult(data)
		if err != nil {
			return
		}
		again, err := DecodeResult(res.encode())
		if err != nil {
			t.Fatal(err)
		}
		// A record with id zero cannot come from a registry and is left out.
		if res.Group.ID != 0 && res.Node.ID != 0 {
			if diff := cmp.Diff(res, again, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("decoded, encoded, decoded (-want +got):\n%s", diff)
			}
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add(save(f, sample(f)))
	f.Add(save(f, New(nil, nil)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := New(nil, nil)
		if err := r.Restore(bytes.NewReader(data)); err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Fatalf("Restore = %v, want ErrSnapshot", err)
			}
			return
		}
		again := New(nil, nil)
		restore(t, again, save(t, r))
		if !bytes.Equal(hash(t, r), hash(t, again)) {
			t.Fatal("restored, saved, restored: another state")
		}
	})
}

// FuzzFrames gets past the checksums, which FuzzRestore hardly ever does: it
// gives the payloads good ones.
func FuzzFrames(f *testing.F) {
	for _, format := range []byte{snapshotFormat, 3, 2, 1} {
		head := []byte{frameHead, format, 0, 0, 0}
		f.Add(head, []byte{frameNodes, 1}, []byte{frameGroups, 1})
	}
	f.Fuzz(func(t *testing.T, head, first, second []byte) {
		r := New(nil, nil)
		err := r.Restore(frames(head, first, second, []byte{frameEnd}))
		if err != nil && !errors.Is(err, ErrSnapshot) {
			t.Fatalf("Restore = %v, want ErrSnapshot", err)
		}
		if err == nil {
			restore(t, New(nil, nil), save(t, r))
		}
	})
}
