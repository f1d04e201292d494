package badgerdb

import (
	"bytes"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// ownPrefix begins the keys that are the database's own.
const ownPrefix = "\x00badgerdb/"

const (
	// baseKey is in the last level, always. Badger merges level 0 on demand only
	// into a level that is there; in a young database all that is deleted would
	// stay until level 0 is full.
	baseKey = ownPrefix + "base"

	// scratchKey is written and deleted again to push a memtable to disk, unless
	// Options.Fill does something else.
	scratchKey = ownPrefix + "scratch"

	// fillerKey begins the keys of what fills a memtable that is to become a table. It says
	// nothing, and is not in the journal.
	fillerKey = ownPrefix + "filler"
)

// Own reports whether a key is one that the database keeps for itself. Who
// iterates over all keys meets them; nobody else may use them.
func Own(key []byte) bool { return bytes.HasPrefix(key, []byte(ownPrefix)) }

// layBase brings baseKey, and what else there is, to the last level. It is done
// to a new database, about 30 ms, and to one that has tables in level 0 only.
//
// The log is synced before the table is begun that is made of it. Otherwise a power failure
// could leave the table without its name in the MANIFEST and without its log, which is what
// a MANIFEST looks like that has lost its end.
func layBase(o badger.Options, b *broken) error {
	o.CompactL0OnClose = true
	o.SyncWrites = true
	db, err := b.open(o)
	if err != nil {
		return err
	}
	version := db.MaxVersion()
	txn := db.NewTransactionAt(version, true)
	defer txn.Discard()
	err = txn.Set([]byte(baseKey), nil)
	if err == nil {
		err = b.commit(txn, version+1)
	}
	if cerr := b.close(db); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("lay the last level: %w", err)
	}
	return nil
}
