package kv

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/raftyard/raftyard"
)

func goldenReplica() Replica {
	return Replica{Group: 7, Incarnation: raftyard.Incarnation{0: 0xaa, 15: 0xbb}, ID: 3}
}

func goldenState() machineState {
	c := content{}.with([]byte("k"), item{create: 1, mod: 300, value: []byte("v")})
	return machineState{
		generation: 5,
		position:   position{index: 1000, offset: 2, partial: true},
		revision:   300,
		content:    c,
	}
}

func goldenTxn() Txn {
	return Txn{
		Compares: []Compare{
			{Key: []byte("a"), Target: TargetRevision, Is: Equal, Revision: 300},
			{Key: []byte("b"), Target: TargetCreateRevision, Is: Less, Revision: 2},
			{Key: []byte("c"), Target: TargetValue, Is: NotEqual, Value: []byte("x")},
		},
		Then: []Op{
			{Kind: OpPut, Key: []byte("p"), Value: []byte("v")},
			{Kind: OpDelete, Key: []byte("d")},
		},
		Else: []Op{{Kind: OpGet, Key: []byte("g")}},
	}
}

func goldenSnapshot(tb testing.TB) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := newStreamWriter(&buf)
	s := goldenState()
	w.header(snapshotHeader{
		group: 7, position: s.position, revision: s.revision, content: s.content,
	})
	if err := w.item([]byte("k"), item{create: 1, mod: 300, value: []byte("v")}); err != nil {
		tb.Fatal(err)
	}
	if err := w.finish(s.content); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// goldenFormats returns one sample of every format.
func goldenFormats(tb testing.TB) map[string][]byte {
	tb.Helper()
	key := itemKey(5, []byte("k"))
	value := Value{Data: []byte("v"), Revision: 300, CreateRevision: 1}
	r := goldenReplica()
	return map[string][]byte{
		"key-store":         storeKey(),
		"key-machine":       machineKey(r),
		"key-generation":    generationKey(5),
		"key-item":          key,
		"record-store":      encodeStore(storeRecord{reserved: 1025}),
		"record-machine":    encodeMachine(r, goldenState()),
		"record-generation": encodeGeneration(5, generationRecord{state: live, owner: r}),
		"record-item":       encodeItem(7, key, item{create: 1, mod: 300, value: []byte("v")}),

		"command-put":             encodePut([]byte("k"), []byte("v"), Cond{}),
		"command-put-absent":      encodePut([]byte("k"), []byte("v"), Cond{Absent: true}),
		"command-put-present":     encodePut([]byte("k"), nil, Cond{Present: true}),
		"command-delete-revision": encodeDelete([]byte("k"), Cond{Revision: 300}),
		"command-txn":             encodeTxn(goldenTxn()),
		"result-put":              result{kind: commandPut, revision: 300, flag: true}.encode(),
		"result-delete":           result{kind: commandDelete, revision: 300}.encode(),
		"result-precondition":     result{status: statusPrecondition, revision: 300}.encode(),
		"result-replayed":         encodeReplayed(),
		"result-refused-invalid":  encodeRefused(fmt.Errorf("%w: whatever", ErrInvalid)),
		"result-refused-too-large": encodeRefused(&LimitError{
			Reason: ErrKeyTooLarge, Limit: 300, Actual: 301,
		}),
		"result-txn": result{kind: commandTxn, revision: 300, flag: true, ops: []OpResult{
			{Kind: OpPut, Found: true}, {Kind: OpGet, Found: true, Value: value}, {Kind: OpDelete},
		}}.encode(),

		"query-get": encodeGetQuery([]byte("k")),
		"query-list": encodeListQuery(ListRequest{
			Prefix: []byte("p"), Start: []byte("p1"), Limit: 300, KeysOnly: true,
		}),
		"answer-get":       getAnswer{found: true, value: value}.encode(),
		"answer-not-found": getAnswer{}.encode(),
		"answer-list": ListResult{
			Items:    []ListItem{{Key: []byte("k"), Value: value}},
			Next:     []byte("k\x00"),
			Revision: 300,
		}.encode(false),
		"answer-list-keys": ListResult{
			Items: []ListItem{{Key: []byte("k"), Value: value}}, Revision: 300,
		}.encode(true),

		"snapshot": goldenSnapshot(tb),
		"hash":     goldenState().content.hash(300),
	}
}

