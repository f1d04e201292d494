package simdisk

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/raftyard/raftyard/internal/vfs"
)

// files is the file system of a disk.
type files struct{ d *Disk }

var _ vfs.FS = files{}

// split returns the names on the way to path. All paths begin at the same root.
func split(path string) []string {
	return strings.FieldsFunc(filepath.ToSlash(filepath.Clean(path)), func(r rune) bool {
		return r == '/'
	})
}

// find returns what path stands for.
func (d *Disk) find(op, path string) (*node, error) {
	at := d.root
	for _, name := range split(path) {
		if name == "." {
			continue
		}
		if at.dir == nil {
			return nil, &fs.PathError{Op: op, Path: path, Err: syscall.ENOTDIR}
		}
		next, ok := at.dir.seen[name]
		if !ok {
			return nil, &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist}
		}
		at = next
	}
	return at, nil
}

// findDir returns the directory at path.
func (d *Disk) findDir(op, path string) (*dir, error) {
	n, err := d.find(op, path)
	if err == nil && n.dir == nil {
		err = &fs.PathError{Op: op, Path: path, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return nil, err
	}
	return n.dir, nil
}

// place returns the directory that path is in, and its name there.
func (d *Disk) place(op, path string) (*dir, string, error) {
	names := split(path)
	if len(names) == 0 || names[len(names)-1] == "." {
		return nil, "", &fs.PathError{Op: op, Path: path, Err: fs.ErrInvalid}
	}
	in, err := d.findDir(op, filepath.Dir(filepath.Clean(path)))
	return in, names[len(names)-1], err
}

// MkdirAll implements [vfs.FS].
func (f files) MkdirAll(path string) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	at, where := f.d.root, "/"
	for _, name := range split(path) {
		if name == "." {
			continue
		}
		if at.dir == nil {
			return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
		}
		next, ok := at.dir.seen[name]
		if !ok {
			next = newDir()
			at.dir.change(rename{to: name, node: next})
		}
		if !at.dir.isDurable(name) { // also what somebody has made and not synced
			if err := f.d.syncDir(at.dir, where); err != nil {
				return err
			}
		}
		at, where = next, filepath.Join(where, name)
	}
	if at.dir == nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	return nil
}

// Create implements [vfs.FS].
func (f files) Create(path string) (vfs.File, error) { return f.create(path, false) }

// CreateNew implements [vfs.FS].
func (f files) CreateNew(path string) (vfs.File, error) { return f.create(path, true) }

func (f files) create(path string, exclusive bool) (vfs.File, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	in, name, err := f.d.place("open", path)
	if err != nil {
		return nil, err
	}
	n, ok := in.seen[name]
	switch {
	case ok && exclusive:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrExist}
	case ok && n.file == nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case ok:
		if len(n.file.seen) > 0 {
			n.file.write(write{empty: true})
		}
	default:
		n = &node{file: new(content)}
		in.change(rename{to: name, node: n})
	}
	return f.handle(n, path, true), nil
}

// Open implements [vfs.FS].
func (f files) Open(path string) (vfs.File, error) { return f.open(path, false) }

// OpenWrite implements [vfs.FS].
func (f files) OpenWrite(path string) (vfs.File, error) { return f.open(path, true) }

func (f files) open(path string, writable bool) (vfs.File, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := f.d.find("open", path)
	if err != nil {
		return nil, err
	}
	if n.file == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	}
	return f.handle(n, path, writable), nil
}

func (f files) handle(n *node, path string, writable bool) vfs.File {
	return &file{d: f.d, start: f.d.start, path: path, content: n.file, writable: writable}
}

// ReadFile implements [vfs.FS].
func (f files) ReadFile(path string) ([]byte, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := f.d.find("open", path)
	if err != nil {
		return nil, err
	}
	if n.file == nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	}
	return slices.Clone(n.file.seen), nil
}

// ReadDir implements [vfs.FS].
func (f files) ReadDir(path string) ([]string, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	in, err := f.d.findDir("open", path)
	if err != nil {
		return nil, err
	}
	return in.sorted(), nil
}

// Exists implements [vfs.FS].
func (f files) Exists(path string) (bool, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	_, err := f.d.find("lstat", path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Rename implements [vfs.FS]. From one directory to another it is two changes.
func (f files) Rename(from, to string) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := f.d.find("rename", from)
	if err != nil {
		return err
	}
	in, name, err := f.d.place("rename", from)
	if err != nil {
		return err
	}
	into, newName, err := f.d.place("rename", to)
	if err != nil {
		return err
	}
	old := into.seen[newName]
	within := strings.HasPrefix(filepath.Clean(to)+"/", filepath.Clean(from)+"/")
	switch {
	case old != nil && old.file == nil:
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	case old == n:
	case old != nil && n.file == nil:
		return &fs.PathError{Op: "rename", Path: to, Err: syscall.ENOTDIR}
	case within:
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrInvalid}
	case in != into:
		into.change(rename{to: newName, node: n})
		in.change(rename{from: name, node: n})
	default:
		in.change(rename{from: name, to: newName, node: n})
	}
	return nil
}

// Remove implements [vfs.FS].
func (f files) Remove(path string) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := f.d.find("remove", path)
	if err != nil {
		return err
	}
	in, name, err := f.d.place("remove", path)
	if err != nil {
		return err
	}
	if n.base != nil || n.dir != nil && len(n.dir.seen) > 0 {
		return &fs.PathError{Op: "remove", Path: path, Err: syscall.ENOTEMPTY}
	}
	in.change(rename{from: name, node: n})
	return nil
}

// RemoveAll implements [vfs.FS]. A database goes as a whole.
func (f files) RemoveAll(path string) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	in, name, err := f.d.place("unlinkat", path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if n, ok := in.seen[name]; ok {
		n.removeAll()
		in.change(rename{from: name, node: n})
	}
	return nil
}

// removeAll empties a directory. A crash may bring back a part of it.
func (n *node) removeAll() {
	if n.dir == nil {
		return
	}
	for _, name := range n.dir.sorted() {
		child := n.dir.seen[name]
		child.removeAll()
		n.dir.change(rename{from: name, node: child})
	}
}

// SyncDir implements [vfs.FS].
func (f files) SyncDir(path string) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	in, err := f.d.findDir("open", path)
	if err != nil {
		return err
	}
	return f.d.syncDir(in, path)
}

func (d *Disk) syncDir(in *dir, path string) error {
	end := in.noted()
	err := d.sync(d.start, "names", path)
	if err == nil {
		in.settle(end)
	}
	return err
}

// Lock implements [vfs.FS].
func (f files) Lock(path string) (io.Closer, error) {
	path = filepath.Clean(path)
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	in, name, err := f.d.place("open", path)
	if err != nil {
		return nil, err
	}
	if f.d.locks[path] {
		return nil, &fs.PathError{Op: "lock", Path: path, Err: vfs.ErrLocked}
	}
	if in.seen[name] == nil {
		in.change(rename{to: name, node: &node{file: new(content)}})
	}
	f.d.locks[path] = true
	return &lock{d: f.d, start: f.d.start, path: path}, nil
}

// lock is a lock that somebody has.
type lock struct {
	d     *Disk
	start int
	path  string
}

// Close gives the lock back.
func (l *lock) Close() error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.d.start != l.start {
		return ErrCrashed
	}
	delete(l.d.locks, l.path)
	return nil
}
