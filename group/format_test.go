package group

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// formats are the examples of docs/formats/group.md.
func formats() map[string][]byte {
	d := testDescriptor(Voter, Outgoing, Learner)
	d.Members[1].Node = 300
	d.Members[2].Store = raftyard.StoreID{0: 0xdd, 15: 0x03}
	d.Epoch = 2
	s := State{Descriptor: d, Index: 1000}
	batch := appendBatchHeader(nil, 2)
	batch = appendCommand(batch, CommandID{1, 15: 2}, []byte("put a"))
	batch = appendCommand(batch, CommandID{3}, nil)
	return map[string][]byte{
		"descriptor": d.Encode(),
		"state":      s.Encode(),
		"no state":   State{}.Encode(),
		"manifest":   Manifest{State: s, ID: CommandID{7}, Size: 4096}.Encode(),
		"change":     encodeChange(1, d),
		"batch":      batch,
		"skip":       encodeSkip(1000, 3),
	}
}

// TestFormats pins every format. A difference here is a new version of the format.
func TestFormats(t *testing.T) {
	datadriven.RunTest(t, "testdata/formats", func(t *testing.T, d *datadriven.TestData) string {
		b, ok := formats()[strings.TrimSpace(d.Input)]
		if !ok {
			d.Fatalf(t, "no format %q", d.Input)
		}
		return hex.Dump(b)
	})
}

func TestFormatsRoundTrip(t *testing.T) {
	d := testDescriptor(Voter, Incoming, Demoting, Learner)
	got, err := DecodeDescriptor(d.Encode())
	if diff := cmp.Diff(d, got); err != nil || diff != "" {
		t.Errorf("descriptor: %v\n%s", err, diff)
	}
	s := State{Descriptor: d, Index: 5}
	m := Manifest{State: s, Empty: true, ID: CommandID{9}, Size: 1 << 40}
	gotManifest, err := DecodeManifest(m.Encode())
	if diff := cmp.Diff(m, gotManifest); err != nil || diff != "" {
		t.Errorf("manifest: %v\n%s", err, diff)
	}
	zero, err := DecodeState(State{}.Encode())
	if err != nil || !zero.IsZero() {
		t.Errorf("zero state: %+v, %v", zero, err)
	}
	want := []Command{
		{Index: 8, Offset: 0, ID: CommandID{1, 15: 2}, Data: []byte("put a")},
		{Index: 8, Offset: 1, ID: CommandID{3}, Data: []byte{}},
	}
	commands, err := DecodeEntry(&raftpb.Entry{Index: new(uint64(8)), Data: formats()["batch"]})
	if diff := cmp.Diff(want, commands); err != nil || diff != "" {
		t.Errorf("batch: %v\n%s", err, diff)
	}
	commands, err = DecodeEntry(&raftpb.Entry{Index: new(uint64(8))})
	if err != nil || commands != nil {
		t.Errorf("empty entry: %v, %v", commands, err)
	}
}

// TestDescriptorOfVersion1 reads what was written before members had directories, alone
// and in a change that is in some log.
func TestDescriptorOfVersion1(t *testing.T) {
	old, err := hex.DecodeString("0107aa000000000000000000000000000001046c69737402" +
		"04640a03010101" + "02ac0204" + "030302")
	if err != nil {
		t.Fatal(err)
	}
	want := testDescriptor(Voter, Outgoing, Learner)
	want.Members[1].Node = 300
	want.Epoch = 2
	got, err := DecodeDescriptor(old)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("descriptor: %v\n%s", err, diff)
	}
	before := testDescriptor(Voter, Voter)
	next, err := before.Apply(Change{Remove: replicas(2)})
	if err != nil {
		t.Fatal(err)
	}
	cc := before.confChange(next)
	logged := next.Encode()
	logged[0] = 1
	logged = logged[:len(logged)-len(raftyard.StoreID{})] // of the only member
	cc.Context = wire.AppendBytes([]byte{changeVersion, byte(before.Epoch)}, logged)
	data, err := proto.Marshal(cc)
	if err != nil {
		t.Fatal(err)
	}
	got, err = before.validChange(&raftpb.Entry{
		Type: raftpb.EntryConfChangeV2.Enum(), Index: new(uint64(9)), Data: data,
	})
	if err != nil || !got.Equal(next) {
		t.Errorf("a change of version 1 leads to %+v, %v", got, err)
	}
}

