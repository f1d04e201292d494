package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb" //nolint:depguard // a simulated one's options
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// inspect shows the checker what is left on the disks when everything is closed.
func (w *World) inspect() {
	for _, h := range w.hosts {
		if h.lost || h == w.leaver || w.turns.Err() != nil {
			continue
		}
		things, err := leftOn(h.disk)
		if err != nil {
			w.fail("files", fmt.Errorf("node %d: %w", h.id, err))
			return
		}
		w.check.Inspected(h.id, things)
	}
	w.judge()
}

// leftOn finds whatever belongs to replicas on a disk that nobody uses.
func leftOn(d *simdisk.Disk) ([]check.Thing, error) {
	dirs, err := directoriesOn(d)
	if err != nil {
		return nil, err
	}
	records, err := recordsOn(d)
	return append(dirs, records...), err
}

// directoriesOn finds the directories of replicas. Their names say whose they are.
func directoriesOn(d *simdisk.Disk) (things []check.Thing, err error) {
	names, err := d.Files().ReadDir("/data/replicas")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		t := check.Thing{What: "the directory " + name}
		// group, the beginning of the incarnation, and replica
		_, err := fmt.Sscanf(strings.ReplaceAll(name, "-", " "), "%d %s %d",
			&t.Group, &t.Incarnation, &t.Replica)
		if err != nil {
			return nil, fmt.Errorf("directory %s: %w", name, err)
		}
		things = append(things, t)
	}
	return things, nil
}

// recordsOn finds the records of groups in the log store, one of each kind. A tombstone
// is not of a replica that there is.
func recordsOn(d *simdisk.Disk) (things []check.Thing, err error) {
	db, err := d.OpenDB(badgerdb.Options{Dir: "/data/log"})
	if err != nil {
		return nil, err
	}
	view := db.Snapshot()
	seen := make(map[check.Thing]bool)
	err = view.Scan(func(key, _ []byte, _ uint64) error {
		const size = 10 // 'g', the group, and the kind of the record
		if len(key) < size || key[0] != 'g' || key[size-1] == 'R' {
			return nil
		}
		g := raftyard.GroupID(binary.BigEndian.Uint64(key[1:]))
		t := check.Thing{What: fmt.Sprintf("a record %c of group %d", key[size-1], g), Group: g}
		if !seen[t] {
			seen[t] = true
			things = append(things, t)
		}
		return nil
	})
	view.Discard()
	return things, errors.Join(err, db.Close())
}
