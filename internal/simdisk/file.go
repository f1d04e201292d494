package simdisk

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// file is an open file. It goes on when its name is gone.
type file struct {
	d        *Disk
	start    int
	path     string
	content  *content
	writable bool
	closed   bool
	at       int64
}

// usable reports why the file cannot be used any more.
func (f *file) usable(op string) error {
	switch {
	case f.d.start != f.start:
		return &fs.PathError{Op: op, Path: f.path, Err: ErrCrashed}
	case f.closed:
		return &fs.PathError{Op: op, Path: f.path, Err: fs.ErrClosed}
	default:
		return nil
	}
}

// Read implements [io.Reader].
func (f *file) Read(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := f.readAt(b, f.at)
	f.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements [io.ReaderAt].
func (f *file) ReadAt(b []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.readAt(b, at)
}

func (f *file) readAt(b []byte, at int64) (int, error) {
	if err := f.usable("read"); err != nil {
		return 0, err
	}
	if at < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrInvalid}
	}
	if len(b) == 0 {
		return 0, nil
	}
	if at >= int64(len(f.content.seen)) {
		return 0, io.EOF
	}
	n := copy(b, f.content.seen[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// Write implements [io.Writer].
func (f *file) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := f.writeAt(b, f.at)
	f.at += int64(n)
	return n, err
}

// WriteAt implements [io.WriterAt].
func (f *file) WriteAt(b []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.writeAt(b, at)
}

func (f *file) writeAt(b []byte, at int64) (int, error) {
	if err := f.usable("write"); err != nil {
		return 0, err
	}
	if !f.writable {
		return 0, &fs.PathError{Op: "write", Path: f.path, Err: fs.ErrPermission}
	}
	if at < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.path, Err: fs.ErrInvalid}
	}
	if len(b) > 0 {
		f.content.write(write{at: at, data: slices.Clone(b)})
	}
	return len(b), nil
}

// Sync implements [vfs.File].
func (f *file) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.usable("sync"); err != nil {
		return err
	}
	end := f.content.noted()
	switch err := f.d.sync(f.start, "content", f.path); {
	case err == nil:
		f.content.settle(end)
		return nil
	case f.d.start != f.start:
		return fmt.Errorf("sync %s: %w", f.path, err)
	default:
		f.content.lose(f.d, end)
		return err
	}
}

// Close implements [io.Closer]. It makes nothing durable.
func (f *file) Close() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.usable("close"); err != nil {
		return err
	}
	f.closed = true
	return nil
}
