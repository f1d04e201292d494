package kv

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/raftyard/raftyard/group"
)

func newTestClient(t *testing.T) (*Client, *machineDB) {
	t.Helper()
	s := openTestStore(t, t.TempDir())
	db := newMachineDB(openMachine(t, s, testReplica(7)))
	return NewClient(db), db
}

func TestRevisions(t *testing.T) {
	c, db := newTestClient(t)
	ctx := t.Context()
	a, b := []byte("a"), []byte("b")

	steps := []struct {
		name     string
		do       func() (uint64, bool, error)
		wantRev  uint64
		wantFlag bool // created or deleted
	}{
		{"create", func() (uint64, bool, error) {
			return c.Put(ctx, 7, a, []byte("1"), Cond{})
		}, 1, true},
		{"overwrite", func() (uint64, bool, error) {
			return c.Put(ctx, 7, a, []byte("2"), Cond{})
		}, 2, false},
		{"delete nothing", func() (uint64, bool, error) {
			deleted, rev, err := c.Delete(ctx, 7, b, Cond{})
			return rev, deleted, err
		}, 2, false},
		{"absent holds", func() (uint64, bool, error) {
			return c.Put(ctx, 7, b, nil, Cond{Absent: true})
		}, 3, true},
		{"revision holds", func() (uint64, bool, error) {
			return c.Put(ctx, 7, a, []byte("3"), Cond{Revision: 2})
		}, 4, false},
		{"present holds", func() (uint64, bool, error) {
			return c.Put(ctx, 7, b, []byte("x"), Cond{Present: true})
		}, 5, false},
		{"delete at revision", func() (uint64, bool, error) {
			deleted, rev, err := c.Delete(ctx, 7, b, Cond{Revision: 5})
			return rev, deleted, err
		}, 6, true},
	}
	for _, s := range steps {
		rev, flag, err := s.do()
		if err != nil || rev != s.wantRev || flag != s.wantFlag {
			t.Fatalf("%s = %d, %t, %v; want %d, %t", s.name, rev, flag, err, s.wantRev, s.wantFlag)
		}
	}

	v, err := c.Get(ctx, 7, a, group.Linearizable)
	want := Value{Data: []byte("3"), Revision: 4, CreateRevision: 1}
	if err != nil || !cmp.Equal(v, want) {
		t.Errorf("Get = %+v, %v; want %+v", v, err, want)
	}
	if _, err := c.Get(ctx, 7, b, group.Linearizable); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of a deleted key: %v, want ErrNotFound", err)
	}
	verify(t, db.machines[7])
}

func TestPreconditions(t *testing.T) {
	c, _ := newTestClient(t)
	ctx := t.Context()
	if _, _, err := c.Put(ctx, 7, []byte("a"), nil, Cond{}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		key  string
		cond Cond
		want uint64
	}{
		{name: "absent", key: "a", cond: Cond{Absent: true}, want: 1},
		{name: "another revision", key: "a", cond: Cond{Revision: 9}, want: 1},
		{name: "present", key: "b", cond: Cond{Present: true}, want: 0},
		{name: "revision of nothing", key: "b", cond: Cond{Revision: 1}, want: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check := func(err error) {
				t.Helper()
				p, ok := errors.AsType[*PreconditionError](err)
				if !ok || p.Current != tt.want || !errors.Is(err, ErrPrecondition) {
					t.Errorf("error %v, want a PreconditionError with %d", err, tt.want)
				}
			}
			_, _, err := c.Put(ctx, 7, []byte(tt.key), []byte("v"), tt.cond)
			check(err)
			_, _, err = c.Delete(ctx, 7, []byte(tt.key), tt.cond)
			check(err)
		})
	}
	if rev, _, err := c.Put(ctx, 7, []byte("a"), nil, Cond{}); err != nil || rev != 2 {
		t.Errorf("the next revision is %d, %v; want 2", rev, err)
	}
}

