package storage

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/lineage"
)

// TestFormat pins every byte of every format. A change here needs a new format
// version and a way to read the old one.
func TestFormat(t *testing.T) {
	datadriven.Walk(t, "testdata/format", func(t *testing.T, path string) {
		s := mustOpen(t, testOptions(t.TempDir()))
		defer mustClose(t, s)
		s.keeper.stop() // "collect" does its work
		id := Identity{
			Cluster: testCluster, Node: 3, Boot: 17, Format: 3,
			Store: uuid.MustParse("9f3b1c52-7a0e-4d7e-8f10-2b6c5d4e3f21"),
			Starts: lineage.Lineage{Since: 9, Starts: []lineage.Start{
				{Boot: 15, Process: uuid.MustParse("0d6e4079-e36a-4d1c-9c83-bd0b1a1a7a15")},
				{Boot: 17, Process: uuid.MustParse("5b1f0c5e-58d9-4a55-a1a9-6a7f4f0e1717")},
			}},
		}
		seen := make(map[string]string)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "identity":
				return string(id.encode())
			case "identity-1", "identity-2":
				old, err := decodeIdentity([]byte(d.Input + "\n"))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return fmt.Sprintf("%+v\n", old)
			case "note":
				return fmt.Sprintf("%x\n", encodeNote(id.Store, 0x0102030405))
			case "inventory":
				return dumpInventory(id)
			case "inventory-old":
				return readOldInventory(t, d)
			case "store-record":
				return fmt.Sprintf("%x = %x\n", identityKey, storeRecord(id))
			case "record-limit":
				d.ScanArgs(t, "bytes", &s.recordLimit)
				return ""
			case "batch":
				b := s.NewBatch()
				for line := range strings.Lines(d.Input) {
					fillBatch(t, d, b, strings.Fields(line))
				}
				if err := b.Commit(); err != nil {
					return fmt.Sprintln("error:", err)
				}
			case "collect":
				if err := s.collect(); err != nil {
					d.Fatalf(t, "%v", err)
				}
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			return dumpChanges(t, s, seen)
		})
	})
}

// dumpInventory shows a frame of each kind.
func dumpInventory(id Identity) string {
	changes := []inventoryChange{
		{7, true, inventoryEntry{testIncarnation, 2, 300, nil}},
		{400, true, inventoryEntry{testIncarnation, 1, 5, &Tombstone{
			NextReplica: 9, Epoch: 128, Data: []byte("data"),
		}}},
	}
	return fmt.Sprintf("store   %x\nlive    %x\ngone    %x\nnumbers %x\ndead    %x\n",
		appendStoreFrame(nil, id.Store, id.Boot, 300),
		appendList(nil, frameLive, changes),
		appendList(nil, frameGone, changes[1:]),
		appendList(nil, frameNumbers, changes),
		appendList(nil, frameDead, changes[1:]))
}

// readOldInventory shows what is read of frames.
func readOldInventory(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(d.Input, "\n", ""))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	in := decodeInventory(b)
	text := fmt.Sprintf("store %v, boot %d, whole %t, floor %t, %d of %d bytes\n",
		in.store, in.boot, in.whole, in.floored, in.size, len(b))
	for _, g := range slices.Sorted(maps.Keys(in.entries)) {
		e := in.entries[g]
		text += fmt.Sprintf("%d: %v replica %d seq %d live %t\n",
			g, e.incarnation, e.id, e.seq, e.dead == nil)
	}
	return text
}

