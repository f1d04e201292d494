//go:build !linux

package badgerdb

import "errors"

// A dirWatch would tell which files are made in a directory.
type dirWatch struct{}

func watchDir(string) (*dirWatch, error) { return nil, errors.ErrUnsupported }

func (*dirWatch) next() ([]string, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*dirWatch) Close() error { return nil }
