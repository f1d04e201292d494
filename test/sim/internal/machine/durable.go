package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/internal/wire"
)

// The files of a durable machine. The base is a number and a snapshot; the journal
// of that number holds what was applied since, record after record:
//
//	length, 4 bytes │ index, commands │ checksum, 8 bytes
//
// A new base comes with a new journal, which is there before the base names it.
const (
	baseName      = "registers"
	baseNext      = "registers.next"
	journalPrefix = "journal-"
)

const (
	// maxJournal is after how many bytes of journal there is a new base.
	maxJournal = 16 << 10
	// syncEach is after how many calls of Apply the journal is synced.
	syncEach = 8
	// maxRecord bounds what is believed of a record's length.
	maxRecord = 16 << 20
)

// Durable returns the factory of machines that keep their state in Config.Files.
func Durable(c Config) group.Factory {
	return func(env group.Env) (group.StateMachine, error) {
		m := &durable{memory: newMemory(c, env), files: c.Files, dir: env.Dir, sync: c.Sync}
		if m.sync == nil {
			m.sync = m.eighth
		}
		if err := m.open(); err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.observer.MachineOpened(m.id, m.state.index)
		m.tellSynced()
		return m, nil
	}
}

// durable is a machine that keeps its state on disk. A failure of the disk breaks
// it for good.
type durable struct {
	*memory

	files   vfs.FS
	dir     string
	sync    func() bool
	applies int

	number  uint64 // of base and journal
	journal vfs.File
	size    int64  // of the journal
	synced  uint64 // the index up to which all is durable
	broken  error
}

var _ group.Durable = (*durable)(nil)

func (m *durable) eighth() bool {
	m.applies++
	return m.applies%syncEach == 0
}

func (m *durable) path(name string) string { return path.Join(m.dir, name) }

func (m *durable) journalName(number uint64) string {
	return m.path(fmt.Sprintf("%s%d", journalPrefix, number))
}

// open reads what is there, or begins.
func (m *durable) open() error {
	if err := m.files.MkdirAll(m.dir); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	b, err := m.files.ReadFile(m.path(baseName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m.rebase(newRegisters())
	case err != nil:
		return fmt.Errorf("base: %w", err)
	}
	number, n := binary.Uvarint(b)
	if n <= 0 {
		return fmt.Errorf("%w: base of %d bytes", wire.ErrMalformed, len(b))
	}
	m.number = number
	if m.state, err = decodeRegisters(b[n:]); err != nil {
		return fmt.Errorf("base: %w", err)
	}
	return m.replay()
}

// replay applies the journal. What a crash has left of it may end within a record,
// and may not be durable, even if it can be read; after a failed sync it would not be
// after another one either. So the state is written anew.
func (m *durable) replay() error {
	b, err := m.files.ReadFile(m.journalName(m.number))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if len(b) > 0 {
		for n := m.replayRecord(b); n > 0; n = m.replayRecord(b) {
			b = b[n:]
		}
		return m.rebase(m.state)
	}
	if m.journal, err = m.files.OpenWrite(m.journalName(m.number)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err = m.files.SyncDir(m.dir); err != nil { // the base's name may not be durable
		return m.fail("sync directory", err)
	}
	m.synced = m.state.index
	return m.sweep()
}

// replayRecord applies the first record of b and returns its size, or zero if it
// is not whole.
func (m *durable) replayRecord(b []byte) int {
	const head = 4
	if len(b) < head {
		return 0
	}
	size := int(binary.BigEndian.Uint32(b))
	if size > maxRecord || size > len(b)-head {
		return 0
	}
	body, ok := cutChecksum(b[:head+size])
	if !ok || len(body) < head {
		return 0
	}
	r := wire.NewReader(body[head:])
	index := r.Uvarint()
	for i := 0; r.Len() > 0; i++ {
		m.state.apply(&group.Command{Index: index, Offset: i, Data: r.Bytes()})
	}
	return head + size
}

// Apply implements group.StateMachine.
func (m *durable) Apply(batch []group.Command) ([]group.Result, error) {
	if m.broken != nil {
		return nil, m.broken
	}
	var records []byte
	for rest := batch; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Index == rest[0].Index {
			n++
		}
		records = appendRecord(records, rest[:n])
		rest = rest[n:]
	}
	if _, err := m.journal.WriteAt(records, m.size); err != nil {
		return nil, m.fail("write journal", err)
	}
	m.size += int64(len(records))
	results, err := m.memory.Apply(batch)
	switch {
	case err != nil:
	case m.size > maxJournal:
		err = m.rebase(m.state)
	case m.sync():
		err = m.syncJournal()
	}
	if err != nil {
		return nil, err
	}
	m.tellSynced()
	return results, nil
}

// tellSynced tells the observer how far the state is durable, whether or not the replica
// asks: what a log may be cut to does not depend on that.
func (m *durable) tellSynced() { m.observer.MachineDurable(m.id, m.synced) }

// appendRecord appends the record of the commands of one index.
func appendRecord(b []byte, commands []group.Command) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = wire.AppendUvarint(b, commands[0].Index)
	for i := range commands {
		b = wire.AppendBytes(b, commands[i].Data)
	}
	record := b[start:]
	binary.BigEndian.PutUint32(record, uint32(len(record)-4+checksumSize))
	return append(b[:start], appendChecksum(record)...)
}

