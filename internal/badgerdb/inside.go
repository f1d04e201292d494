package badgerdb

import "github.com/dgraph-io/badger/v4"

// inside is what Badger does not tell of a database, read where it keeps it.
type inside struct {
	merging   *merging
	levels    liveLevels
	memtables *memtables
}

// insideOf finds all of it, or says that this is another Badger.
func insideOf(db *badger.DB) (in inside, err error) {
	if in.merging, err = mergingOf(db); err != nil {
		return in, err
	}
	if in.levels, err = levelsOf(db); err != nil {
		return in, err
	}
	in.memtables, err = memtablesOf(db)
	return in, err
}