// fillBatch reads one line: create|update|destroy|purged group=N and what changes.
func fillBatch(t *testing.T, d *datadriven.TestData, b *Batch, words []string) {
	t.Helper()
	args := make(map[string]string)
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return n
	}
	numbers := func(s string) []uint64 {
		var ns []uint64
		for f := range strings.SplitSeq(s, ".") {
			ns = append(ns, number(f))
		}
		return ns
	}
	var u Update
	if v, ok := args["hard"]; ok {
		n := numbers(v)
		u.HardState = hardStateOf(n[0], n[1], n[2])
	}
	if v, ok := args["snapshot"]; ok {
		n := numbers(v)
		u.Snapshot = snapshotAt(n[1], n[0])
	}
	_, u.Reset = args["reset"]
	if v, ok := args["compact"]; ok {
		u.CompactTo = number(v)
	}
	if v, ok := args["meta"]; ok {
		u.Meta = []byte(v)
	}
	if v, ok := args["entries"]; ok { // term.first:data,data,...; - is none
		front, list, _ := strings.Cut(v, ":")
		n := numbers(front)
		for i, data := range strings.Split(list, ",") {
			e := &raftpb.Entry{Term: &n[0], Index: new(n[1] + uint64(i))}
			switch data {
			case "-":
			case "conf":
				e.Type, e.Data = raftpb.EntryConfChangeV2.Enum(), []byte{}
			default:
				e.Data = []byte(data)
			}
			u.Entries = append(u.Entries, e)
		}
	}
	g := raftyard.GroupID(number(args["group"]))
	switch words[0] {
	case "create":
		r := testReplica(g)
		r.ID = raftyard.ReplicaID(number(args["replica"]))
		b.Create(r, u)
	case "update":
		b.Update(g, u)
	case "destroy":
		b.Destroy(g, Tombstone{NextReplica: 9, Epoch: 300, Data: []byte("data")})
	case "purged":
		b.MarkPurged(g)
	default:
		d.Fatalf(t, "unknown change %q", words[0])
	}
}