func (m *durable) syncJournal() error {
	if err := m.journal.Sync(); err != nil {
		return m.fail("sync journal", err)
	}
	m.synced = m.state.index
	return nil
}

// fail notes that the disk cannot be trusted any more.
func (m *durable) fail(what string, err error) error {
	m.broken = fmt.Errorf("%w: %s: %w", group.ErrFatal, what, err)
	return m.broken
}

// Applied implements group.Durable.
func (m *durable) Applied() (uint64, error) {
	if m.broken != nil {
		return 0, m.broken
	}
	m.tellSynced()
	return m.synced, nil
}

// Restore implements group.StateMachine.
func (m *durable) Restore(r io.Reader) error {
	if m.broken != nil {
		return m.broken
	}
	s, err := readRegisters(r)
	if err != nil {
		return err
	}
	if err := m.rebase(s); err != nil {
		return err
	}
	m.replace(s)
	m.tellSynced()
	return nil
}

// rebase makes s, with an empty journal, what is durable. The state in memory is
// not touched.
func (m *durable) rebase(s *registers) error {
	number := m.number + 1
	journal, err := m.files.Create(m.journalName(number))
	if err != nil {
		return m.fail("new journal", err)
	}
	// What a file of that name held before must not come back in a crash.
	if err = journal.Sync(); err == nil {
		err = m.writeBase(number, s)
	}
	if err != nil {
		return m.fail("new base", errors.Join(err, journal.Close()))
	}
	if m.journal != nil {
		err = m.journal.Close()
	}
	m.number, m.journal, m.size, m.synced = number, journal, 0, s.index
	if err != nil {
		return m.fail("close journal", err)
	}
	return m.sweep()
}

func (m *durable) writeBase(number uint64, s *registers) error {
	f, err := m.files.Create(m.path(baseNext))
	if err != nil {
		return err
	}
	_, err = snapshot(append(wire.AppendUvarint(nil, number), s.encode()...)).WriteTo(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// The journal's name is durable before that of the base that needs it.
	if err = m.files.SyncDir(m.dir); err != nil {
		return err
	}
	if err = m.files.Rename(m.path(baseNext), m.path(baseName)); err != nil {
		return err
	}
	return m.files.SyncDir(m.dir)
}

// sweep removes the journals of other bases.
func (m *durable) sweep() error {
	names, err := m.files.ReadDir(m.dir)
	if err != nil {
		return m.fail("read directory", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, journalPrefix) || m.path(name) == m.journalName(m.number) {
			continue
		}
		if err := m.files.Remove(m.path(name)); err != nil {
			return m.fail("remove journal", err)
		}
	}
	return nil
}

// Close implements group.StateMachine. It does not sync: what is not durable may
// be lost, as after a crash.
func (m *durable) Close() error {
	if m.journal == nil {
		return nil
	}
	err := m.journal.Close()
	m.journal = nil
	if err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}
