package kv

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// model is what a Machine must behave like, in the plainest words.
type model struct {
	items    map[string]item
	revision uint64
	position position
}

func newModel() *model { return &model{items: make(map[string]item)} }

func (m *model) clone() *model {
	return &model{items: maps.Clone(m.items), revision: m.revision, position: m.position}
}

func (m *model) content() (c content) {
	for key, it := range m.items {
		c = c.with([]byte(key), it)
	}
	return c
}

// run executes one command. It works on a copy, and keeps that on success.
func (m *model) run(cmd command) (result, error) {
	next, changed := m.clone(), false
	next.revision++
	put := func(key, value []byte) bool {
		old := next.items[string(key)]
		it := item{create: old.create, mod: next.revision, value: value}
		if old.create == 0 {
			it.create = next.revision
		}
		next.items[string(key)] = it
		changed = true
		return old.create != 0
	}
	remove := func(key []byte) bool {
		_, found := next.items[string(key)]
		delete(next.items, string(key))
		changed = changed || found
		return found
	}
	res := result{kind: cmd.kind}
	old := m.items[string(cmd.key)]
	switch {
	case cmd.kind != commandTxn && !condHolds(cmd.cond, old):
		return result{}, &PreconditionError{Current: old.mod}
	case cmd.kind == commandPut:
		res.flag = !put(cmd.key, cmd.value)
	case cmd.kind == commandDelete:
		res.flag = remove(cmd.key)
	default:
		res.flag = true
		for _, c := range cmd.txn.Compares {
			res.flag = res.flag && compareHolds(c, m.items[string(c.Key)])
		}
		ops := cmd.txn.Then
		if !res.flag {
			ops = cmd.txn.Else
		}
		for _, op := range ops {
			r := OpResult{Kind: op.Kind}
			switch op.Kind {
			case OpPut:
				r.Found = put(op.Key, op.Value)
			case OpDelete:
				r.Found = remove(op.Key)
			default:
				it, found := next.items[string(op.Key)]
				r.Found = found
				r.Value = Value{Data: it.value, Revision: it.mod, CreateRevision: it.create}
			}
			res.ops = append(res.ops, r)
		}
	}
	if changed {
		m.items, m.revision = next.items, next.revision
	}
	res.revision = m.revision
	return res, nil
}

func condHolds(c Cond, it item) bool {
	return (!c.Absent || it.create == 0) && (!c.Present || it.create != 0) &&
		(c.Revision == 0 || c.Revision == it.mod)
}

func compareHolds(c Compare, it item) bool {
	order := 0
	switch c.Target {
	case TargetRevision:
		order = int(it.mod) - int(c.Revision)
	case TargetCreateRevision:
		order = int(it.create) - int(c.Revision)
	case TargetValue:
		if it.create == 0 {
			return false
		}
		order = strings.Compare(string(it.value), string(c.Value))
	}
	return c.Is == Equal && order == 0 || c.Is == NotEqual && order != 0 ||
		c.Is == Less && order < 0 || c.Is == Greater && order > 0
}

func (m *model) list(q ListRequest) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(m.items)) {
		if strings.HasPrefix(key, string(q.Prefix)) && key >= string(q.Start) {
			keys = append(keys, key)
		}
	}
	return keys
}

func encodeCommand(c command) []byte {
	switch c.kind {
	case commandPut:
		return encodePut(c.key, c.value, c.cond)
	case commandDelete:
		return encodeDelete(c.key, c.cond)
	default:
		return encodeTxn(c.txn)
	}
}

