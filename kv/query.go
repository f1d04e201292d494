package kv

import (
	"bytes"
	"cmp"
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/wire"
)

const (
	queryVersion  = 1
	answerVersion = 1
)

type queryKind uint8

const (
	queryGet  queryKind = 1
	queryList queryKind = 2
)

// A ListRequest asks for the items of a range of keys, in order.
type ListRequest struct {
	// Prefix is what all keys begin with. Empty: all keys.
	Prefix []byte

	// Start is the first key that may be returned. To go on, pass the Next of
	// the list before. Empty: from the beginning of the prefix.
	Start []byte

	// Limit is how many items to return at most, up to [MaxListItems]. Zero means
	// that many.
	Limit int

	// KeysOnly leaves the values out.
	KeysOnly bool

	// Consistency says how fresh the list must be; the zero value is
	// linearizable. [Machine.List] does not look at it.
	Consistency group.Consistency
}

// A ListResult is a consistent view of a part of a range: as the group was at
// Revision.
type ListResult struct {
	Items    []ListItem
	Next     []byte // where to go on; nil: there is nothing more
	Revision uint64 // of the group
}

// A ListItem is one key of a list.
type ListItem struct {
	Key []byte
	Value
}

// maxStartBytes is the length of the longest Next: a key and a byte.
const maxStartBytes = MaxKeyBytes + 1

func (q ListRequest) check() error {
	if n := len(q.Prefix); n > MaxKeyBytes {
		return &LimitError{Reason: ErrKeyTooLarge, Limit: MaxKeyBytes, Actual: uint64(n)}
	}
	if n := len(q.Start); n > maxStartBytes {
		return &LimitError{Reason: ErrKeyTooLarge, Limit: maxStartBytes, Actual: uint64(n)}
	}
	if q.Limit < 0 || q.Limit > MaxListItems {
		return fmt.Errorf("%w: list limit %d, want 0 to %d", ErrInvalid, q.Limit, MaxListItems)
	}
	return nil
}

// getAnswer is the answer to a get.
type getAnswer struct {
	found bool
	value Value
}

func encodeGetQuery(key []byte) []byte {
	return wire.AppendBytes([]byte{queryVersion, byte(queryGet)}, key)
}

func encodeListQuery(q ListRequest) []byte {
	b := wire.AppendBytes([]byte{queryVersion, byte(queryList)}, q.Prefix)
	b = wire.AppendBytes(b, q.Start)
	b = wire.AppendUvarint(b, uint64(q.Limit))
	return wire.AppendBool(b, q.KeysOnly)
}

// query is a decoded question.
type query struct {
	kind queryKind
	key  []byte
	list ListRequest
}