// TestFormats pins every byte of the formats: what is on disks and in logs must be
// readable for ever.
func TestFormats(t *testing.T) {
	formats := goldenFormats(t)
	datadriven.RunTest(t, "testdata/formats", func(t *testing.T, d *datadriven.TestData) string {
		b, ok := formats[d.Cmd]
		if !ok {
			d.Fatalf(t, "there is no format %q", d.Cmd)
		}
		delete(formats, d.Cmd)
		return hex.Dump(b)
	})
	for name := range formats {
		t.Errorf("testdata/formats does not pin %q", name)
	}
}

// TestEncodedTxnDoesNotGrow: there is room for all of a transaction before it is encoded.
func TestEncodedTxnDoesNotGrow(t *testing.T) {
	for name, txn := range map[string]Txn{"empty": {}, "golden": goldenTxn()} {
		if most, is := txn.maxEncodedSize(), encodeTxn(txn); len(is) > most || cap(is) > 2*most {
			t.Errorf("%s: %d bytes, room for %d, want %d at most", name, len(is), cap(is), most)
		}
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	r, key := goldenReplica(), itemKey(5, []byte("k"))
	want := item{create: 1, mod: 300, value: []byte("v")}
	it, err := decodeItem(7, key, encodeItem(7, key, want))
	if err != nil || it.create != want.create || it.mod != want.mod ||
		!bytes.Equal(it.value, want.value) {
		t.Errorf("item = %+v, %v", it, err)
	}
	state, err := decodeMachine(r, encodeMachine(r, goldenState()))
	if err != nil || state != goldenState() {
		t.Errorf("machine = %+v, %v", state, err)
	}
	rec := generationRecord{state: filling, owner: r}
	gotRec, err := decodeGeneration(5, encodeGeneration(5, rec))
	if err != nil || gotRec != rec {
		t.Errorf("generation = %+v, %v", gotRec, err)
	}
	store, err := decodeStore(encodeStore(storeRecord{reserved: 9}))
	if err != nil || store.reserved != 9 {
		t.Errorf("store = %+v, %v", store, err)
	}
	if got, ok := parseMachineKey(machineKey(r)); !ok || got != r {
		t.Errorf("machine key = %v, %t", got, ok)
	}
	cmd, err := decodeCommand(encodeTxn(goldenTxn()))
	if diff := cmp.Diff(goldenTxn(), cmd.txn); err != nil || diff != "" {
		t.Errorf("txn: %v\n%s", err, diff)
	}
	s := newStreamReader(bytes.NewReader(goldenSnapshot(t)))
	if h, err := s.header(); err != nil || h.content != goldenState().content {
		t.Errorf("header = %+v, %v", h, err)
	}
	if err := s.items(func([]byte, item) error { return nil }); err != nil {
		t.Errorf("items: %v", err)
	}
}

// Whatever bit of a record is changed, the record is refused.
func TestRecordBitFlips(t *testing.T) {
	r, key := goldenReplica(), itemKey(5, []byte("k"))
	records := map[string]struct {
		record []byte
		decode func([]byte) error
	}{
		"item": {
			encodeItem(7, key, item{create: 1, mod: 300, value: []byte("value")}),
			func(b []byte) error { _, err := decodeItem(7, key, b); return err },
		},
		"machine": {
			encodeMachine(r, goldenState()),
			func(b []byte) error { _, err := decodeMachine(r, b); return err },
		},
		"generation": {
			encodeGeneration(5, generationRecord{state: live, owner: r}),
			func(b []byte) error { _, err := decodeGeneration(5, b); return err },
		},
		"store": {
			encodeStore(storeRecord{reserved: 9}),
			func(b []byte) error { _, err := decodeStore(b); return err },
		},
	}
	for name, rec := range records {
		for i := range 8 * len(rec.record) {
			b := bytes.Clone(rec.record)
			b[i/8] ^= 1 << (i % 8)
			if rec.decode(b) == nil {
				t.Errorf("%s: bit %d flipped and not found", name, i)
			}
		}
		for n := range rec.record {
			if rec.decode(rec.record[:n]) == nil {
				t.Errorf("%s: cut to %d bytes and not found", name, n)
			}
		}
	}
}

// addFormats seeds a fuzz target with all samples.
func addFormats(f *testing.F) {
	f.Helper()
	for _, b := range goldenFormats(f) {
		f.Add(b)
	}
}

func FuzzCommand(f *testing.F) {
	addFormats(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		cmd, err := decodeCommand(in)
		if err != nil {
			if _, err = decodeResult(encodeRefused(err), commandPut); err == nil {
				t.Fatal("a refusal was decoded as a success")
			}
			return
		}
		again, err := decodeCommand(encodeCommand(cmd))
		opts := cmp.AllowUnexported(command{})
		if diff := cmp.Diff(cmd, again, opts, equateEmpty()); err != nil || diff != "" {
			t.Fatalf("decoded again: %v\n%s", err, diff)
		}
	})
}

