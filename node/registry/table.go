package registry

import (
	"cmp"
	"iter"
	"slices"
	"sort"

	"github.com/raftyard/raftyard"
)

// pageRecords is how many records a page holds at most. A change copies one
// page and the list of pages; their sizes are about equal, and the cost of a
// change lowest, near the square root of the number of records.
const pageRecords = 256

// mergedRecords is how many records two neighbours may have when they are made
// one page. It is so much below a full page that the next one does not split it.
const mergedRecords = pageRecords / 2

// table holds the records of all groups, sorted by id, as a list of pages. A
// table and its pages are immutable: put and remove return another table that
// shares all pages but one or two with the old one.
//
//	every page has 1 to pageRecords records
//	the ids rise strictly within a page and from page to page
type table struct {
	pages   []*page
	count   int // all records
	deleted int // those with Deleted set
}

type page struct {
	records []*Group
	newest  uint64 // the greatest Version in records
}

func newPage(records []*Group) *page {
	p := &page{records: records}
	for _, g := range records {
		p.newest = max(p.newest, g.Version)
	}
	return p
}

func (t *table) len() int { return t.count }

// pageOf returns the index of the only page that may hold id: the last one that
// begins at or before it, or the first one. It is -1 for an empty table.
func (t *table) pageOf(id raftyard.GroupID) int {
	if len(t.pages) == 0 {
		return -1
	}
	after := sort.Search(len(t.pages), func(i int) bool { return t.pages[i].records[0].ID > id })
	return max(after-1, 0)
}

func (p *page) find(id raftyard.GroupID) (int, bool) {
	return slices.BinarySearchFunc(p.records, id, func(g *Group, id raftyard.GroupID) int {
		return cmp.Compare(g.ID, id)
	})
}

func (t *table) get(id raftyard.GroupID) (*Group, bool) {
	at := t.pageOf(id)
	if at < 0 {
		return nil, false
	}
	i, ok := t.pages[at].find(id)
	if !ok {
		return nil, false
	}
	return t.pages[at].records[i], true
}

// after iterates over the records whose ids are greater than id.
func (t *table) after(id raftyard.GroupID) iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		at := t.pageOf(id)
		if at < 0 {
			return
		}
		i, found := t.pages[at].find(id)
		if found {
			i++
		}
		for ; at < len(t.pages); at++ {
			for _, g := range t.pages[at].records[i:] {
				if !yield(g) {
					return
				}
			}
			i = 0
		}
	}
}

// since iterates over the records whose versions are greater than version. It
// looks only into pages that have one.
func (t *table) since(version uint64) iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		for _, p := range t.pages {
			if p.newest <= version {
				continue
			}
			for _, g := range p.records {
				if g.Version > version && !yield(g) {
					return
				}
			}
		}
	}
}

// put returns a table with g added or put in the place of the record with its id.
func (t *table) put(g *Group) table {
	next := table{count: t.count, deleted: t.deleted}
	if g.Deleted {
		next.deleted++
	}
	at := t.pageOf(g.ID)
	if at < 0 {
		next.count++
		next.pages = []*page{newPage([]*Group{g})}
		return next
	}
	old := t.pages[at].records
	i, found := t.pages[at].find(g.ID)
	if found {
		if old[i].Deleted {
			next.deleted--
		}
		records := slices.Clone(old)
		records[i] = g
		next.pages = slices.Clone(t.pages)
		next.pages[at] = newPage(records)
		return next
	}
	next.count++
	records := make([]*Group, 0, len(old)+1)
	records = append(records, old[:i]...)
	records = append(records, g)
	records = append(records, old[i:]...)
	next.pages = replacePage(t.pages, at, split(records, at == len(t.pages)-1 && i == len(old)))
	return next
}

// remove returns a table without the record of id, which must be there.
func (t *table) remove(id raftyard.GroupID) table {
	at := t.pageOf(id)
	records := t.pages[at].records
	i, _ := t.pages[at].find(id)
	next := table{count: t.count - 1, deleted: t.deleted}
	if records[i].Deleted {
		next.deleted--
	}
	records = slices.Delete(slices.Clone(records), i, i+1)
	next.pages = slices.Clone(t.pages)
	switch {
	case len(records) == 0:
		next.pages = slices.Delete(next.pages, at, at+1)
	case at+1 < len(t.pages) && len(records)+len(t.pages[at+1].records) <= mergedRecords:
		records = append(records, t.pages[at+1].records...)
		next.pages = slices.Replace(next.pages, at, at+2, newPage(records))
	case at > 0 && len(records)+len(t.pages[at-1].records) <= mergedRecords:
		records = slices.Concat(t.pages[at-1].records, records)
		next.pages = slices.Replace(next.pages, at-1, at+1, newPage(records))
	default:
		next.pages[at] = newPage(records)
	}
	return next
}

// split makes one page of records, or two if they do not fit in one. Ids are
// mostly given out in rising order: a page that overflows at the very end of the
// table stays full, instead of every page staying half empty for ever.
func split(records []*Group, atEnd bool) []*page {
	if len(records) <= pageRecords {
		return []*page{newPage(records)}
	}
	cut := len(records) / 2
	if atEnd {
		cut = len(records) - 1
	}
	return []*page{newPage(records[:cut:cut]), newPage(records[cut:])}
}

func replacePage(pages []*page, at int, by []*page) []*page {
	next := make([]*page, 0, len(pages)+len(by)-1)
	next = append(next, pages[:at]...)
	next = append(next, by...)
	return append(next, pages[at+1:]...)
}

// last returns the record with the greatest id.
func (t *table) last() (*Group, bool) {
	if len(t.pages) == 0 {
		return nil, false
	}
	records := t.pages[len(t.pages)-1].records
	return records[len(records)-1], true
}

// push adds g, whose id is greater than all others, in place. It is for a table
// under construction, which nobody else has seen.
func (t *table) push(g *Group) {
	if n := len(t.pages); n == 0 || len(t.pages[n-1].records) == pageRecords {
		t.pages = append(t.pages, &page{records: make([]*Group, 0, pageRecords)})
	}
	p := t.pages[len(t.pages)-1]
	p.records = append(p.records, g)
	p.newest = max(p.newest, g.Version)
	t.count++
	if g.Deleted {
		t.deleted++
	}
}
