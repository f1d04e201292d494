package badgerdb

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What the writer says when a commit was acknowledged, before its number, and after it when it
// has begun a log.
const ackedText, begunText = "acknowledged ", "begun"

// cutDir is the directory of the database, on the file system that is cut, and madeDir that of
// one that is just being made.
const cutDir, madeDir = "db", "made"

// How the writer syncs its logs.
const (
	syncWell  = "well"
	syncNever = "never"      // no sync at all
	syncStays = "stays"      // the log that was the first is synced for ever
	syncLate  = "begun late" // a log that has begun is synced after the next commit only
	syncKills = "kills "     // instead of sync number so and so it is killed
)

// A cutModel is what the writer has written, until one of its commits.
type cutModel struct {
	values map[string]string
	upTo   uint64
}

// lastKey has the number of the last commit.
const lastKey = "last"

// cutCommit returns what a commit writes: values, of which empty ones are deletions.
func cutCommit(number uint64) map[string]string {
	dice := rand.New(rand.NewPCG(number, 9))
	pairs := map[string]string{lastKey: strconv.FormatUint(number, 10)}
	for range 1 + dice.IntN(3) {
		value := make([]byte, dice.IntN(4)*dice.IntN(12<<10))
		for i := range value {
			value[i] = byte(dice.Uint32())
		}
		pairs[fmt.Sprintf("key-%02d", dice.IntN(40))] = string(value)
	}
	return pairs
}

// check compares a database with the model, which goes on to the last commit that is there: no
// older one than the last that was acknowledged before the cut, and at most one newer than the
// last of which the writer has said so.
func (m *cutModel) check(t *testing.T, db *DB, acked, said uint64) error {
	var last uint64
	if number := get(t, db, lastKey); number != "none" {
		var err error
		if last, err = strconv.ParseUint(number, 10, 64); err != nil {
			return err
		}
	}
	if last < acked || last > said+1 {
		return fmt.Errorf("%d is the last commit, and %d was acknowledged", last, acked)
	}
	for ; m.upTo < last; m.upTo++ {
		maps.Copy(m.values, cutCommit(m.upTo+1))
	}
	for key, want := range m.values {
		got := get(t, db, key)
		if want == "" && got == "none" {
			continue
		}
		if got != want {
			return fmt.Errorf("%s is another value than commit %d has left", key, last)
		}
	}
	return nil
}

// writeUntilCut is the child that writes: a commit for each byte that it reads.
func writeUntilCut(t *testing.T) {
	db := mustOpen(t, cutOptions(cutDir)) // in the directory in which this process is
	db.journal.sync = wrongSync(os.Getenv(cutArgs), db.journal.sync)
	last := uint64(0)
	if said := get(t, db, lastKey); said != "none" {
		var err error
		if last, err = strconv.ParseUint(said, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for b := make([]byte, 1); ; last++ {
		if _, err := io.ReadFull(os.Stdin, b); err != nil {
			t.Fatal(err)
		}
		name := db.journal.name
		if err := db.Commit(func(txn *Txn) error {
			for key, value := range cutCommit(last + 1) {
				err := txn.Set([]byte(key), []byte(value))
				if value == "" {
					err = txn.Delete([]byte(key))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		said := ""
		if db.journal.name != name {
			said = " " + begunText
		}
		if _, err := fmt.Printf("%s%d%s\n", ackedText, last+1, said); err != nil {
			t.Fatal(err)
		}
	}
}

// wrongSync returns a sync that is wrong in one way, or the right one.
func wrongSync(how string, sync func(*os.File) error) func(*os.File) error {
	var first *os.File
	seen := make(map[string]bool)
	calls, dies := 0, -1
	if n, err := strconv.Atoi(strings.TrimPrefix(how, syncKills)); err == nil {
		dies = n
	}
	return func(f *os.File) error {
		calls++
		again := seen[f.Name()]
		seen[f.Name()] = true
		switch {
		case calls == dies:
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
			select {} // it has no more to say
		case how == syncNever, how == syncLate && !again:
			return nil
		case how == syncStays && first == nil:
			var err error
			if first, err = os.Open(f.Name()); err != nil {
				return err
			}
		}
		if first != nil {
			return sync(first)
		}
		return sync(f)
	}
}