func FuzzResult(f *testing.F) {
	addFormats(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, kind := range []commandKind{commandPut, commandDelete, commandTxn} {
			res, err := decodeResult(in, kind)
			if err != nil {
				continue
			}
			again, err := decodeResult(res.encode(), kind)
			opts := cmp.AllowUnexported(result{})
			if diff := cmp.Diff(res, again, opts, equateEmpty()); err != nil || diff != "" {
				t.Fatalf("decoded again: %v\n%s", err, diff)
			}
		}
	})
}

func FuzzQuery(f *testing.F) {
	addFormats(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		q, err := decodeQuery(in)
		if err != nil {
			return
		}
		data := encodeGetQuery(q.key)
		if q.kind == queryList {
			data = encodeListQuery(q.list)
		}
		again, err := decodeQuery(data)
		opts := cmp.AllowUnexported(query{})
		if diff := cmp.Diff(q, again, opts, equateEmpty()); err != nil || diff != "" {
			t.Fatalf("decoded again: %v\n%s", err, diff)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	addFormats(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		if a, err := decodeGetAnswer(in); err == nil {
			again, err := decodeGetAnswer(a.encode())
			opts := cmp.AllowUnexported(getAnswer{})
			if diff := cmp.Diff(a, again, opts, equateEmpty()); err != nil || diff != "" {
				t.Fatalf("decoded again: %v\n%s", err, diff)
			}
		}
		if l, err := decodeListAnswer(in); err == nil && len(l.Items) > len(in) {
			t.Fatalf("%d items in %d bytes", len(l.Items), len(in))
		}
	})
}

func FuzzRecord(f *testing.F) {
	addFormats(f)
	key := itemKey(5, []byte("k"))
	r := goldenReplica()
	f.Fuzz(func(_ *testing.T, in []byte) {
		_, _ = decodeItem(7, key, in)
		if len(in) < recordHeader {
			return
		}
		// With a right checksum the bodies are reached.
		sealed := func(g raftyard.GroupID, key []byte) []byte {
			return seal(g, key, bytes.Clone(in))
		}
		_, _ = decodeItem(7, key, sealed(7, key))
		_, _ = decodeMachine(r, sealed(7, machineKey(r)))
		_, _ = decodeGeneration(5, sealed(0, generationKey(5)))
		_, _ = decodeStore(sealed(0, storeKey()))
	})
}

func FuzzSnapshotStream(f *testing.F) {
	addFormats(f)
	f.Fuzz(checkStream)
}

// FuzzSnapshotFrames puts what it is given into frames with right checksums, so
// that their bodies are reached.
func FuzzSnapshotFrames(f *testing.F) {
	s := goldenState()
	h := snapshotHeader{group: 7, position: s.position, revision: s.revision, content: s.content}
	it := item{create: 1, mod: 300, value: []byte("v")}
	f.Add(h.encode(), appendSnapshotItem(nil, []byte("k"), it), appendContent(nil, s.content))
	f.Fuzz(func(t *testing.T, header, block, trailer []byte) {
		var buf bytes.Buffer
		w := newStreamWriter(&buf)
		w.write(append([]byte(snapshotMagic), snapshotFormat))
		w.frame(header)
		w.frame(block)
		w.frame(nil)
		w.frame(trailer)
		if err := w.w.Flush(); err != nil {
			t.Fatal(err)
		}
		checkStream(t, buf.Bytes())
	})
}

// checkStream makes sure that what is accepted can be written and is accepted
// again.
func checkStream(t *testing.T, in []byte) {
	s := newStreamReader(bytes.NewReader(in))
	h, err := s.header()
	if err != nil {
		return
	}
	var out bytes.Buffer
	w := newStreamWriter(&out)
	w.header(h)
	if err := s.items(w.item); err != nil {
		return
	}
	if err := w.finish(s.seen); err != nil {
		t.Fatal(err)
	}
	s = newStreamReader(&out)
	if _, err := s.header(); err != nil {
		t.Fatal(err)
	}
	if err := s.items(func([]byte, item) error { return nil }); err != nil {
		t.Fatal(err)
	}
}