// dumpChanges prints the keys that have changed since the last call, as they are
// on disk.
func dumpChanges(t *testing.T, s *Store, seen map[string]string) string {
	t.Helper()
	var out strings.Builder
	now := make(map[string]bool)
	at := s.db.Snapshot()
	defer at.Discard()
	err := at.Scan(func(k, value []byte, _ uint64) error {
		key := string(k)
		now[key] = true
		if key == identityKey || seen[key] == string(value) {
			return nil
		}
		seen[key] = string(value)
		if k, ok := parseGroupKey([]byte(key)); ok {
			fmt.Fprintf(&out, "%x = %x # %s\n", key, value, describe(k))
		} else {
			fmt.Fprintf(&out, "%x = %x # store\n", key, value)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range seen {
		if !now[key] {
			delete(seen, key)
			k, _ := parseGroupKey([]byte(key))
			fmt.Fprintf(&out, "%x deleted # %s\n", key, describe(k))
		}
	}
	return sortLines(out.String())
}

func describe(k groupKey) string {
	if k.kind == kindLog {
		return fmt.Sprintf("group %d %c slot %d", k.group, k.kind, k.slot)
	}
	return fmt.Sprintf("group %d %c", k.group, k.kind)
}

func sortLines(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i := range lines {
		for j := i; j > 0 && lines[j] != "" && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return strings.Join(lines, "")
}

func FuzzRecords(f *testing.F) {
	s := &Store{limits: Limits{MaxValueBytes: 1000, MaxEntryBytes: 1000}, recordLimit: 40}
	s.inventory = &inventory{}
	w := &s.writer
	w.reset(s, 7, 10_000)
	ops := []op{
		{kind: opCreate, group: 1, replica: testReplica(1), update: Update{
			Snapshot: snapshotAt(4, 1), Reset: true, Meta: []byte("meta"),
		}},
		{kind: opUpdate, group: 1, update: Update{
			Entries: entriesOf(5, 9, 2), HardState: hardStateOf(2, 1, 7),
		}},
		{kind: opUpdate, group: 1, update: Update{Entries: []*raftpb.Entry{{
			Index: new(uint64(14)), Term: new(uint64(2)), Data: make([]byte, 100),
		}}}},
		{kind: opUpdate, group: 1, update: Update{HardState: hardStateOf(3, 1, 7)}},
		{kind: opDamaged, group: 1, damage: "text"},
		{kind: opDestroy, group: 1, tombstone: Tombstone{NextReplica: 2, Data: []byte("d")}},
	}
	for i := range ops {
		if err := w.add(&ops[i]); err != nil {
			f.Fatal(err)
		}
	}
	for _, p := range w.pairs {
		f.Add(p.key, p.value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		k, ok := parseGroupKey(key)
		if !ok {
			return
		}
		back := appendKey(nil, k.group, k.kind)
		if k.kind == kindLog {
			back = appendLogKey(nil, k.group, k.slot)
		}
		if !bytes.Equal(back, key) {
			t.Fatalf("key %x became %x", key, back)
		}
		if len(value) > crcSize {
			sealRecord(key, value) // what lies behind the checksum is what is tested
		}
		f := found{group: k.group}
		_, err := f.record(k, key, value)
		if err != nil {
			return
		}
		// What can be decoded is what encoding would have written, and recovery
		// makes of it a replica or damage, never a panic.
		checkRoundTrip(t, k, &f, value)
		if _, err := f.build(&Store{}); err != nil && errors.Is(err, ErrFailed) {
			t.Fatal(err)
		}
	})
}

// checkRoundTrip encodes what was decoded. Varints can be longer than they need
// be, so it is the second encoding that must be equal to the first.
func checkRoundTrip(t *testing.T, k groupKey, f *found, value []byte) {
	t.Helper()
	encode := func(f *found) []byte {
		switch k.kind {
		case kindReplica:
			return f.replica.append(nil)
		case kindHead:
			return f.head.head.append(f.head.append(nil))
		default:
			return nil
		}
	}
	once := encode(f)
	if once == nil || len(once) > len(value) {
		return
	}
	key := appendKey(nil, k.group, k.kind)
	sealRecord(key, once)
	again := found{group: k.group}
	if _, err := again.record(k, key, once); err != nil {
		t.Fatalf("%x became %x: %v", value, once, err)
	}
	twice := encode(&again)
	sealRecord(key, twice)
	if !bytes.Equal(once, twice) {
		t.Fatalf("%x became %x", once, twice)
	}
}

func FuzzEntries(f *testing.F) {
	var body []byte
	for _, e := range entriesOf(5, 3, 2) {
		body = appendEntry(body, e)
	}
	f.Add(body, uint64(5), uint64(3))
	f.Fuzz(func(t *testing.T, body []byte, first, count uint64) {
		entries, err := readEntries(body, first, count)
		if err != nil {
			return
		}
		var back []byte
		for i, e := range entries {
			if e.GetIndex() != first+uint64(i) || checkEntry(e) != nil && e.GetType() < 3 {
				t.Fatalf("entry %d: %v", i, e)
			}
			back = appendEntry(back, e)
		}
		again, err := readEntries(back, first, count)
		if err != nil || len(back) > len(body) || len(again) != len(entries) {
			t.Fatalf("%x became %x: %v", body, back, err)
		}
	})
}

func FuzzFiles(f *testing.F) {
	id := Identity{Cluster: testCluster, Node: 3, Store: uuid.UUID{4}, Boot: 5, Format: 1}
	f.Add(id.encode())
	id.Format, id.Starts.Since = 2, 4
	id.Starts = id.Starts.Then(lineage.Start{Boot: 4, Process: id.Store}, lineage.Start{})
	f.Add(id.encode())
	f.Add(encodeNote(id.Store, 77))
	f.Add(appendSnapshot(nil, snapshotAt(5, 6)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := decodeIdentity(b); err == nil && !bytes.Equal(got.encode(), b) {
			t.Fatalf("identity %q became %q", b, got.encode())
		}
		if store, n, ok := decodeNote(b); ok && !bytes.Equal(encodeNote(store, n), b) {
			t.Fatalf("note %x", b)
		}
		if s, err := decodeSnapshot(b); err == nil && len(appendSnapshot(nil, s)) > len(b) {
			t.Fatalf("snapshot %x became %v", b, s)
		}
	})
}
