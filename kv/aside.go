package kv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/raftyard/raftyard/internal/vfs"
)

// asideSuffix ends the name of a store that was set aside.
const asideSuffix = ".damaged"

// ErrAside is the error of a store that cannot be set aside, because another one was and
// is there still.
var ErrAside = errors.New("kv: a damaged store was set aside before and is there still")

// SetAside gives the directory of a damaged store, which nobody may have open, another
// name, and returns that. A new store can then begin in its place: the replicas that had
// something in the old one have lost it, which their node notices, and has them take it
// from other members of their groups.
//
// Nothing is deleted: of a group without another member it may be all that there is. So
// there can be one such directory only, [ErrAside]; somebody has to delete it.
func SetAside(dir string) (string, error) {
	aside := AsideDir(dir)
	if _, err := os.Lstat(aside); err == nil {
		return "", fmt.Errorf("%w: %s", ErrAside, aside)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("kv: set aside: %w", err)
	}
	err := os.Rename(dir, aside)
	if err == nil {
		err = vfs.OS{}.SyncDir(filepath.Dir(aside))
	}
	if err != nil {
		return "", fmt.Errorf("kv: set aside: %w", err)
	}
	return aside, nil
}

// AsideDir is the name that [SetAside] gives to a directory.
func AsideDir(dir string) string { return filepath.Clean(dir) + asideSuffix }
