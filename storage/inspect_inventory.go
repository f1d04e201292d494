package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkInventory compares the replicas that are there with the inventory, and reports whether
// that tells of all that was ever here. One that is of no use is made anew by the next start.
func (i *Inspection) checkInventory() (whole bool) {
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
		return in.whole
	}
	return false
}

// lostTail notes what [Store.lostTail] does; whole: the inventory tells of all that was here.
func (i *Inspection) lostTail(whole bool) {
	f := Finding{
		Path: logName, Scope: ScopeReplicas,
		What: fmt.Sprintf("has lost its newest batches: it ends with batch %d,"+
			" batch %d was durable", i.Newest, i.Noted),
	}
	if !whole {
		f.Scope = ScopeStore
		f.What += ", and no inventory says which replicas there were"
	}
	i.Findings = append(i.Findings, f)
}
