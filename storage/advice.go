package storage

import (
	"errors"
	"fmt"
	"syscall"
)

// unreadable returns the error of a file that the disk does not give back, or that is none,
// as damage. Other errors it returns as they are: that a file must not be read is no damage.
func unreadable(err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EISDIR) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// advise adds to an error that says that the store as a whole is damaged what can be done.
// An older copy of the directory is no help: what the node has promised since is not in it.
func advise(err error) error {
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrIncomplete) {
		return fmt.Errorf("%w: restore what is damaged as it was, or empty the directory and"+
			" start: the node rejoins by itself", err)
	}
	return err
}
