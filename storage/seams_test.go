package storage

import (
	"encoding/hex"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// writeReplaced makes a log of which the entries 4 and 5 were replaced, by a record that
// is to be lost, and returns the key of that. Further records follow.
func writeReplaced(t *testing.T, o Options, more ...Update) (key []byte) {
	t.Helper()
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{HardState: hardStateOf(1, 1, 0)})
		b.Update(1, Update{Entries: entriesOf(1, 6, 1)})
	})
	mustCommit(t, s, func(b *Batch) {
		b.Update(1, Update{Entries: entriesOf(4, 2, 2), HardState: hardStateOf(2, 1, 3)})
	})
	for _, u := range more {
		mustCommit(t, s, func(b *Batch) { b.Update(1, u) })
	}
	mustClose(t, s)
	return appendLogKey(nil, 1, 1)
}

// TestReplacedEntriesDoNotComeBack: a record is lost that is not the newest one, and those
// that it had replaced fill the gap.
func TestReplacedEntriesDoNotComeBack(t *testing.T) {
	for name, u := range map[string]Update{
		"entry 5 has term 1, it should have term 2":          {Entries: entriesOf(6, 2, 2)},
		"the last entry 5 has term 1, it should have term 2": {HardState: hardStateOf(2, 1, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t.TempDir())
			key := writeReplaced(t, o, u)
			s := mustOpen(t, o)
			if text := damageOf(s, 1); text != "" {
				t.Fatalf("before anything is lost: %s", text)
			}
			mustClose(t, s)
			editLog(t, o, remove(key))
			s = mustOpen(t, o)
			defer mustClose(t, s)
			if text := damageOf(s, 1); !strings.Contains(text, name) {
				t.Errorf("its damage is %q", text)
			}
		})
	}
}

// TestReadsTheFirstFormat: records with a head that do not tell which terms they follow.
func TestReadsTheFirstFormat(t *testing.T) {
	o := testOptions(t.TempDir())
	mustClose(t, mustOpen(t, o))
	editLog(t, o, func(txn txn) error {
		for _, pair := range [][2]string{
			{
				"67000000000000000748",
				"9a3589300101020300000000000000000000000004010104010101010101010302",
			}, {
				"6700000000000000074d",
				"08cc7cd501010203000000000000000000000000040101030464657363",
			}, {
				"67000000000000000752",
				"8b437256010102030000000000000000000000000401010101",
			}, {
				"67000000000000000753",
				"2d765a9d0101020300000000000000000000000004010102010103010203000000000c6d616e" +
					"696665737420312e31",
			}, {
				"6700000000000000074c00000000",
				"f62780d401010203000000000000000000000000040102050001010101020101040302020300" +
					"0132010020010568656c6c6f",
			},
		} {
			key, err := hex.DecodeString(pair[0])
			if err != nil {
				return err
			}
			value, err := hex.DecodeString(pair[1])
			if err != nil {
				return err
			}
			if err = txn.Set(key, value); err != nil {
				return err
			}
		}
		return nil
	})
	for _, last := range []uint64{4, 5} {
		s := mustOpen(t, o)
		if text := damageOf(s, 7); text != "" {
			t.Fatal(text)
		}
		if _, got := s.Log(7).Bounds(); got != last {
			t.Errorf("the log ends with %d, want %d", got, last)
		}
		if last == 4 { // what is written then is of the present format
			more := []*raftpb.Entry{entriesOf(5, 1, 1)[0]}
			mustCommit(t, s, func(b *Batch) { b.Update(7, Update{Entries: more}) })
		}
		mustClose(t, s)
	}
}
