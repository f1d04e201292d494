package badgerdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A dirWatch tells which files are made in a directory. It is for one goroutine; another one
// may close it.
type dirWatch struct {
	*os.File

	piece []byte
}

// watchDir begins to watch a directory.
func watchDir(dir string) (*dirWatch, error) {
	// One that does not block is read by waiting for it without a thread, and closing it ends
	// that.
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	file := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_ONLYDIR); err != nil {
		return nil, errors.Join(os.NewSyscallError("inotify_add_watch", err), file.Close())
	}
	return &dirWatch{File: file, piece: make([]byte, 64*(unix.SizeofInotifyEvent+64))}, nil
}

// next waits for new files and returns their names. It ends with [os.ErrClosed] when the
// watch is closed, and with [io.EOF] when there is no directory any more. Names are missing
// when there are more at once than the kernel keeps, some thousands.
func (w *dirWatch) next() ([]string, error) {
	n, err := w.Read(w.piece)
	if err != nil {
		return nil, err
	}
	var names []string
	for rest := w.piece[:n]; len(rest) >= unix.SizeofInotifyEvent; {
		mask := binary.NativeEndian.Uint32(rest[4:])
		size := int(binary.NativeEndian.Uint32(rest[12:]))
		rest = rest[unix.SizeofInotifyEvent:]
		if mask&unix.IN_IGNORED != 0 {
			return names, io.EOF
		}
		size = min(size, len(rest))
		name, _, _ := bytes.Cut(rest[:size], []byte{0})
		names, rest = append(names, string(name)), rest[size:]
	}
	return names, nil
}
