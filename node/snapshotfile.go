package node

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/internal/wire"
)

const (
	snapshotPrefix = "snapshot-" // a state that the next start may need
	incomingPrefix = "incoming-" // a received snapshot that is not installed yet
)

// A fileCheck is what a file must be for its content to be trusted. The zero value
// says nothing: records of earlier formats have none.
type fileCheck struct {
	Known bool
	Size  uint64
	CRC   uint32 // Castagnoli
}

func (c fileCheck) append(b []byte) []byte {
	b = wire.AppendBool(b, c.Known)
	if c.Known {
		b = wire.AppendUvarint(b, c.Size)
		b = wire.AppendUvarint(b, uint64(c.CRC))
	}
	return b
}

// readCheck reads a check, or nothing from a record that has none.
func readCheck(r *wire.Reader, has bool) (c fileCheck) {
	if !has || !r.Bool() {
		return c
	}
	size, sum := r.Uvarint(), r.Uvarint()
	if sum > 1<<32-1 {
		r.Fail("checksum %x has more than 32 bits", sum)
	}
	return fileCheck{Known: true, Size: size, CRC: uint32(sum)}
}

// add takes in what comes next in the file.
func (c *fileCheck) add(b []byte) {
	c.Known = true
	c.Size += uint64(len(b))
	c.CRC = crc32.Update(c.CRC, crc32.MakeTable(crc32.Castagnoli), b)
}

// writeFileSync writes src to a new file that is durable, with its name, when it
// returns without an error.
func writeFileSync(
	files vfs.FS, dir, name string, src io.WriterTo,
) (check fileCheck, err error) {
	if err = files.MkdirAll(dir); err != nil {
		return check, fmt.Errorf("snapshot directory: %w", err)
	}
	path := filepath.Join(dir, name)
	f, err := files.CreateNew(path)
	if err != nil {
		return check, fmt.Errorf("snapshot file: %w", err)
	}
	w := &checkedWriter{f: f, sum: fileCheck{Known: true}}
	_, err = src.WriteTo(w)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = files.SyncDir(dir)
	}
	if err != nil {
		return w.sum, fmt.Errorf("write snapshot file: %w", joinRemove(files, err, path))
	}
	return w.sum, nil
}

// syncEvery is how much of a snapshot file is written between two syncs. With a single one at
// the end the kernel keeps what it likes of a gigabyte in memory, and then writes all of it at
// once: the logs of all groups, which are synced on the same disk, wait behind that.
const syncEvery = 8 << 20

// checkedWriter writes a file bit by bit to the disk, and finds its check.
type checkedWriter struct {
	f        vfs.File
	sum      fileCheck
	unsynced int
}

// Write implements [io.Writer].
func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.f.Write(b)
	c.sum.add(b[:n])
	if c.unsynced += n; err == nil && c.unsynced >= syncEvery {
		c.unsynced = 0
		err = c.f.Sync()
	}
	return n, err
}

// errRotten: a snapshot file is not what was written. Nothing but a disk that does not
// keep what it has synced does that.
var errRotten = errors.New("snapshot file is damaged")

// A snapshotFile is an open file that holds a state. It reads to its end without an
// error only if it is what was written.
type snapshotFile struct {
	f    vfs.File
	want fileCheck
	sum  fileCheck
}

func openSnapshotFile(files vfs.FS, path string, want fileCheck) (*snapshotFile, error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open snapshot file: %w", err)
	}
	return &snapshotFile{f: f, want: want, sum: fileCheck{Known: true}}, nil
}

// checkSnapshotFile reads a file to its end. It returns what is wrong with the file, or nil
// if it is what was written, or if that cannot be told.
func checkSnapshotFile(files vfs.FS, path string, want fileCheck) (err error) {
	f, err := openSnapshotFile(files, path, want)
	if vfs.HidesContent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err = f.WriteTo(io.Discard); err != nil && !errors.Is(err, errRotten) {
		err = fmt.Errorf("%w: %w", errRotten, err)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return errors.Join(err, f.Close())
}

// Read implements [io.Reader].
func (s *snapshotFile) Read(b []byte) (int, error) {
	n, err := s.f.Read(b)
	s.sum.add(b[:n])
	if errors.Is(err, io.EOF) && s.want.Known && s.sum != s.want {
		err = fmt.Errorf("%w: %d bytes with checksum %08x, want %d with %08x",
			errRotten, s.sum.Size, s.sum.CRC, s.want.Size, s.want.CRC)
	}
	return n, err
}

// WriteTo implements [group.Snapshot].
func (s *snapshotFile) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, readerFunc(s.Read)) // without the method itself, which Copy would take
}

// Close implements [group.Snapshot].
func (s *snapshotFile) Close() error { return s.f.Close() }

// joinRemove removes a file that is not to be used and adds a failure to err.
func joinRemove(files vfs.FS, err error, path string) error {
	if rerr := files.Remove(path); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return fmt.Errorf("%w (and %s stays behind: %w)", err, path, rerr)
	}
	return err
}

// obsolete notes a file that goes once what replaces it is durable.
func (r *replica) obsolete(name string) {
	if name != "" {
		r.snap.old = append(r.snap.old, name)
	}
}

// removeObsolete removes the files that were replaced.
func (w *worker) removeObsolete(r *replica) {
	for _, name := range r.snap.old {
		path := filepath.Join(r.machine.env.Dir, name)
		w.node.files.start(func() { w.node.removeFile(path) })
	}
	r.snap.old = nil
}

// sweepFiles removes, at the start, every snapshot file of a replica but those
// that its record names.
func (n *Node) sweepFiles(dir string, m meta) {
	names, err := n.world.files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		n.logger.Warn("old snapshot files stay behind", errAttr(err))
		return
	}
	for _, name := range names {
		ours := strings.HasPrefix(name, snapshotPrefix) || strings.HasPrefix(name, incomingPrefix)
		needed := name == m.Floor.File || (m.Install != nil && name == m.Install.File)
		if ours && !needed {
			n.removeFile(filepath.Join(dir, name))
		}
	}
}