// Whatever is beyond a limit is refused by the client before it is proposed, and
// by the machine, with the same error, if somebody proposes it all the same.
func TestLimits(t *testing.T) {
	c, db := newTestClient(t)
	ctx := t.Context()
	longKey := make([]byte, MaxKeyBytes+1)
	longValue := make([]byte, MaxValueBytes+1)
	manyOps := make([]Op, MaxTxnOps+1)
	for i := range manyOps {
		manyOps[i] = Op{Kind: OpGet, Key: []byte("k")}
	}
	big := Op{Kind: OpPut, Key: []byte("k"), Value: make([]byte, MaxValueBytes)}
	k := []byte("k")
	tests := []struct {
		name       string
		call       func() error
		raw        []byte
		want       error
		wantLimit  uint64
		wantActual uint64
	}{
		{
			name: "empty key",
			call: func() error { _, _, err := c.Put(ctx, 7, nil, nil, Cond{}); return err },
			raw:  encodePut(nil, nil, Cond{}), want: ErrEmptyKey,
		},
		{
			name: "long key",
			call: func() error { _, _, err := c.Delete(ctx, 7, longKey, Cond{}); return err },
			raw:  encodeDelete(longKey, Cond{}),
			want: ErrKeyTooLarge, wantLimit: MaxKeyBytes, wantActual: MaxKeyBytes + 1,
		},
		{
			name: "long value",
			call: func() error { _, _, err := c.Put(ctx, 7, k, longValue, Cond{}); return err },
			raw:  encodePut(k, longValue, Cond{}),
			want: ErrValueTooLarge, wantLimit: MaxValueBytes, wantActual: MaxValueBytes + 1,
		},
		{
			name: "many operations",
			call: func() error { _, err := c.Txn(ctx, 7, Txn{Then: manyOps}); return err },
			raw:  encodeTxn(Txn{Then: manyOps}),
			want: ErrTxnTooLarge, wantLimit: MaxTxnOps, wantActual: MaxTxnOps + 1,
		},
		{
			name: "long transaction",
			call: func() error { _, err := c.Txn(ctx, 7, Txn{Else: []Op{big, big}}); return err },
			raw:  encodeTxn(Txn{Else: []Op{big, big}}),
			want: ErrTxnTooLarge, wantLimit: MaxCommandBytes,
			wantActual: uint64(len(encodeTxn(Txn{Else: []Op{big, big}}))),
		},
		{
			name: "two conditions",
			call: func() error {
				_, _, err := c.Put(ctx, 7, k, nil, Cond{Absent: true, Revision: 1})
				return err
			},
			raw: []byte{commandVersion, byte(commandPut), 9}, want: ErrInvalid,
		},
		{
			name: "unknown operation",
			call: func() error {
				_, err := c.Txn(ctx, 7, Txn{Then: []Op{{Kind: 9, Key: k}}})
				return err
			},
			raw: encodeTxn(Txn{Then: []Op{{Kind: 9, Key: k}}}), want: ErrInvalid,
		},
		{
			name: "unknown target",
			call: func() error {
				_, err := c.Txn(ctx, 7, Txn{Compares: []Compare{{Key: k, Target: 7, Is: Equal}}})
				return err
			},
			raw:  encodeTxn(Txn{Compares: []Compare{{Key: k, Target: 7, Is: Equal}}}),
			want: ErrInvalid,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check := func(who string, err error) {
				t.Helper()
				if !errors.Is(err, tt.want) {
					t.Errorf("%s: %v, want %v", who, err, tt.want)
				}
				if l, ok := errors.AsType[*LimitError](err); tt.wantLimit != 0 &&
					(!ok || l.Limit != tt.wantLimit || l.Actual != tt.wantActual) {
					t.Errorf("%s: %v, want limit %d not %d", who, err, tt.wantLimit, tt.wantActual)
				}
			}
			before := db.proposed
			check("client", tt.call())
			if db.proposed != before {
				t.Error("the client proposed it")
			}
			res, err := db.Propose(ctx, 7, tt.raw)
			if err != nil {
				t.Fatalf("Apply failed: %v", err)
			}
			_, err = decodeResult(res.Data, commandPut)
			check("machine", err)
		})
	}
	if got := dump(t, db.machines[7]); len(got) != 0 {
		t.Errorf("refused commands left %d items", len(got))
	}
}

