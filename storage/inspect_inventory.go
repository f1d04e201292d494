package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// checkInventory compares the replicas that are there with the inventory. One that is of
// no use is made anew by the next start.
func (i *Inspection) checkInventory() {
	b, err := os.ReadFile(filepath.Join(i.dir, inventoryName))
	in := decodeInventory(b)
	nothing := func(what string) {
		i.Findings = append(i.Findings, Finding{Path: inventoryName, What: what})
	}
	switch {
	case i.Identity.Format == 0:
	case errors.Is(err, fs.ErrNotExist):
		nothing("is missing: the next start makes it anew")
	case err != nil:
		i.lost(inventoryName, "%v", err)
	case in.isForeign(i.Identity):
		i.lost(inventoryName, "belongs to store %s, not to %s: directories were mixed up",
			in.store, i.Identity.Store)
	case !in.isUsable(i.Identity):
		nothing("cannot be used: the next start makes it anew")
	default:
		i.store.inventory = &inventory{entries: in.entries}
		i.store.checkInventory()
	}
}
