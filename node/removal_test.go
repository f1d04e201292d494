package node

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/raftyard/raftyard/internal/simdisk"
)

// TestRemovalIsDurable: a process is killed when it has deleted the directory of a replica,
// and has not made that durable. The next one finds nothing. What that takes for gone must not
// be there again after a power failure: nobody would look for it any more.
func TestRemovalIsDurable(t *testing.T) {
	const parent, dir = "/data/replicas", "/data/replicas/1-0-2"
	for seed := range uint64(20) {
		disk := simdisk.New(rand.New(rand.NewPCG(seed, 0)).Uint64)
		files := disk.Files()
		err := errors.Join(files.MkdirAll(dir), files.SyncDir("/"), files.SyncDir("/data"),
			files.SyncDir(parent), files.Rename(dir, dir+removedSuffix), files.SyncDir(parent),
			files.RemoveAll(dir+removedSuffix))
		if err != nil {
			t.Fatal(err)
		}
		disk.Kill()
		n := &Node{world: &surroundings{files: disk.Files()}}
		if err = n.removeDir(dir); err != nil {
			t.Fatal(err)
		}
		disk.Crash()
		if left, err := disk.Files().ReadDir(parent); err != nil || len(left) != 0 {
			t.Fatalf("seed %d: left is %q, %v", seed, left, err)
		}
	}
	n := &Node{world: &surroundings{files: simdisk.New(rand.Uint64).Files()}}
	if err := n.removeDir(dir); err != nil {
		t.Errorf("removeDir where no replica has had a directory: %v", err)
	}
}