// decodeQuery decodes and checks a question. Its errors are [ErrInvalid],
// [ErrEmptyKey] or a [LimitError].
func decodeQuery(data []byte) (query, error) {
	r := wire.NewReader(data)
	if v := r.Byte(); r.Err() == nil && v != queryVersion {
		r.Fail("query version %d", v)
	}
	q := query{kind: queryKind(r.Byte())}
	switch q.kind {
	case queryGet:
		q.key = r.Bytes()
	case queryList:
		q.list = readListRequest(r)
	default:
		r.Fail("query kind %d", q.kind)
	}
	if err := r.Close(); err != nil {
		return query{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if q.kind == queryGet {
		return q, checkKey(q.key)
	}
	return q, q.list.check()
}

func readListRequest(r *wire.Reader) ListRequest {
	q := ListRequest{Prefix: r.Bytes(), Start: r.Bytes()}
	limit := r.Uvarint()
	if limit > math.MaxInt32 {
		r.Fail("list limit %d", limit)
		return ListRequest{}
	}
	q.Limit = int(limit)
	q.KeysOnly = r.Bool()
	return q
}

// Query answers an encoded question. A question that makes no sense has an
// answer that says so; an error means that the state cannot be read.
func (m *Machine) Query(data []byte) ([]byte, error) {
	q, err := decodeQuery(data)
	if err != nil {
		return encodeRefused(err), nil
	}
	switch q.kind {
	case queryList:
		var l ListResult
		if l, err = m.list(q.list); err == nil {
			return l.encode(q.list.KeysOnly), nil
		}
	default:
		var a getAnswer
		if a, err = m.get(q.key); err == nil {
			return a.encode(), nil
		}
	}
	return nil, m.wrap("query", err)
}

// Get returns the value of key, which is the caller's then, or [ErrNotFound].
func (m *Machine) Get(key []byte) (Value, error) {
	if err := checkKey(key); err != nil {
		return Value{}, err
	}
	a, err := m.get(key)
	if err != nil {
		return Value{}, m.wrap("get", err)
	}
	if !a.found {
		return Value{}, ErrNotFound
	}
	a.value.Data = bytes.Clone(a.value.Data) // it may be a layer's
	return a.value, nil
}

// List returns a part of a range of keys. It ends before its limit when the next
// item would take it beyond [MaxResultBytes].
func (m *Machine) List(q ListRequest) (ListResult, error) {
	if err := q.check(); err != nil {
		return ListResult{}, err
	}
	l, err := m.list(q)
	return l, m.wrap("list", err)
}

// read looks at the newest state of m: first into the layers, and unless that was enough into
// the database. Both are as they were at one moment.
func (m *Machine) read(
	look func(*behind) (enough bool), fn func(badgerdb.Reader, machineState) error,
) error {
	if err := m.store.gate.enter(); err != nil {
		return err
	}
	defer m.store.gate.leave()
	if m.gone.Load() {
		return ErrClosed
	}
	if err := m.store.Err(); err != nil {
		return err
	}
	state, view, err := m.behind.look(look)
	if err != nil || view == nil {
		return err
	}
	defer view.Discard()
	err = guard(func() error { return fn(m.store.db.Reader(view.Txn), state) })
	return m.distrust(state.generation, err)
}

func (m *Machine) get(key []byte) (a getAnswer, err error) {
	look := func(b *behind) bool {
		it, ok := b.lookupLocked(string(key))
		a = getAnswer{found: it.present(), value: it.asValue()}
		return ok
	}
	err = m.read(look, func(at badgerdb.Reader, s machineState) error {
		it, damage := readItem(at, m.replica.Group, itemKey(s.generation, key))
		a = getAnswer{found: it.present(), value: it.asValue()}
		return damage
	})
	return a, err
}

func (m *Machine) list(q ListRequest) (l ListResult, err error) {
	var changes []change
	look := func(b *behind) bool {
		changes = b.changesLocked(q.Prefix, q.Start)
		return false
	}
	err = m.read(look, func(at badgerdb.Reader, s machineState) error {
		l.Revision = s.revision
		return m.listAt(at, s, q, &l, changes)
	})
	return l, err
}

func (m *Machine) listAt(
	at badgerdb.Reader, s machineState, q ListRequest, l *ListResult, changes []change,
) error {
	limit := cmp.Or(q.Limit, MaxListItems)
	size := resultOverhead
	add := func(item ListItem) (more bool) {
		size += item.encodedSize(q.KeysOnly)
		if n := len(l.Items); n == limit || n > 0 && size > MaxResultBytes-maxStartBytes {
			l.Next = keyAfter(l.Items[n-1].Key)
			return false
		}
		l.Items = append(l.Items, item)
		return true
	}
	over := newMerge(changes, func(key []byte, it item) (bool, error) {
		return add(newListItem(key, it, q.KeysOnly)), nil
	})
	from, all := itemKey(s.generation, q.Start), itemKey(s.generation, q.Prefix)
	err := at.Scan(all, from, func(stored *badger.Item) (more bool, err error) {
		counts, more, err := over.before(stored.Key()[itemKeyHeader:])
		if err != nil || !more || !counts {
			return more, err
		}
		item, err := m.listItem(stored, q.KeysOnly)
		if err != nil {
			return false, err
		}
		return add(item), nil
	})
	if err != nil || l.Next != nil {
		return err
	}
	return over.rest()
}

// listItem copies an item. The record is checked even when only the key is
// wanted: a key that cannot be read should not look as if it could.
func (m *Machine) listItem(stored *badger.Item, keysOnly bool) (ListItem, error) {
	key := stored.KeyCopy(nil)
	var out ListItem
	err := stored.Value(func(record []byte) error {
		it, err := decodeItem(m.replica.Group, key, record)
		if err == nil {
			out = newListItem(key[itemKeyHeader:], it, keysOnly)
		}
		return err
	})
	return out, err
}

// newListItem returns an item with a value of its own.
func newListItem(key []byte, it item, keysOnly bool) ListItem {
	out := ListItem{Key: key, Value: it.asValue()}
	if out.Data = nil; !keysOnly {
		out.Data = append(make([]byte, 0, len(it.value)), it.value...)
	}
	return out
}

func (i ListItem) encodedSize(keysOnly bool) int {
	n := wire.SizeBytes(len(i.Key)) + wire.SizeUvarint(i.Revision) +
		wire.SizeUvarint(i.CreateRevision)
	if !keysOnly {
		n += wire.SizeBytes(len(i.Data))
	}
	return n
}

func (a getAnswer) encode() []byte {
	b := []byte{answerVersion, byte(statusOK), byte(queryGet)}
	b = wire.AppendBool(b, a.found)
	if a.found {
		b = appendValue(b, a.value)
	}
	return b
}

func (l ListResult) encode(keysOnly bool) []byte {
	size := resultOverhead + len(l.Next)
	for _, i := range l.Items {
		size += i.encodedSize(keysOnly)
	}
	b := append(make([]byte, 0, size), answerVersion, byte(statusOK), byte(queryList))
	b = wire.AppendUvarint(b, l.Revision)
	b = wire.AppendBytes(b, l.Next)
	b = wire.AppendBool(b, keysOnly)
	b = wire.AppendUvarint(b, uint64(len(l.Items)))
	for _, i := range l.Items {
		b = wire.AppendBytes(b, i.Key)
		b = wire.AppendUvarint(b, i.Revision)
		b = wire.AppendUvarint(b, i.CreateRevision)
		if !keysOnly {
			b = wire.AppendBytes(b, i.Data)
		}
	}
	return b
}

func decodeGetAnswer(data []byte) (a getAnswer, err error) {
	err = decodeAnswer(data, queryGet, func(r *wire.Reader) {
		if a.found = r.Bool(); a.found {
			a.value = readValue(r)
		}
	})
	return a, err
}

func decodeListAnswer(data []byte) (l ListResult, err error) {
	err = decodeAnswer(data, queryList, func(r *wire.Reader) {
		l.Revision = r.Uvarint()
		if next := r.Bytes(); len(next) > 0 {
			l.Next = next
		}
		keysOnly := r.Bool()
		n := r.Count(3)
		if n == 0 {
			return
		}
		l.Items = make([]ListItem, 0, n)
		for range n {
			i := ListItem{Key: r.Bytes()}
			i.Revision, i.CreateRevision = r.Uvarint(), r.Uvarint()
			if !keysOnly {
				i.Data = r.Bytes()
			}
			l.Items = append(l.Items, i)
		}
	})
	return l, err
}

// decodeAnswer decodes the frame of an answer and lets body read the rest.
func decodeAnswer(data []byte, want queryKind, body func(*wire.Reader)) error {
	r := wire.NewReader(data)
	var refused error
	if v := r.Byte(); r.Err() == nil && v != answerVersion {
		r.Fail("answer version %d", v)
	}
	switch status := resultStatus(r.Byte()); status {
	case statusOK:
		if kind := queryKind(r.Byte()); r.Err() == nil && kind != want {
			r.Fail("answer to query kind %d, want %d", kind, want)
		}
		body(r)
	case statusRefused:
		refused = readRefused(r)
	default:
		r.Fail("answer status %d", status)
	}
	if err := r.Close(); err != nil {
		return fmt.Errorf("kv: answer: %w", err)
	}
	return refused
}
