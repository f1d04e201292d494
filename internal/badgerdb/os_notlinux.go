//go:build !linux

package badgerdb

import (
	"errors"
	"os"
)

// badgerSyncs reports whether Badger is to sync its write-ahead log after each transaction. It
// is, because a sync of a file need not know here of what was written through a mapping.
const badgerSyncs = true

// syncData makes the content of a file durable that was not written through a mapping.
func syncData(f *os.File) error { return f.Sync() }

// adviseRandom does nothing: the large folios it is against are Linux's.
func adviseRandom(string) error { return nil }

// dataEnd returns where the data of a sparse file ends at the latest.
func dataEnd(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// allocate cannot give a file blocks beyond its length here.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
