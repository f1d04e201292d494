package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"
)

// txnWrite is one write of a transaction. A nil value deletes the key.
type txnWrite struct{ key, value []byte }

func (w txnWrite) to(txn *Txn) error {
	if w.value == nil {
		return txn.Delete(w.key)
	}
	return txn.Set(w.key, w.value)
}

// anyWrite draws writes of few keys, so that some come again, and of many lengths.
func anyWrite(t *rapid.T) txnWrite {
	key := rapid.OneOf(
		rapid.SampledFrom([][]byte{{0}, []byte("a"), []byte("!badger"), {0xff, 0xff}}),
		rapid.SliceOfN(rapid.Byte(), 1, 300),
	).Draw(t, "key")
	if bytes.HasPrefix(key, []byte(badgerPrefix)) || rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		return txnWrite{key: []byte("deleted")}
	}
	length := rapid.SampledFrom([]int{0, 1, 127, 128, 5000, 20_000}).Draw(t, "length")
	return txnWrite{key, bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "value"), length)}
}

// loneTxn is a transaction without a database.
func loneTxn(version uint64) *Txn {
	limits := &DB{maxTxnBytes: 1 << 30, maxTxnCount: 1 << 20, maxValue: 1 << 20}
	return &Txn{db: limits, version: version}
}

// TestTxnIsWhatIsParsed: what a transaction puts into the journal is what is read of it, and what
// Badger gets of it.
func TestTxnIsWhatIsParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.Uint64Range(1, 1<<62).Draw(t, "version")
		page := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "page")
		writes := rapid.SliceOfN(rapid.Custom(anyWrite), 1, 20).Draw(t, "writes")
		txn := loneTxn(version)
		txn.mark = 7
		txn.buf = append(txn.buf, page...)
		raw := slices.Clone(page)
		for i, w := range writes {
			if err := w.to(txn); err != nil {
				t.Fatal(err)
			}
			meta := byte(bitTxn)
			if w.value == nil {
				meta |= bitDelete
			}
			raw = appendRaw(raw, meta, version, string(w.key), string(w.value))
			key, value := txn.pair(txn.pairs[i])
			if !bytes.Equal(key, w.key) || !bytes.Equal(value, w.value) ||
				(value == nil) != (w.value == nil) {
				t.Fatalf("pair %d is %.50q=%.50q, want %.50q=%.50q", i, key, value, w.key, w.value)
			}
		}
		txn.finish()
		raw = appendRaw(raw, bitFinTxn, version, finKey+"\x00\x00\x00\x00\x00\x00\x00\x07",
			strconv.FormatUint(version, 10))
		if !bytes.Equal(txn.buf, raw) {
			t.Fatalf("the transaction is %x, want %x", txn.buf, raw)
		}
		b := txn.padded()
		if len(b)%journalPage != 0 || len(bytes.Trim(b[len(raw):], "\x00")) > 0 {
			t.Fatalf("%d bytes of %d are no whole pages with zeros at the end", len(raw), len(b))
		}
		checkParsed(t, b[len(page):], version, writes)
	})
}

// checkParsed compares a transaction as it is read with what was written.
func checkParsed(t *rapid.T, b []byte, version uint64, writes []txnWrite) {
	for i, w := range writes {
		e, ok := parseEntry(b)
		if !ok || e.end || e.version != version {
			t.Fatalf("entry %d is %+v, %t", i, e, ok)
		}
		if deletes := e.meta&bitDelete != 0; deletes != (w.value == nil) {
			t.Fatalf("entry %d deletes: %t", i, deletes)
		}
		if !bytes.Equal(e.key[:len(e.key)-8], w.key) || !bytes.Equal(e.value, w.value) {
			t.Fatalf("entry %d is %.50q=%.50q, want %.50q=%.50q", i, e.key, e.value, w.key, w.value)
		}
		b = b[e.size:]
	}
	e, ok := parseEntry(b)
	if !ok || !e.end || e.version != version {
		t.Fatalf("the end is %+v, %t", e, ok)
	}
	if _, more := parseEntry(b[e.size:]); more {
		t.Fatal("there is an entry behind the end")
	}
}

