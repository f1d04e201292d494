package node

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// The directory of a destroyed replica is deleted file by file, which a crash may
// interrupt. No state machine can be opened on what is left then. So the directory gets
// another name first, by which it is known that its state machine was closed for good:
//
//	state machine destroyed or closed ──▶ renamed, synced ──▶ deleted, synced ──▶ noted
//
// What has the other name is deleted without a look at it.

// removedSuffix ends the names of directories that are being deleted.
const removedSuffix = ".removed"

// removeDir deletes the directory of a replica, whose state machine is closed for good.
func (n *Node) removeDir(dir string) error {
	files := n.world.files
	err := files.Rename(dir, dir+removedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		// It never had one, or a process has deleted it that was killed before that was
		// durable. A parent that is missing holds nothing that could come back.
		if err = files.SyncDir(filepath.Dir(dir)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	if err == nil {
		err = files.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return err
	}
	_, err = n.finishRemoval(dir)
	return err
}

// finishRemoval deletes what an earlier removal of the directory has left. It is done if
// there was something, and there is nothing else.
func (n *Node) finishRemoval(dir string) (done bool, err error) {
	files, removed := n.world.files, dir+removedSuffix
	left, err := files.Exists(removed)
	if err != nil || !left {
		return false, err
	}
	// The name may not be durable yet, if what has given it was interrupted: then a crash
	// would show a half of the directory under its own.
	if err = files.SyncDir(filepath.Dir(dir)); err != nil {
		return false, err
	}
	if err = files.RemoveAll(removed); err != nil {
		return false, err
	}
	// What is noted as gone must not be there again after a power failure.
	if err = files.SyncDir(filepath.Dir(dir)); err != nil {
		return false, err
	}
	again, err := files.Exists(dir)
	return !again, err
}
