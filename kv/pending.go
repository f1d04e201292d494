package kv

import (
	"errors"
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

// pending is the effect of commands that are being executed: changed items above those of the
// layers, which are above the database.
type pending struct {
	at         badgerdb.Reader
	top, under *layer
	group      raftyard.GroupID
	state      machineState
	items      map[string]pendingItem
	bytes      int64 // at least what they add to a write set
}

// A pendingItem is a changed key: present, or deleted.
type pendingItem struct {
	item

	stored bool // below the layer there is a record of the key
}

func (p *pending) count() int64 { return int64(len(p.items)) }

// lookup returns the item of key, which is the zero item when there is none.
func (p *pending) lookup(key []byte) (pendingItem, error) {
	if it, ok := p.items[string(key)]; ok {
		return it, nil
	}
	if it, ok := p.top.get(string(key)); ok {
		return it, nil
	}
	if it, ok := p.under.get(string(key)); ok {
		return pendingItem{item: it.item, stored: it.present()}, nil
	}
	storedKey := itemKey(p.state.generation, key)
	it, err := readItem(p.at, p.group, storedKey)
	return pendingItem{item: it, stored: it.present()}, err
}

// readItem returns the item of a stored key, or the zero item.
func readItem(at badgerdb.Reader, g raftyard.GroupID, storedKey []byte) (item, error) {
	record, err := get(at, storedKey)
	if err != nil || record == nil {
		return item{}, err
	}
	return decodeItem(g, storedKey, record)
}

// A stage is the effect of one command above a pending: all of it is kept, or
// nothing.
type stage struct {
	p        *pending
	revision uint64 // of the command, if it changes something
	changed  bool
	items    map[string]stagedItem
}

// A stagedItem is a key that a command changes.
type stagedItem struct {
	before pendingItem // as it is below the stage
	after  item
}

func (p *pending) stage() *stage {
	return &stage{p: p, revision: p.state.revision + 1}
}

// get returns the item of key, or the zero item.
func (s *stage) get(key []byte) (item, error) {
	if it, ok := s.items[string(key)]; ok {
		return it.after, nil
	}
	it, err := s.p.lookup(key)
	return it.item, err
}

func (s *stage) put(key, value []byte) (old item, err error) {
	it, err := s.staged(key)
	if err != nil {
		return item{}, err
	}
	old = it.after
	s.set(key, it, value)
	return old, nil
}

func (s *stage) delete(key []byte) (old item, err error) {
	it, err := s.staged(key)
	if err != nil {
		return item{}, err
	}
	old = it.after
	s.remove(key, it)
	return old, nil
}

// set gives a staged key a value.
func (s *stage) set(key []byte, it stagedItem, value []byte) {
	create := it.after.create
	if !it.after.present() {
		create = s.revision
	}
	it.after = item{create: create, mod: s.revision, value: value}
	s.keep(key, it)
}

// remove deletes a staged key. That is a change only if the key exists.
func (s *stage) remove(key []byte, it stagedItem) {
	if it.after.present() {
		it.after = item{}
		s.keep(key, it)
	}
}

func (s *stage) staged(key []byte) (stagedItem, error) {
	if it, ok := s.items[string(key)]; ok {
		return it, nil
	}
	before, err := s.p.lookup(key)
	return stagedItem{before: before, after: before.item}, err
}

func (s *stage) keep(key []byte, it stagedItem) {
	if s.items == nil {
		s.items = make(map[string]stagedItem, 1)
	}
	s.items[string(key)] = it
	s.changed = true
}

// merge moves the effect of the command into the pending below.
func (s *stage) merge() {
	if !s.changed {
		return
	}
	p := s.p
	p.state.revision = s.revision
	c := p.state.content
	for k, it := range s.items {
		key := []byte(k)
		if it.before.present() {
			c = c.without(key, it.before.item)
		}
		if it.after.present() {
			c = c.with(key, it.after)
		}
		p.bytes += itemBytes(k, it.after)
		p.items[k] = pendingItem{item: it.after, stored: it.before.stored}
	}
	p.state.content = c
}

// execute runs one command and returns its encoded result. An error is not the
// command's fault: the database cannot be read.
func (p *pending) execute(data []byte) ([]byte, error) {
	cmd, err := decodeCommand(data)
	if err != nil {
		return encodeRefused(err), nil
	}
	s := p.stage()
	var res result
	switch cmd.kind {
	case commandTxn:
		res, err = s.txn(cmd.txn)
	default:
		res, err = s.single(cmd)
	}
	if _, ok := errors.AsType[*LimitError](err); ok {
		return encodeRefused(err), nil
	}
	if err != nil {
		return nil, err
	}
	s.merge()
	return res.encode(), nil
}

// single runs a put or a delete with its condition.
func (s *stage) single(cmd command) (result, error) {
	it, err := s.staged(cmd.key)
	if err != nil {
		return result{}, err
	}
	old := it.after
	if !cmd.cond.holds(old) {
		return result{status: statusPrecondition, revision: old.mod}, nil
	}
	res := result{status: statusOK, kind: cmd.kind}
	if cmd.kind == commandPut {
		s.set(cmd.key, it, cmd.value)
		res.flag = !old.present()
	} else {
		s.remove(cmd.key, it)
		res.flag = old.present()
	}
	res.revision = s.current()
	return res, nil
}

// current is the group's revision after the command.
func (s *stage) current() uint64 {
	if s.changed {
		return s.revision
	}
	return s.p.state.revision
}

// txn runs a transaction. A transaction whose result would be too large fails
// with a [LimitError]; the caller forgets the stage then.
func (s *stage) txn(t Txn) (result, error) {
	ok, err := s.compare(t.Compares)
	if err != nil {
		return result{}, err
	}
	ops := t.Then
	if !ok {
		ops = t.Else
	}
	res := result{status: statusOK, kind: commandTxn, flag: ok}
	size := 0
	for _, op := range ops {
		r, err := s.op(op)
		if err != nil {
			return result{}, err
		}
		res.ops = append(res.ops, r)
		if size += r.encodedSize(); size > MaxResultBytes-resultOverhead {
			return result{}, &LimitError{
				Reason: ErrResultTooLarge,
				Limit:  MaxResultBytes - resultOverhead,
				Actual: uint64(size),
			}
		}
	}
	res.revision = s.current()
	return res, nil
}

func (s *stage) compare(compares []Compare) (bool, error) {
	for _, c := range compares {
		it, err := s.get(c.Key)
		if err != nil {
			return false, err
		}
		if !c.holds(it) {
			return false, nil
		}
	}
	return true, nil
}

// op runs one operation of a transaction. It sees what those before it did.
func (s *stage) op(op Op) (OpResult, error) {
	switch op.Kind {
	case OpPut:
		old, err := s.put(op.Key, op.Value)
		return OpResult{Kind: OpPut, Found: old.present()}, err
	case OpDelete:
		old, err := s.delete(op.Key)
		return OpResult{Kind: OpDelete, Found: old.present()}, err
	case OpGet:
		it, err := s.get(op.Key)
		return OpResult{Kind: OpGet, Found: it.present(), Value: it.asValue()}, err
	default:
		return OpResult{}, fmt.Errorf("kv: operation of kind %d passed the decoder", op.Kind)
	}
}
