package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

// A testItem is an item of a stream.
type testItem struct {
	key string
	item
}

// buildStream returns a stream of items as they are, with a trailer that agrees with
// them, and so does the header unless it is changed.
func buildStream(tb testing.TB, header func(*snapshotHeader), items ...testItem) []byte {
	tb.Helper()
	h := snapshotHeader{group: 1, position: position{index: 9}, revision: 10}
	for _, i := range items {
		h.content = h.content.with([]byte(i.key), i.item)
	}
	trailer := h.content
	if header != nil {
		header(&h)
	}
	var buf bytes.Buffer
	w := newStreamWriter(&buf)
	w.header(h)
	for _, i := range items {
		if err := w.item([]byte(i.key), i.item); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.finish(trailer); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// Streams whose checksums are all right, and whose content is not.
func TestRestoreRefusesWrongStreams(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	apply(t, m, 1, put("old", "1"))
	hash := hashOf(t, m)
	good := item{create: 1, mod: 2, value: []byte("v")}

	longFrame := append([]byte(snapshotMagic), snapshotFormat)
	longFrame = binary.LittleEndian.AppendUint32(longFrame, maxBlockBytes+1)
	longValue := make([]byte, MaxValueBytes+1)
	newer := []byte(snapshotMagic + "\x02")
	tests := []struct {
		name   string
		stream []byte
		want   string
	}{
		{"wrong order", buildStream(t, nil, testItem{"b", good}, testItem{"a", good}), "after"},
		{"same key twice", buildStream(t, nil, testItem{"a", good}, testItem{"a", good}), "after"},
		{"empty key", buildStream(t, nil, testItem{"", good}), "empty key"},
		{
			"long key", buildStream(t, nil, testItem{strings.Repeat("k", MaxKeyBytes+1), good}),
			"key too large",
		},
		{
			"long value",
			buildStream(t, nil, testItem{"a", item{create: 1, mod: 1, value: longValue}}),
			"value too large",
		},
		{"absent item", buildStream(t, nil, testItem{"a", item{}}), "revision"},
		{
			"item of the future",
			buildStream(t, nil, testItem{"a", item{create: 1, mod: 11}}), "revision",
		},
		{
			"header with another count",
			buildStream(t, func(h *snapshotHeader) { h.content.count++ }, testItem{"a", good}),
			"header",
		},
		{
			"header with another sum",
			buildStream(t, func(h *snapshotHeader) { h.content.items[3]++ }, testItem{"a", good}),
			"hash",
		},
		{
			"part of entry 0",
			buildStream(t, func(h *snapshotHeader) { h.position = position{partial: true} }),
			"entry 0",
		},
		{"long frame", longFrame, "limit"},
		{"newer format", newer, "version 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := m.Restore(bytes.NewReader(tt.stream))
			if !errors.Is(err, ErrSnapshotFormat) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Restore: %v, want ErrSnapshotFormat about %q", err, tt.want)
			}
			if !bytes.Equal(hashOf(t, m), hash) {
				t.Error("the state has changed")
			}
		})
	}
	if err := m.Restore(bytes.NewReader(buildStream(t, nil, testItem{"a", good}))); err != nil {
		t.Errorf("Restore of a good stream: %v", err)
	}
	// The revision goes on where the snapshot's was.
	apply(t, m, 10, put("b", "1"))
	if m.Revision() != 11 {
		t.Errorf("revision %d after a restore at 10 and a put", m.Revision())
	}
	checkNothingElse(t, s, 2)
}

// failingWriter fails after some bytes.
type failingWriter struct{ left int }

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

func TestWriteToReportsTheWriter(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	for i := range uint64(4) {
		apply(t, m, i+1, encodePut([]byte{byte(i)}, make([]byte, 100<<10), Cond{}))
	}
	for _, left := range []int{0, 150 << 10, 409_600} {
		snap, err := m.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snap.WriteTo(&failingWriter{left: left}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("WriteTo to a writer that takes %d bytes: %v", left, err)
		}
		if err := snap.Close(); err != nil {
			t.Error(err)
		}
	}
}

