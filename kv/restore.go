package kv

import "io"

// restoreLocked fills a new generation from r and switches to it.
func (m *Machine) restoreLocked(r io.Reader) error {
	in := newStreamReader(r)
	head, err := in.header()
	if err != nil {
		return err
	}
	g, err := m.store.generations.allocate()
	if err != nil {
		return err
	}
	if err := m.fill(g, in); err != nil {
		// Its record, if there is one, says filling: should the process end
		// before the cleaner is done, the next start finds it.
		m.store.cleaner.add(g)
		return err
	}
	state := machineState{
		generation: g,
		position:   head.position,
		revision:   head.revision,
		content:    head.content,
	}
	return m.switchTo(state)
}

// fill writes the items of a stream under g, after a record that says so.
func (m *Machine) fill(g generation, in *streamReader) error {
	f := filler{m: m, g: g}
	rec := generationRecord{state: filling, owner: m.replica}
	f.set.set(generationKey(g), encodeGeneration(g, rec))
	if err := f.flush(); err != nil {
		return err
	}
	if err := in.items(f.item); err != nil {
		return err
	}
	return f.flush()
}

// A filler collects items until they fill a write set.
type filler struct {
	m   *Machine
	g   generation
	set writeSet
}

func (f *filler) item(key []byte, it item) error {
	storedKey := itemKey(f.g, key)
	f.set.set(storedKey, encodeItem(f.m.replica.Group, storedKey, it))
	if f.set.bytes < f.m.store.writeSetBytes && f.set.count() < f.m.store.writeSetCount {
		return nil
	}
	return f.flush()
}

func (f *filler) flush() error {
	if f.m.store.gate.closing.Load() {
		return ErrClosed
	}
	set := f.set
	f.set = writeSet{}
	if set.count() == 0 {
		return nil
	}
	return f.m.store.committer.commit(set)
}

// switchTo makes a filled generation the machine's, in one transaction.
func (m *Machine) switchTo(state machineState) error {
	var set writeSet
	set.set(machineKey(m.replica), encodeMachine(m.replica, state))
	rec := generationRecord{state: live, owner: m.replica}
	set.set(generationKey(state.generation), encodeGeneration(state.generation, rec))
	old := m.state.generation
	if old != 0 {
		m.unlink(&set, old)
	}
	if err := m.store.committer.commit(set); err != nil {
		return err
	}
	m.replaceLocked(state)
	if old != 0 {
		m.store.cleaner.add(old)
	}
	return nil
}