// TestFormatsRefuseEveryDamage cuts each example short and changes its version.
func TestFormatsRefuseEveryDamage(t *testing.T) {
	decode := decoders()
	for name, b := range formats() {
		for n := range b {
			if name == "no state" && n == 0 {
				continue
			}
			if err := decode[name](b[:n]); err == nil && (n > 0 || name != "batch") {
				t.Errorf("%s: the first %d of %d bytes are accepted", name, n, len(b))
			}
		}
		other := append([]byte{b[0] + 9}, b[1:]...)
		if err := decode[name](other); err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("%s of another version: %v", name, err)
		}
		if err := decode[name](append(b, 0)); err == nil {
			t.Errorf("%s with a byte too many is accepted", name)
		}
	}
}

func decoders() map[string]func([]byte) error {
	state := func(b []byte) error { _, err := DecodeState(b); return err }
	return map[string]func([]byte) error{
		"descriptor": func(b []byte) error { _, err := DecodeDescriptor(b); return err },
		"state":      state,
		"no state":   state,
		"manifest":   func(b []byte) error { _, err := DecodeManifest(b); return err },
		"change":     func(b []byte) error { _, _, err := decodeChange(b); return err },
		"batch": func(b []byte) error {
			_, err := DecodeEntry(&raftpb.Entry{Data: b})
			return err
		},
		"skip": func(b []byte) error {
			_, err := decodeSkip(&raftpb.Entry{Index: new(uint64(2000)), Data: b})
			return err
		},
	}
}

// FuzzDecode feeds every decoder arbitrary bytes. What is accepted must come back
// the same after it is encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for _, b := range formats() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := DecodeDescriptor(b); err == nil {
			again, err := DecodeDescriptor(d.Encode())
			if err != nil || !again.Equal(d) {
				t.Fatalf("descriptor %+v came back as %+v, %v", d, again, err)
			}
		}
		if s, err := DecodeState(b); err == nil {
			again, err := DecodeState(s.Encode())
			if err != nil || !again.Descriptor.Equal(s.Descriptor) || again.Index != s.Index {
				t.Fatalf("state %+v came back as %+v, %v", s, again, err)
			}
		}
		if m, err := DecodeManifest(b); err == nil {
			again, err := DecodeManifest(m.Encode())
			if err != nil || again.ID != m.ID || again.Size != m.Size || again.Empty != m.Empty {
				t.Fatalf("manifest %+v came back as %+v, %v", m, again, err)
			}
		}
		if expect, next, err := decodeChange(b); err == nil {
			_, again, err := decodeChange(encodeChange(expect, next))
			if err != nil || !again.Equal(next) {
				t.Fatalf("change %+v came back as %+v, %v", next, again, err)
			}
		}
		checkBatch(t, b)
	})
}

func checkBatch(t *testing.T, b []byte) {
	commands, err := DecodeEntry(&raftpb.Entry{Data: b})
	if err != nil || len(commands) == 0 {
		return
	}
	again := appendBatchHeader(nil, len(commands))
	for _, c := range commands {
		again = appendCommand(again, c.ID, c.Data)
	}
	got, err := DecodeEntry(&raftpb.Entry{Data: again})
	if diff := cmp.Diff(commands, got); err != nil || diff != "" {
		t.Fatalf("batch: %v\n%s", err, diff)
	}
}

func TestDescriptorReportsEveryProblem(t *testing.T) {
	d := Descriptor{
		NextReplica: 3,
		Members: []Member{
			{ID: 2, Node: 1, Role: Learner},
			{ID: 1, Node: 1, Role: 9},
			{ID: 7, Role: Learner},
			{ID: 0, Node: 5, Role: Outgoing},
			{ID: raftyard.ReplicaID(1<<64 - 1), Node: 9, Role: Learner},
		},
	}
	err := d.Validate()
	for _, want := range []string{
		"incarnation", "kind", "epoch", "ascending order", "node 1 has more", "unknown role(9)",
		"replica 7 is not below", "node must not be zero", "there must be a voter",
		"replica id 0 is reserved", "replica id 18446744073709551615 is reserved",
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("Validate does not mention %q: %v", want, err)
		}
	}
	joint := testDescriptor(Incoming, Learner)
	if err := joint.Validate(); !strings.Contains(fmt.Sprint(err), "old half") {
		t.Errorf("Validate = %v, want a complaint about the old half", err)
	}
}
