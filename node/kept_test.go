package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/raftyard/raftyard/group"
)

// kept is a list that keeps itself in a file outside of its replica's directory: the index
// of its last command, and its words.
type kept struct {
	list

	path  string
	index uint64
}

func openKept(dir string, env group.Env) (*kept, error) {
	k := &kept{path: filepath.Join(dir, fmt.Sprintf("%d-%d-%d", env.Node, env.Group, env.Replica))}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, err
	}
	if err := k.decode(string(b)); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *kept) encode() string {
	return strings.Join(append([]string{strconv.FormatUint(k.index, 10)}, k.words...), "\n")
}

func (k *kept) decode(s string) (err error) {
	words := strings.Split(s, "\n")
	if k.index, err = strconv.ParseUint(words[0], 10, 64); err != nil {
		return err
	}
	k.words = words[1:]
	return nil
}

func (k *kept) save() error {
	if err := os.WriteFile(k.path+".new", []byte(k.encode()), 0o600); err != nil {
		return err
	}
	return os.Rename(k.path+".new", k.path)
}

func (k *kept) Apply(batch []group.Command) ([]group.Result, error) {
	if batch[0].Index <= k.index {
		return nil, fmt.Errorf("index %d comes again, it is at %d", batch[0].Index, k.index)
	}
	results, err := k.list.Apply(batch)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.index = batch[len(batch)-1].Index
	return results, k.save()
}

func (k *kept) Applied() (uint64, error) { return k.index, nil }

func (k *kept) Snapshot() (group.Snapshot, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return listSnapshot(k.encode()), nil
}

func (k *kept) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.decode(string(b)); err != nil {
		return err
	}
	return k.save()
}

func (k *kept) Destroy() error {
	if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