// TestTxnRefusesBeforeAnythingIsWritten: what does not fit, or is not for others to set, leaves
// the journal as it was and the database usable.
func TestTxnRefusesBeforeAnythingIsWritten(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	put(t, db, "before", "x")
	tests := []struct {
		name string
		fn   func(*Txn) error
		want error
	}{
		{"no key", func(txn *Txn) error { return txn.Set(nil, []byte("x")) }, badger.ErrEmptyKey},
		{"no key to delete", func(txn *Txn) error { return txn.Delete(nil) }, badger.ErrEmptyKey},
		{"Badger's key", func(txn *Txn) error {
			return txn.Set([]byte(finKey), []byte("7"))
		}, badger.ErrInvalidKey},
		{"Badger's key to delete", func(txn *Txn) error {
			return txn.Delete([]byte(badgerPrefix))
		}, badger.ErrInvalidKey},
		{"long key", func(txn *Txn) error {
			return txn.Set(make([]byte, maxTxnKey+1), nil)
		}, badger.ErrTxnTooBig},
		{"long value", func(txn *Txn) error {
			return txn.Set([]byte("k"), make([]byte, db.MaxValueBytes()+1))
		}, badger.ErrTxnTooBig},
		{"too many", func(txn *Txn) error {
			for range db.MaxTxnCount() - 1 {
				if err := txn.Set([]byte("k"), nil); err != nil {
					return fmt.Errorf("within the limit: %w", errors.ErrUnsupported)
				}
			}
			return txn.Delete([]byte("k"))
		}, badger.ErrTxnTooBig},
		{"too much", func(txn *Txn) error {
			room := db.MaxTxnBytes()
			for _, n := range []int64{room / 2, room - room/2 + 1} {
				err := txn.Set([]byte("k"), make([]byte, n-1-EntryOverhead))
				if err != nil {
					return err
				}
			}
			return nil
		}, badger.ErrTxnTooBig},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			next, end := db.NextTs(), db.journal.end
			err := db.Commit(func(txn *Txn) error {
				return errors.Join(txn.Set([]byte("beside"), nil), tt.fn(txn))
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("Commit = %v, want %v", err, tt.want)
			}
			if db.NextTs() != next || db.journal.end != end {
				t.Errorf("something was written: %d transactions, %d bytes",
					db.NextTs()-next, db.journal.end-end)
			}
			put(t, db, "after", tt.name)
			if got := get(t, db, "after") + get(t, db, "beside"); got != tt.name+"none" {
				t.Errorf("after = %s", got)
			}
		})
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLargestTxnsAreTaken: Badger takes whatever a transaction takes, and so does replay.
func TestLargestTxnsAreTaken(t *testing.T) {
	o := killed(t, testOptions(t), func(db *DB) {
		long := make([]byte, maxTxnKey)
		tests := []struct {
			name string
			fn   func(*Txn) error
		}{
			{"longest key", func(txn *Txn) error { return txn.Set(long, []byte("long")) }},
			{"as many as may be", func(txn *Txn) error {
				for i := range db.MaxTxnCount() {
					if err := txn.Set(fmt.Appendf(nil, "many%d", i%10), nil); err != nil {
						return err
					}
				}
				return nil
			}},
			{"as much as may be", func(txn *Txn) error {
				left := db.MaxTxnBytes()
				for i := 0; left > 0; i++ {
					n := min(left, 10_000)
					if left-n < 100 {
						n = left
					}
					key := fmt.Appendf(nil, "much%02d", i)
					err := txn.Set(key, make([]byte, n-int64(len(key))-EntryOverhead))
					if err != nil {
						return err
					}
					left -= n
				}
				return nil
			}},
			{"one key again and again", func(txn *Txn) error {
				return errors.Join(txn.Set([]byte("k"), []byte("1")), txn.Delete([]byte("k")),
					txn.Set([]byte("k"), []byte("2")), txn.Set([]byte("k"), []byte("3")),
					txn.Set([]byte("gone"), []byte("1")), txn.Delete([]byte("gone")))
			}},
		}
		for _, tt := range tests {
			if err := errors.Join(db.Commit(tt.fn), db.settle()); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	})
	db := mustOpen(t, o)
	for key, want := range map[string]string{
		string(make([]byte, maxTxnKey)): "long", "many9": "", "k": "3", "gone": "none",
	} {
		if got := get(t, db, key); got != want {
			t.Errorf("%.20q = %q after a kill, want %q", key, got, want)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTxnCopies: who has set a key to a value may change both at once.
func TestTxnCopies(t *testing.T) {
	o := killed(t, testOptions(t), func(db *DB) {
		key, value := []byte("key-"), []byte(strings.Repeat("v", 9))
		err := db.Commit(func(txn *Txn) error {
			for i := range 5 {
				key[3], value[0] = byte('0'+i), byte('0'+i)
				if err := txn.Set(key, value); err != nil {
					return err
				}
			}
			key[3] = '4'
			err := txn.Delete(key)
			copy(key, "XXXX")
			copy(value, "XXXXXXXXX")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	db := mustOpen(t, o)
	for i, want := range []string{"0", "1", "2", "3", "none"} {
		if want != "none" {
			want += "vvvvvvvv"
		}
		if got := get(t, db, fmt.Sprint("key", i)); got != want {
			t.Errorf("key%d = %q, want %q", i, got, want)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
