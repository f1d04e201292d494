package badgerdb

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4/y"
)

// valueFiles looks at the files that have values in them, as at tables: those that are kept, and
// full ones of the journal. Only values that count matter: what else is in a file is in memory or
// in tables, or nobody reads it.
func (s *scrubber) valueFiles() error {
	var errs []error
	for _, id := range s.db.values.full() {
		lost, what, err := s.lookAtValues(id)
		if err == nil && len(lost) > 0 {
			// What was wrong may have been the reading; or the file was deleted, and who has
			// it open can still read it.
			s.rescue(id)
			lost, what, err = s.lookAtValues(id)
		}
		switch {
		case errors.Is(err, errInterrupted):
			return err
		case err != nil:
			errs = append(errs, fmt.Errorf("file %d of values: %w", id, err))
		case len(lost) > 0:
			s.noteValues(id, lost, what)
		}
	}
	return errors.Join(errs...)
}

// rescue writes the values of a file anew that has no name any more, while it is still open.
func (s *scrubber) rescue(id uint32) {
	v := s.db.values
	path := filepath.Join(v.dir, v.nameOf(id))
	// The file may be getting the name of one that is kept: it has the one or the other.
	if v.live(id) == 0 || !isGone(path) || !isGone(filepath.Join(v.dir, valueName(id))) {
		return
	}
	s.log.Error("a file of values was deleted while it was in use: what it had is written anew",
		slog.String("file", path))
	if err := s.db.collector.free(id); err != nil {
		s.log.Error("the values of a deleted file were not written anew",
			slog.String("file", path), slog.Any("error", err))
	}
}

// lookAtValues returns the values in a file that count and are not what was written, and what is
// wrong.
func (s *scrubber) lookAtValues(id uint32) (lost []livePair, what, err error) {
	v := s.db.values
	name := v.nameOf(id)
	if name == "" || v.live(id) == 0 {
		return nil, nil, nil // it was let go of, or will be
	}
	_, err = s.load(filepath.Join(v.dir, name))
	if errors.Is(err, fs.ErrNotExist) { // or it has got the name of one that is kept just now
		_, err = s.load(filepath.Join(v.dir, valueName(id)))
	}
	switch {
	case err == nil:
	case errors.Is(err, errInterrupted), saysNothing(err):
		return nil, nil, err
	case errors.Is(err, fs.ErrNotExist):
		s.read, what = s.read[:0], errMissing
	default:
		s.read, what = s.read[:0], unreadable(err)
	}
	lost = v.lostIn(id, s.read)
	return lost, wrongWith(lost, what), nil
}

func unreadable(err error) error { return fmt.Errorf("is unreadable: %w", err) }

// wrongWith returns what is wrong with a file, which is known if it could not be read.
func wrongWith(lost []livePair, what error) error {
	if what != nil {
		return what
	}
	return fmt.Errorf("has something else in place of %d values", len(lost))
}

// lostIn returns the values that count and that should be in the content of a file, and are not.
func (v *values) lostIn(id uint32, content []byte) (lost []livePair) {
	live := v.live(id) // before: what is replaced meanwhile must not stand for what is lost
	if v.seenIn(id, content) >= live {
		return nil
	}
	// Behind what is no entry it is not known where the next one begins, but by the map.
	for _, p := range v.pairsIn(id) {
		if !p.isIn(content) && v.counts(p.key, p.at) {
			lost = append(lost, p)
		}
	}
	return lost
}

// seenIn returns how many bytes of values that count are where they should be, up to the first
// thing that is no entry.
func (v *values) seenIn(id uint32, content []byte) (seen int64) {
	for at, e := range entries(content) {
		where := place{file: id, offset: uint32(at), size: uint32(e.size)}
		if v.counts(y.ParseKey(e.key), where) {
			seen += int64(e.size)
		}
	}
	return seen
}

// isIn reports whether a pair is where it should be.
func (p livePair) isIn(content []byte) bool {
	from, to := int64(p.at.offset), int64(p.at.offset)+int64(p.at.size)
	return to <= int64(len(content)) && p.valueIn(content[from:to]) != nil
}

// live returns how many bytes of a file count.
func (v *values) live(id uint32) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.files[id]; f != nil {
		return f.live
	}
	return 0
}

// lostValues are values of a file that was found to be damaged.
type lostValues struct {
	Damage

	lost []livePair
}

// noteValues takes in that values of a file are not what was written, at least one.
func (s *scrubber) noteValues(id uint32, lost []livePair, what error) {
	slices.SortFunc(lost, func(a, b livePair) int { return bytes.Compare(a.key, b.key) })
	d := Damage{
		Finding: Finding{File: cmp.Or(s.db.values.nameOf(id), valueName(id)), What: what.Error()},
		First:   lost[0].key, Last: lost[len(lost)-1].key,
	}
	s.mu.Lock()
	_, known := s.values[id]
	s.values[id] = lostValues{d, lost}
	s.mu.Unlock()
	if !known {
		s.log.Error("a file of values is damaged", slog.String("what", d.What),
			slog.String("file", filepath.Join(s.db.values.dir, d.File)))
	}
	s.tellOwner(d)
}

// lostNow returns what is damaged of which something still counts. The caller has the lock.
func (s *scrubber) lostNow() (found []Finding) {
	for id, l := range s.values {
		counts := func(p livePair) bool { return s.db.values.counts(p.key, p.at) }
		if !slices.ContainsFunc(l.lost, counts) {
			delete(s.values, id)
			continue
		}
		l.File = cmp.Or(s.db.values.nameOf(id), l.File) // it may be another one since
		found = append(found, l.Finding)
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Compare(a.File, b.File) })
	return found
}