// checkState compares everything that a machine says of itself with a model.
func checkState(tb testing.TB, m *Machine, want *model) {
	tb.Helper()
	got := make(map[string]item)
	q := ListRequest{}
	for {
		l, err := m.List(q)
		if err != nil {
			tb.Fatalf("List: %v", err)
		}
		for _, i := range l.Items {
			got[string(i.Key)] = item{create: i.CreateRevision, mod: i.Revision, value: i.Data}
		}
		if q.Start = l.Next; q.Start == nil {
			break
		}
	}
	equal := cmp.Comparer(func(a, b item) bool {
		return a.create == b.create && a.mod == b.mod && bytes.Equal(a.value, b.value)
	})
	if diff := cmp.Diff(want.items, got, equal); diff != "" {
		tb.Fatalf("items differ:\n%s", diff)
	}
	if m.Revision() != want.revision {
		tb.Fatalf("revision %d, want %d", m.Revision(), want.revision)
	}
	c := want.content()
	if m.Size() != int64(c.bytes) {
		tb.Fatalf("size %d, want %d", m.Size(), c.bytes)
	}
	if got, want := hashOf(tb, m), c.hash(want.revision); !bytes.Equal(got, want) {
		tb.Fatalf("hash %x, want %x", got, want)
	}
	if m.state.position != want.position {
		tb.Fatalf("position %+v, want %+v", m.state.position, want.position)
	}
	verify(tb, m)
}

// smallWriteSets makes write sets so small that nearly every batch is split.
func smallWriteSets(s *Store) { s.writeSetBytes, s.writeSetCount = 200, 3 }

// machineTest is the rapid state machine that compares a Machine with a model.
type machineTest struct {
	tb      testing.TB
	dir     string
	store   *Store
	replica Replica
	machine *Machine
	model   *model

	streams  [][]byte // snapshots, and what they must restore
	restores []*model
	open     *openSnapshot
}

type openSnapshot struct {
	snapshot group.Snapshot
	model    *model
}

func drawKey(t *rapid.T) []byte {
	return []byte(rapid.SampledFrom([]string{
		"\x00", "a", "a\x00", "a/", "a/b", "a/c", "b", "b\xff", "\xff", "\xff\xff",
	}).Draw(t, "key"))
}

func drawValue(t *rapid.T) []byte {
	return rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "value")
}

func drawCommand(t *rapid.T, m *model) command {
	kind := rapid.SampledFrom([]commandKind{
		commandPut, commandPut, commandPut, commandDelete, commandTxn,
	}).Draw(t, "kind")
	c := command{kind: kind}
	if kind == commandTxn {
		c.txn = drawTxn(t, m)
		return c
	}
	c.key = drawKey(t)
	switch rapid.IntRange(0, 5).Draw(t, "cond") {
	case 0:
		c.cond.Absent = true
	case 1:
		c.cond.Present = true
	case 2:
		c.cond.Revision = max(1, m.items[string(c.key)].mod)
	}
	if kind == commandPut {
		c.value = drawValue(t)
	}
	return c
}

func drawTxn(t *rapid.T, m *model) (x Txn) {
	for range rapid.IntRange(0, 2).Draw(t, "compares") {
		c := Compare{
			Key:    drawKey(t),
			Target: Target(rapid.IntRange(1, 3).Draw(t, "target")),
			Is:     Relation(rapid.IntRange(1, 4).Draw(t, "relation")),
		}
		it := m.items[string(c.Key)]
		switch c.Target {
		case TargetRevision:
			c.Revision = it.mod + uint64(rapid.IntRange(0, 1).Draw(t, "delta"))
		case TargetCreateRevision:
			c.Revision = it.create + uint64(rapid.IntRange(0, 1).Draw(t, "delta"))
		default:
			c.Value = it.value
		}
		x.Compares = append(x.Compares, c)
	}
	ops := func(label string) (ops []Op) {
		for range rapid.IntRange(0, 4).Draw(t, label) {
			op := Op{Kind: OpKind(rapid.IntRange(1, 3).Draw(t, "op")), Key: drawKey(t)}
			if op.Kind == OpPut {
				op.Value = drawValue(t)
			}
			ops = append(ops, op)
		}
		return ops
	}
	x.Then, x.Else = ops("then"), ops("else")
	return x
}

