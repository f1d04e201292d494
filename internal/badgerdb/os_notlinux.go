//go:build !linux

package badgerdb

import (
	"errors"
	"os"
)

// syncData makes the content of a file durable.
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
