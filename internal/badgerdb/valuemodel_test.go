package badgerdb

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/google/go-cmp/cmp"
)

// A valueModel is what a database must show.
type valueModel struct {
	db     *DB
	o      Options
	dice   *rand.Rand
	values map[string]string
	open   []shownThen
	kept   int // the most files that were kept
}

// shownThen is what a snapshot must show.
type shownThen struct {
	at     *Snapshot
	values map[string]string
}

// TestValuesAreWhatWasWritten does at random what can be done to a database, and compares it
// with a map: also what old snapshots, later starts, starts after a kill, and images show.
func TestValuesAreWhatWasWritten(t *testing.T) {
	seeds := 4
	if fullScale() {
		seeds = 100
	}
	kept := 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &valueModel{
				o: valueOptions(t), dice: rand.New(rand.NewPCG(uint64(seed), 7)),
				values: make(map[string]string),
			}
			m.db = mustOpen(t, m.o)
			for range 1200 {
				m.step(t)
			}
			m.reopen(t)
			mustClose(t, m.db)
			kept = max(kept, m.kept)
		})
	}
	if kept == 0 {
		t.Error("no file was kept for its values")
	}
}

func (m *valueModel) step(t *testing.T) {
	t.Helper()
	switch n := m.dice.IntN(400); {
	case n < 3:
		m.open = append(m.open, shownThen{m.db.Snapshot(), maps.Clone(m.values)})
	case n < 6 && len(m.open) > 0:
		i := m.dice.IntN(len(m.open))
		m.checkSnapshot(t, m.open[i])
		m.open[i].at.Discard()
		m.open = slices.Delete(m.open, i, i+1)
	case n < 9:
		if ids := m.db.values.ids(); len(ids) > 0 {
			if err := m.db.collector.free(ids[m.dice.IntN(len(ids))]); err != nil {
				t.Fatal(err)
			}
		}
	case n < 10:
		m.reopen(t)
	case n < 11:
		m.kill(t)
	case n < 40:
		m.check(t, m.key())
	default:
		m.commit(t)
	}
	m.kept = max(m.kept, len(m.db.values.ids()))
}

// modelKeys is how many keys the model knows.
const modelKeys = 60

func (m *valueModel) key() string { return modelKey(m.dice.IntN(modelKeys)) }

func modelKey(n int) string {
	if n < 5 {
		return fmt.Sprintf("a key that is too long %02d", n)
	}
	return fmt.Sprintf("key-%02d", n)
}

func (m *valueModel) value() string {
	size := m.dice.IntN(20 << 10)
	switch m.dice.IntN(4) {
	case 0:
		size = minValue - 2 + m.dice.IntN(4)
	case 1:
		size = m.dice.IntN(100)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(m.dice.Uint32())
	}
	return string(b)
}

func (m *valueModel) commit(t *testing.T) {
	t.Helper()
	err := m.db.Commit(func(txn *Txn) error {
		for range 1 + m.dice.IntN(4) {
			key := m.key()
			if m.dice.IntN(5) == 0 {
				delete(m.values, key)
				if err := txn.Delete([]byte(key)); err != nil {
					return err
				}
				continue
			}
			m.values[key] = m.value()
			if err := txn.Set([]byte(key), []byte(m.values[key])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (m *valueModel) check(t *testing.T, key string) {
	t.Helper()
	want, there := m.values[key]
	if !there {
		want = "none"
	}
	if got := get(t, m.db, key); got != want {
		t.Fatalf("%s = %.20q (%d), want %.20q (%d)", key, got, len(got), want, len(want))
	}
}

func (m *valueModel) checkSnapshot(t *testing.T, then shownThen) {
	t.Helper()
	for n := range modelKeys {
		key := modelKey(n)
		want, there := then.values[key]
		got, err := then.at.read([]byte(key))
		if there != (err == nil) || !there && !errors.Is(err, badger.ErrKeyNotFound) ||
			string(got) != want {
			t.Fatalf("a snapshot has %s = %.20q (%d), %v, want %.20q (%d), there: %t",
				key, got, len(got), err, want, len(want), there)
		}
	}
}

// checkAll compares everything.
func (m *valueModel) checkAll(t *testing.T, when string, got []string) {
	t.Helper()
	var want []string
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		value := m.values[key]
		want = append(want, fmt.Sprintf("%q=%.20q(%d)", key, value, len(value)))
	}
	for i, pair := range got {
		got[i] = pair[:strings.LastIndex(pair, "@")]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s it holds other things (-want +got):\n%s", when, diff)
	}
}

func (m *valueModel) reopen(t *testing.T) {
	t.Helper()
	for _, then := range m.open {
		m.checkSnapshot(t, then)
		then.at.Discard()
	}
	m.open = nil
	mustClose(t, m.db)
	m.checkAll(t, "closed", imageContent(t, m.o))
	m.db = mustOpen(t, m.o)
	m.checkAll(t, "opened", openContent(t, m.db))
}

// kill goes on with a copy of what a kill would leave.
func (m *valueModel) kill(t *testing.T) {
	t.Helper()
	killed := m.o
	killed.Dir = filepath.Join(t.TempDir(), "killed")
	copyKilled(t, m.o.Dir, killed.Dir)
	for _, then := range m.open {
		then.at.Discard()
	}
	m.open = nil
	mustClose(t, m.db)
	m.o = killed
	m.checkAll(t, "killed", imageContent(t, m.o))
	m.db = mustOpen(t, m.o)
	m.checkAll(t, "opened after a kill", openContent(t, m.db))
}
