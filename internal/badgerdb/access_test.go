package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

// TestAccessIsNoDamage: a store that is taken for damaged is set aside, so what says
// nothing of a file's content must not be taken for it.
func TestAccessIsNoDamage(t *testing.T) {
	for _, cause := range []error{
		syscall.EACCES, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
		fmt.Errorf("%w: sync", ErrFailed),
	} {
		err := damaged("x", &fs.PathError{Op: "open", Path: "x", Err: cause})
		if errors.Is(err, ErrDamaged) || !errors.Is(err, cause) {
			t.Errorf("%v becomes %v, want no ErrDamaged", cause, err)
		}
		l := new(loading)
		l.damage("x", err)
		if len(l.found) != 0 || !errors.Is(l.access, cause) {
			t.Errorf("%v becomes %v and %v, want no finding", cause, l.found, l.access)
		}
	}
	failed := fmt.Errorf("%w: sync: %w", ErrFailed, syscall.EIO)
	if err := damaged("x", failed); errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EIO) {
		t.Errorf("a sync that fails becomes %v, want no ErrDamaged", err)
	}
	for _, cause := range []error{syscall.EIO, syscall.EISDIR, errors.New("unreadable")} {
		if err := damaged("x", cause); !errors.Is(err, ErrDamaged) {
			t.Errorf("%v becomes %v, want ErrDamaged", cause, err)
		}
	}
}
