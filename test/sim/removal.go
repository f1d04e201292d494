package sim

import "path"

// files is the host's file system, as its node sees it.
func (h *host) files() FS { return removing{FS: h.disk.Files(), h: h} }

// removing deletes a directory name by name, as every real one does: the power may fail in
// between.
type removing struct {
	FS

	h *host
}

// RemoveAll implements [FS]. What is in a directory goes before it.
func (r removing) RemoveAll(name string) error {
	below, err := r.ReadDir(name)
	if err != nil { // it is no directory, or not there
		return r.FS.RemoveAll(name)
	}
	for _, b := range below {
		if err := r.RemoveAll(path.Join(name, b)); err != nil {
			return err
		}
		r.h.stumble("remove " + name)
	}
	return r.FS.RemoveAll(name)
}