func (mt *machineTest) Apply(t *rapid.T) {
	var batch []group.Command
	var want []result
	var wantErr []error
	index := mt.model.position.index
	for range rapid.IntRange(1, 4).Draw(t, "entries") {
		index += uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
		for offset := range rapid.IntRange(1, 4).Draw(t, "commands") {
			cmd := drawCommand(t, mt.model)
			batch = append(batch, group.Command{
				Index: index, Offset: offset, Data: encodeCommand(cmd),
			})
			res, err := mt.model.run(cmd)
			want, wantErr = append(want, res), append(wantErr, err)
			mt.model.position = position{index: index, offset: uint64(offset)}
		}
	}
	results, err := mt.machine.Apply(batch)
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	for i, r := range results {
		cmd, err := decodeCommand(batch[i].Data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeResult(r.Data, cmd.kind)
		if fmt.Sprint(err) != fmt.Sprint(wantErr[i]) {
			t.Fatalf("result %d: error %v, want %v", i, err, wantErr[i])
		}
		opts := []cmp.Option{cmp.AllowUnexported(result{}), equateEmpty()}
		if diff := cmp.Diff(want[i], got, opts...); diff != "" {
			t.Fatalf("result %d:\n%s", i, diff)
		}
	}
	// What is applied is skipped when it comes again.
	if rapid.Bool().Draw(t, "replay") {
		again, err := mt.machine.Apply(batch)
		if err != nil || len(again) != len(batch) {
			t.Fatalf("replay: %d results, %v", len(again), err)
		}
		if _, err := decodeResult(again[0].Data, commandPut); !errors.Is(err, ErrReplayed) {
			t.Fatalf("replay: %v, want ErrReplayed", err)
		}
	}
}

func equateEmpty() cmp.Option {
	return cmp.Comparer(bytes.Equal)
}

func (mt *machineTest) List(t *rapid.T) {
	q := ListRequest{
		Limit:    rapid.IntRange(1, 4).Draw(t, "limit"),
		KeysOnly: rapid.Bool().Draw(t, "keysOnly"),
	}
	prefixes := rapid.SampledFrom([]string{"", "a", "a/", "b", "\xff", "x"})
	q.Prefix = []byte(prefixes.Draw(t, "prefix"))
	if rapid.Bool().Draw(t, "hasStart") {
		q.Start = drawKey(t)
	}
	want := mt.model.list(q)
	var got []string
	for {
		data, err := mt.machine.Query(encodeListQuery(q))
		if err != nil {
			t.Fatalf("Query: %v", err)
		}
		l, err := decodeListAnswer(data)
		if err != nil {
			t.Fatalf("answer: %v", err)
		}
		for _, i := range l.Items {
			got = append(got, string(i.Key))
			value := mt.model.items[string(i.Key)].value
			if !q.KeysOnly && !bytes.Equal(value, i.Data) {
				t.Fatalf("value of %q: %q, want %q", i.Key, i.Data, value)
			}
		}
		if q.Start = l.Next; l.Next == nil {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("list %q, want %q", got, want)
	}
}

func (mt *machineTest) Snapshot(*rapid.T) {
	mt.streams = append(mt.streams, snapshotBytes(mt.tb, mt.machine))
	mt.restores = append(mt.restores, mt.model.clone())
}

func (mt *machineTest) OpenSnapshot(t *rapid.T) {
	if mt.open != nil {
		t.Skip("one is open")
	}
	s, err := mt.machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	mt.open = &openSnapshot{snapshot: s, model: mt.model.clone()}
}

// WriteSnapshot writes the snapshot that was opened some steps ago.
func (mt *machineTest) WriteSnapshot(t *rapid.T) {
	if mt.open == nil {
		t.Skip("none is open")
	}
	var buf bytes.Buffer
	if _, err := mt.open.snapshot.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	mt.streams = append(mt.streams, buf.Bytes())
	mt.restores = append(mt.restores, mt.open.model)
	mt.closeSnapshot()
}

func (mt *machineTest) closeSnapshot() {
	if mt.open != nil {
		if err := mt.open.snapshot.Close(); err != nil {
			mt.tb.Errorf("Close: %v", err)
		}
		mt.open = nil
	}
}

func (mt *machineTest) Restore(t *rapid.T) {
	if len(mt.streams) == 0 {
		t.Skip("no snapshot")
	}
	i := rapid.IntRange(0, len(mt.streams)-1).Draw(t, "snapshot")
	if err := mt.machine.Restore(bytes.NewReader(mt.streams[i])); err != nil {
		t.Fatalf("Restore: %v", err)
	}
	mt.model = mt.restores[i].clone()
}

// RestoreBroken restores a damaged stream, which must change nothing.
func (mt *machineTest) RestoreBroken(t *rapid.T) {
	if len(mt.streams) == 0 {
		t.Skip("no snapshot")
	}
	stream := slices.Clone(rapid.SampledFrom(mt.streams).Draw(t, "snapshot"))
	at := rapid.IntRange(0, len(stream)-1).Draw(t, "at")
	if rapid.Bool().Draw(t, "cut") {
		stream = stream[:at]
	} else {
		stream[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
	}
	if err := mt.machine.Restore(bytes.NewReader(stream)); !errors.Is(err, ErrSnapshotFormat) {
		t.Fatalf("Restore of a damaged stream: %v, want ErrSnapshotFormat", err)
	}
}

func (mt *machineTest) Reopen(*rapid.T) {
	if err := mt.machine.Close(); err != nil {
		mt.tb.Fatal(err)
	}
	mt.machine = openMachine(mt.tb, mt.store, mt.replica)
}

// Recreate destroys the replica and makes another incarnation of the group.
func (mt *machineTest) Recreate(*rapid.T) {
	if err := mt.machine.Destroy(); err != nil {
		mt.tb.Fatal(err)
	}
	mt.replica.Incarnation[0]++
	mt.machine = openMachine(mt.tb, mt.store, mt.replica)
	mt.model = newModel()
}

func (mt *machineTest) check(*rapid.T) { checkState(mt.tb, mt.machine, mt.model) }

func (mt *machineTest) openStore() {
	s, err := OpenStore(StoreOptions{Dir: mt.dir})
	if err != nil {
		mt.tb.Fatalf("OpenStore: %v", err)
	}
	mt.store = s
	smallWriteSets(s)
}

func TestMachineAgainstModel(t *testing.T) {
	mt := &machineTest{tb: t, dir: t.TempDir() + "/state"}
	mt.openStore()
	defer func() {
		waitCleaned(t, mt.store)
		if err := mt.store.Close(); err != nil {
			t.Error(err)
		}
	}()
	group := raftyard.GroupID(0)
	rapid.Check(t, func(rt *rapid.T) {
		group++
		mt.replica = testReplica(group)
		mt.machine, mt.model = openMachine(t, mt.store, mt.replica), newModel()
		mt.streams, mt.restores = nil, nil
		rt.Repeat(map[string]func(*rapid.T){
			"Apply":         mt.Apply,
			"List":          mt.List,
			"Snapshot":      mt.Snapshot,
			"OpenSnapshot":  mt.OpenSnapshot,
			"WriteSnapshot": mt.WriteSnapshot,
			"Restore":       mt.Restore,
			"RestoreBroken": mt.RestoreBroken,
			"Reopen":        mt.Reopen,
			"Recreate":      mt.Recreate,
			"":              mt.check,
		})
		mt.closeSnapshot()
		if err := mt.machine.Close(); err != nil {
			rt.Fatal(err)
		}
		// Now and then the whole store is closed and opened.
		if group%20 == 0 {
			if err := mt.store.Close(); err != nil {
				rt.Fatal(err)
			}
			mt.openStore()
		}
		mt.machine = openMachine(t, mt.store, mt.replica)
		mt.check(rt)
		if err := mt.machine.Destroy(); err != nil {
			rt.Fatal(err)
		}
	})
}
