package badgerdb

import "os"

// An uncached file is one that is read from the disk, as far as the system can do that.
type uncached struct {
	*os.File

	past   bool  // past the cache
	direct error // why that has ended, if its file system knows how to do it
	piece  []byte
}

func (u *uncached) size() (int64, error) {
	info, err := u.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errNoFile
	}
	return info.Size(), nil
}
