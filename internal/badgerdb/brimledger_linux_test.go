package badgerdb

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// brimKeys is how many keys are written.
const brimKeys = 60

// A brimLedger is what was written to a database, in a file on another file system, which
// outlives the process that writes it: of each key the number of the value that a commit was
// begun with last, and of the one that was acknowledged last; and the rounds that are done.
type brimLedger struct {
	file *os.File
	last uint64 // number given to a value
}

func openLedger(t *testing.T, path string) *brimLedger {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &brimLedger{file: f}
	if info, err := f.Stat(); err != nil || info.Size() == 0 {
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(16*brimKeys + 8); err != nil {
			t.Fatal(err)
		}
	}
	for key := range brimKeys {
		begun, _ := l.numbers(t, key)
		l.last = max(l.last, begun)
	}
	return l
}

// begin notes that a value for a key is about to be committed and returns its number.
func (l *brimLedger) begin(key int) (uint64, error) {
	l.last++
	return l.last, l.write(16*int64(key), l.last)
}

// acknowledge notes that the commit of a value has succeeded.
func (l *brimLedger) acknowledge(key int, number uint64) error {
	return l.write(16*int64(key)+8, number)
}

func (l *brimLedger) write(at int64, number uint64) error {
	_, err := l.file.WriteAt(binary.BigEndian.AppendUint64(nil, number), at)
	return err
}

func (l *brimLedger) read(t *testing.T, at int64) uint64 {
	t.Helper()
	b := make([]byte, 8)
	if _, err := l.file.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(b)
}

func (l *brimLedger) numbers(t *testing.T, key int) (begun, acknowledged uint64) {
	t.Helper()
	return l.read(t, 16*int64(key)), l.read(t, 16*int64(key)+8)
}

// rounds returns how many rounds are done.
func (l *brimLedger) rounds(t *testing.T) int {
	t.Helper()
	return int(l.read(t, 16*brimKeys))
}

func (l *brimLedger) roundDone(t *testing.T) {
	t.Helper()
	if err := l.write(16*brimKeys, uint64(l.rounds(t)+1)); err != nil {
		t.Fatal(err)
	}
}

// check compares a database with the ledger: it has of each key what was acknowledged, or what
// was begun after that and ended by the death of its process.
func (l *brimLedger) check(t *testing.T, db *DB) {
	t.Helper()
	for key := range brimKeys {
		begun, acknowledged := l.numbers(t, key)
		if begun == 0 {
			continue
		}
		value, number, err := get(t, db, brimKey(key)), uint64(0), error(nil)
		if value != "none" {
			number, err = strconv.ParseUint(fmt.Sprintf("%.8s", value), 10, 64)
		}
		if err != nil || number < acknowledged || number > begun {
			t.Fatalf("%s = %.8q (%v), want %d to %d", brimKey(key), value, err, acknowledged, begun)
		}
	}
}

func brimKey(key int) string { return fmt.Sprintf("key-%02d", key) }