// answers is a DB with fixed answers.
type answers struct {
	data []byte
	err  error
}

func (a answers) Propose(context.Context, raftyard.GroupID, []byte) (group.Result, error) {
	return group.Result{Data: a.data}, a.err
}

func (a answers) Query(
	context.Context, raftyard.GroupID, group.Consistency, []byte,
) ([]byte, error) {
	return a.data, a.err
}

// Errors of the DB, and answers that are none, are errors of every call.
func TestClientErrors(t *testing.T) {
	lost := errors.New("outcome unknown")
	key := []byte("k")
	for _, tt := range []struct {
		name string
		db   answers
		want error
	}{
		{"db error", answers{err: lost}, lost},
		{"empty answer", answers{}, wire.ErrMalformed},
		{"unknown version", answers{data: []byte{9, 0}}, wire.ErrMalformed},
		{"unknown status", answers{data: []byte{1, 9}}, wire.ErrMalformed},
		{"unknown kind", answers{data: []byte{1, 0, 9, 0, 0}}, wire.ErrMalformed},
		{"unknown refusal", answers{data: []byte{1, 2, 99}}, wire.ErrMalformed},
		{"refusal", answers{data: encodeRefused(ErrEmptyKey)}, ErrEmptyKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, ctx := NewClient(tt.db), t.Context()
			errs := make(map[string]error)
			_, _, errs["Put"] = c.Put(ctx, 1, key, nil, Cond{})
			_, _, errs["Delete"] = c.Delete(ctx, 1, key, Cond{})
			_, errs["Txn"] = c.Txn(ctx, 1, Txn{})
			_, errs["Get"] = c.Get(ctx, 1, key, group.Stale)
			_, errs["List"] = c.List(ctx, 1, ListRequest{})
			for call, err := range errs {
				write := call == "Put" || call == "Delete" || call == "Txn"
				unknown := write && errors.Is(tt.want, wire.ErrMalformed)
				if errors.Is(err, group.ErrUnknown) != unknown {
					t.Errorf("%s: %v says that the outcome is unknown: %v, want %v",
						call, err, !unknown, unknown)
				}
				if !errors.Is(err, tt.want) {
					t.Errorf("%s: %v, want %v", call, err, tt.want)
				}
			}
		})
	}
}

// A Machine refuses questions that make no sense with an answer, not an error.
func TestQueryRefuses(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	long := make([]byte, MaxKeyBytes+2)
	for name, tt := range map[string]struct {
		query []byte
		want  error
	}{
		"empty":       {nil, ErrInvalid},
		"version":     {[]byte{2, 1, 1, 'k'}, ErrInvalid},
		"kind":        {[]byte{1, 9}, ErrInvalid},
		"left over":   {[]byte{1, 1, 1, 'k', 0}, ErrInvalid},
		"empty key":   {encodeGetQuery(nil), ErrEmptyKey},
		"long key":    {encodeGetQuery(long), ErrKeyTooLarge},
		"long prefix": {encodeListQuery(ListRequest{Prefix: long}), ErrKeyTooLarge},
		"long start":  {encodeListQuery(ListRequest{Start: long}), ErrKeyTooLarge},
		"limit":       {encodeListQuery(ListRequest{Limit: MaxListItems + 1}), ErrInvalid},
		"huge limit":  {encodeListQuery(ListRequest{Limit: 1 << 40}), ErrInvalid},
	} {
		data, err := m.Query(tt.query)
		if err != nil {
			t.Errorf("%s: Query failed: %v", name, err)
			continue
		}
		if _, err := decodeGetAnswer(data); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if _, err := m.Get(nil); !errors.Is(err, ErrEmptyKey) {
		t.Errorf("Get: %v, want ErrEmptyKey", err)
	}
	if _, err := m.List(ListRequest{Limit: -1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("List: %v, want ErrInvalid", err)
	}
}
