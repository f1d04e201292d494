package machine

import (
	"bytes"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/test/linear"
)

// TestOps has a machine do every kind of operation, and read the answers.
func TestOps(t *testing.T) {
	m := newMemory(Config{}, group.Env{})
	tests := []struct {
		op   linear.Op
		want linear.Result
	}{
		{linear.Op{Kind: linear.Get, Key: "a"}, linear.Result{}},
		{linear.Op{Kind: linear.Delete, Key: "a"}, linear.Result{}},
		{linear.Op{Kind: linear.Swap, Key: "a", Value: "x"}, linear.Result{}},
		{linear.Op{Kind: linear.Put, Key: "a", Value: ""}, linear.Result{OK: true}},
		{linear.Op{Kind: linear.Get, Key: "a"}, linear.Result{Found: true}},
		{linear.Op{Kind: linear.Create, Key: "a", Value: "x"}, linear.Result{}},
		{linear.Op{Kind: linear.Swap, Key: "a", Value: "x"}, linear.Result{OK: true}},
		{linear.Op{Kind: linear.Swap, Key: "a", Old: "y", Value: "z"}, linear.Result{}},
		{linear.Op{Kind: linear.Append, Key: "a", Value: "y"}, linear.Result{OK: true}},
		{linear.Op{Kind: linear.Get, Key: "a"}, linear.Result{Found: true, Value: "xy"}},
		{linear.Op{Kind: linear.Delete, Key: "a"}, linear.Result{OK: true}},
		{linear.Op{Kind: linear.Get, Key: "a"}, linear.Result{}},
		{linear.Op{Kind: linear.Append, Key: "b", Value: "y"}, linear.Result{OK: true}},
		{linear.Op{Kind: linear.Create, Key: "c", Value: "y"}, linear.Result{OK: true}},
		{linear.Op{Kind: linear.Get, Key: "b"}, linear.Result{Found: true, Value: "y"}},
	}
	for i, tt := range tests {
		command := Encode(tt.op)
		if tt.op.Kind == linear.Get {
			checkAnswer(t, "Query", tt.op, tt.want, func() ([]byte, error) {
				return m.Query(command)
			})
		} else if _, err := m.Query(command); err == nil {
			t.Errorf("Query(%+v) returned no error", tt.op)
		}
		checkAnswer(t, "Apply", tt.op, tt.want, func() ([]byte, error) {
			results, err := m.Apply([]group.Command{{Index: uint64(i) + 1, Data: command}})
			if err != nil {
				return nil, err
			}
			return results[0].Data, nil
		})
	}
	if got, want := m.Size(), int64(len("by")+len("cy")); got != want {
		t.Errorf("Size = %d, want %d", got, want)
	}
}

func checkAnswer(
	t *testing.T, how string, op linear.Op, want linear.Result, ask func() ([]byte, error),
) {
	t.Helper()
	answer, err := ask()
	if err != nil {
		t.Fatalf("%s(%+v): %v", how, op, err)
	}
	if got, err := Decode(answer); err != nil || got != want {
		t.Errorf("%s(%+v) = %+v, %v, want %+v", how, op, got, err, want)
	}
}

// TestRefused: a command that cannot be read has a result that says so.
func TestRefused(t *testing.T) {
	m := newMemory(Config{}, group.Env{})
	before := m.state.hash()
	half := Encode(linear.Op{Kind: linear.Put})[:2]
	for _, data := range [][]byte{nil, {0}, {99, 0, 0, 0}, half} {
		results, err := m.Apply([]group.Command{{Index: m.state.index + 1, Data: data}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(results[0].Data); err == nil {
			t.Errorf("the answer to %x can be read", data)
		}
		if _, err := m.Query(data); err == nil {
			t.Errorf("the question %x can be read", data)
		}
	}
	if m.state.hash() != before {
		t.Error("commands that cannot be read have changed the state")
	}
	for _, answer := range [][]byte{nil, {8}, {0, 'x'}, {answerOK, 'x'}} {
		if r, err := Decode(answer); err == nil {
			t.Errorf("Decode(%x) = %+v", answer, r)
		}
	}
}

// TestHash: a write that is done twice shows, also where the value stays the same.
func TestHash(t *testing.T) {
	put := Encode(linear.Op{Kind: linear.Put, Key: "a", Value: "x"})
	remove := Encode(linear.Op{Kind: linear.Delete, Key: "a"})
	seen := make(map[uint64]int)
	m := newMemory(Config{}, group.Env{})
	for i, data := range [][]byte{put, put, remove, put, put, remove} {
		if _, err := m.Apply([]group.Command{{Index: uint64(i) + 1, Data: data}}); err != nil {
			t.Fatal(err)
		}
		if before, twice := seen[m.state.hash()]; twice {
			t.Errorf("the hash after %d commands is that after %d", i+1, before+1)
		}
		seen[m.state.hash()] = i
	}
}

func FuzzDecodeRegisters(f *testing.F) {
	s := newRegisters()
	add := func() {
		b, _ := cutChecksum(s.encode())
		f.Add(b)
	}
	add()
	s.set("key", "value")
	s.set("other", "")
	s.index = 9
	add()
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeRegisters(appendChecksum(bytes.Clone(data)))
		if err != nil {
			return
		}
		again, err := decodeRegisters(s.encode())
		if err != nil || again.hash() != s.hash() || again.index != s.index {
			t.Errorf("%x is read as %+v, then as %+v, %v", data, s, again, err)
		}
	})
}

func FuzzDecodeOp(f *testing.F) {
	f.Add(Encode(linear.Op{Kind: linear.Swap, Key: "k", Old: "o", Value: "v"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		op, err := decodeOp(data)
		if err != nil {
			return
		}
		if again, err := decodeOp(Encode(op)); err != nil || again != op {
			t.Errorf("%x is read as %+v, then as %+v, %v", data, op, again, err)
		}
	})
}