func TestLargestItems(t *testing.T) {
	c, db := newTestClient(t)
	ctx := t.Context()
	key := bytes.Repeat([]byte{0xff}, MaxKeyBytes)
	value := bytes.Repeat([]byte("0123456789abcdef"), MaxValueBytes/16)
	if len(value) != MaxValueBytes {
		t.Fatalf("test value has %d bytes", len(value))
	}
	for range 2 {
		if _, _, err := c.Put(ctx, 7, key, value, Cond{}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Get(ctx, 7, key, group.Linearizable)
	if err != nil || !bytes.Equal(got.Data, value) {
		t.Errorf("Get = %d bytes, %v", len(got.Data), err)
	}
	l, err := c.List(ctx, 7, ListRequest{})
	if err != nil || len(l.Items) != 1 {
		t.Errorf("List = %d items, %v; want the one", len(l.Items), err)
	}
	res, err := c.Txn(ctx, 7, Txn{Then: []Op{{Kind: OpGet, Key: key}}})
	if err != nil || !bytes.Equal(res.Results[0].Value.Data, value) {
		t.Errorf("Txn with a get: %v", err)
	}
	two := Txn{Then: []Op{
		{Kind: OpPut, Key: []byte{1}}, {Kind: OpGet, Key: key}, {Kind: OpGet, Key: key},
	}}
	if _, err := c.Txn(ctx, 7, two); !errors.Is(err, ErrResultTooLarge) {
		t.Errorf("Txn with two large gets: %v, want ErrResultTooLarge", err)
	}
	if size := db.machines[7].Size(); size != MaxKeyBytes+MaxValueBytes {
		t.Errorf("Size = %d", size)
	}
	stream := snapshotBytes(t, db.machines[7])
	if err := db.machines[7].Restore(bytes.NewReader(stream)); err != nil {
		t.Errorf("Restore: %v", err)
	}
	verify(t, db.machines[7])
}

func TestTxn(t *testing.T) {
	c, db := newTestClient(t)
	ctx := t.Context()
	k := func(s string) []byte { return []byte(s) }
	setup := Txn{Then: []Op{
		{Kind: OpPut, Key: k("a"), Value: k("1")},
		{Kind: OpPut, Key: k("b"), Value: k("2")},
	}}
	res, err := c.Txn(ctx, 7, setup)
	if err != nil || !res.Succeeded || res.Revision != 1 {
		t.Fatalf("Txn = %+v, %v", res, err)
	}

	// Operations see what those before them did, and all have one revision.
	res, err = c.Txn(ctx, 7, Txn{
		Compares: []Compare{
			{Key: k("a"), Target: TargetValue, Is: Equal, Value: k("1")},
			{Key: k("b"), Target: TargetRevision, Is: Less, Revision: 2},
			{Key: k("c"), Target: TargetCreateRevision, Is: Equal, Revision: 0},
		},
		Then: []Op{
			{Kind: OpDelete, Key: k("a")},
			{Kind: OpGet, Key: k("a")},
			{Kind: OpPut, Key: k("a"), Value: k("new")},
			{Kind: OpGet, Key: k("a")},
			{Kind: OpPut, Key: k("c"), Value: k("gone")},
			{Kind: OpDelete, Key: k("c")},
			{Kind: OpDelete, Key: k("c")},
		},
	})
	want := TxnResult{Succeeded: true, Revision: 2, Results: []OpResult{
		{Kind: OpDelete, Found: true},
		{Kind: OpGet},
		{Kind: OpPut},
		{Kind: OpGet, Found: true, Value: Value{Data: k("new"), Revision: 2, CreateRevision: 2}},
		{Kind: OpPut},
		{Kind: OpDelete, Found: true},
		{Kind: OpDelete},
	}}
	if diff := cmp.Diff(want, res); err != nil || diff != "" {
		t.Fatalf("Txn: %v\n%s", err, diff)
	}

	// A transaction that only reads does not count.
	res, err = c.Txn(ctx, 7, Txn{
		Compares: []Compare{{Key: k("z"), Target: TargetValue, Is: NotEqual, Value: k("x")}},
		Then:     []Op{{Kind: OpDelete, Key: k("b")}},
		Else:     []Op{{Kind: OpGet, Key: k("b")}, {Kind: OpDelete, Key: k("z")}},
	})
	want = TxnResult{Revision: 2, Results: []OpResult{
		{Kind: OpGet, Found: true, Value: Value{Data: k("2"), Revision: 1, CreateRevision: 1}},
		{Kind: OpDelete},
	}}
	if diff := cmp.Diff(want, res); err != nil || diff != "" {
		t.Errorf("Txn: %v\n%s", err, diff)
	}
	verify(t, db.machines[7])
}

func TestList(t *testing.T) {
	c, _ := newTestClient(t)
	ctx := t.Context()
	keys := []string{
		"\x00", "a", "a\x00", "a/1", "a/2", "a/\xff", "a/\xff\xff", "b", "\xff", "\xff\xff",
	}
	for _, key := range keys {
		if _, _, err := c.Put(ctx, 7, []byte(key), []byte("v"+key), Cond{}); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name     string
		q        ListRequest
		want     []string
		wantNext string
	}{
		{name: "all", want: keys},
		{name: "prefix", q: ListRequest{Prefix: []byte("a/")}, want: keys[3:7]},
		{name: "prefix of 0xff", q: ListRequest{Prefix: []byte{0xff}}, want: keys[8:]},
		{name: "start", q: ListRequest{Start: []byte("b")}, want: keys[7:]},
		{
			name: "start before the prefix",
			q:    ListRequest{Prefix: []byte("a/"), Start: []byte("A")},
			want: keys[3:7],
		},
		{
			name: "start behind the prefix",
			q:    ListRequest{Prefix: []byte("a/"), Start: []byte("b")},
		},
		{
			name: "limit",
			q:    ListRequest{Limit: 2, KeysOnly: true},
			want: keys[:2], wantNext: "a\x00",
		},
		{name: "exact limit", q: ListRequest{Prefix: []byte("a/"), Limit: 4}, want: keys[3:7]},
		{name: "nothing", q: ListRequest{Prefix: []byte("c")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := c.List(ctx, 7, tt.q)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range l.Items {
				got = append(got, string(i.Key))
				if want := "v" + string(i.Key); !tt.q.KeysOnly && string(i.Data) != want {
					t.Errorf("value %q, want %q", i.Data, want)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if string(l.Next) != tt.wantNext || l.Revision != uint64(len(keys)) {
				t.Errorf("next %q at revision %d, want %q at %d",
					l.Next, l.Revision, tt.wantNext, len(keys))
			}
		})
	}
	if _, err := c.List(ctx, 7, ListRequest{Limit: MaxListItems + 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("List beyond the limit: %v, want ErrInvalid", err)
	}
}
