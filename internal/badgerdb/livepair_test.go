package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
)

// A pairFile is a file of values, and what is in it.
type pairFile struct {
	content []byte
	pairs   []livePair
}

// newPairFile returns a file with values of some sizes.
func newPairFile(sizes ...int) (f pairFile) {
	f.content = make([]byte, walHeaderSize)
	for n, size := range sizes {
		key := fmt.Appendf(nil, "key-%04d", n)
		at, value := len(f.content), bytes.Repeat([]byte{byte(n)}, size)
		f.content = appendEntry(f.content, entryMeta{meta: bitTxn}, 5, key, value)
		where := place{file: 7, offset: uint32(at), size: uint32(len(f.content) - at)}
		f.pairs = append(f.pairs, livePair{where, key, value})
	}
	return f
}

// all counts every pair.
func all([]byte, place) bool { return true }

// hurtDisk is a disk that does not give back one byte of what it has.
type hurtDisk struct {
	*bytes.Reader

	at int64
}

func (d hurtDisk) ReadAt(b []byte, from int64) (int, error) {
	if from <= d.at && d.at < from+int64(len(b)) {
		return 0, syscall.EIO
	}
	return d.Reader.ReadAt(b, from)
}

// TestOnlyWhatIsDamagedIsLost: of a file that is not all there, or cannot all be read, the other
// pairs are.
func TestOnlyWhatIsDamagedIsLost(t *testing.T) {
	f := newPairFile(2000, 50_000, 1500, 3*readPiece, 1024, 2*readPiece, 1024)
	middle := func(n int) int64 { return int64(f.pairs[n].at.offset + f.pairs[n].at.size/2) }
	flipped := func(n int) []byte {
		b := bytes.Clone(f.content)
		b[middle(n)] ^= 1
		return b
	}
	another := bytes.Clone(f.content)
	copy(another[f.pairs[2].at.offset:],
		appendEntry(nil, entryMeta{meta: bitTxn}, 5, []byte("key-xxxx"), make([]byte, 1500)))
	for _, tt := range []struct {
		name string
		file io.ReaderAt
		lost []int
		what error
	}{
		{"whole", bytes.NewReader(f.content), nil, nil},
		{"flipped first", bytes.NewReader(flipped(0)), []int{0}, nil},
		{"flipped", bytes.NewReader(flipped(3)), []int{3}, nil},
		{"another key", bytes.NewReader(another), []int{2}, nil},
		{"shorter", bytes.NewReader(f.content[:middle(4)]), []int{4, 5, 6}, nil},
		{"empty", bytes.NewReader(nil), []int{0, 1, 2, 3, 4, 5, 6}, nil},
		{"hurt first", hurtDisk{bytes.NewReader(f.content), middle(0)}, []int{0}, syscall.EIO},
		{"hurt", hurtDisk{bytes.NewReader(f.content), middle(3)}, []int{3}, syscall.EIO},
		{
			"hurt and shorter",
			hurtDisk{bytes.NewReader(f.content[:middle(6)]), middle(2)},
			[]int{2, 6},
			syscall.EIO,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := moving{pairs: f.pairs, counts: all, file: pairReader{file: tt.file}}
			batch, err := m.next(len(f.content))
			if err != nil || !errors.Is(m.what, tt.what) {
				t.Fatalf("%v, %v, want %v", err, m.what, tt.what)
			}
			for n, want := range f.pairs {
				same := func(p livePair) bool { return bytes.Equal(p.key, want.key) }
				lost, i := slices.ContainsFunc(m.lost, same), slices.IndexFunc(batch, same)
				if lost != slices.Contains(tt.lost, n) || lost == (i >= 0) ||
					!lost && !bytes.Equal(batch[i].value, want.value) {
					t.Errorf("pair %d is lost: %t, and read: %t", n, lost, i >= 0)
				}
			}
		})
	}
}

// TestFileIsReadPieceByPiece: who writes the pairs of a file anew has little of it in memory, and
// does not read it again for each pair.
func TestFileIsReadPieceByPiece(t *testing.T) {
	const limit, longest = 256 << 10, 100 << 10
	var sizes []int
	for n := range 400 {
		sizes = append(sizes, minValue+n*7919%(longest-minValue-1000))
	}
	f := newPairFile(sizes...)
	file := &countedReads{ReaderAt: bytes.NewReader(f.content)}
	m := moving{pairs: f.pairs, counts: all, file: pairReader{file: file}}
	read := 0
	for len(m.pairs) > 0 {
		batch, err := m.next(limit)
		if err != nil || len(m.lost) > 0 {
			t.Fatalf("%d are lost, %v", len(m.lost), err)
		}
		bytes := 0
		for _, p := range batch {
			bytes += len(p.value)
		}
		if piece := cap(m.file.piece); piece > longest || bytes > limit || len(batch) == 0 {
			t.Fatalf("%d pairs with %d bytes and a piece of %d are in memory, want %d and %d",
				len(batch), bytes, piece, limit, longest)
		}
		read += len(batch)
	}
	// What is left of a piece behind its last whole pair is read with the next one.
	if read != len(sizes) || file.bytes > 2*len(f.content) {
		t.Errorf("%d of %d pairs, for which %d bytes were read, of %d",
			read, len(sizes), file.bytes, len(f.content))
	}
}

// countedReads counts the bytes that were read.
type countedReads struct {
	io.ReaderAt

	bytes int
}

func (c *countedReads) ReadAt(b []byte, from int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, from)
	c.bytes += n
	return n, err
}

// TestPairsOfOneFile: who asks for the pairs of a file gets all of them, in their order, while
// others write to other files.
func TestPairsOfOneFile(t *testing.T) {
	v := noValues(t.TempDir())
	for id := range uint32(3) {
		v.files[id] = new(valueFile)
	}
	key := func(id uint32, n int) valueKey {
		k, _ := valueKeyOf(fmt.Appendf(nil, "%d-%d", id, n))
		return k
	}
	const pairs = 5 * pairsAtOnce
	for n := range pairs {
		for id := range uint32(2) {
			v.addLocked(key(id, n), place{file: id, offset: uint32(n), size: minValue})
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			v.mu.Lock()
			v.dropLocked(key(0, n%pairs), uint64(n))
			v.addLocked(key(2, n), place{file: 2, offset: uint32(n), size: minValue})
			v.mu.Unlock()
		}
	}()
	got := v.pairsIn(1)
	close(stop)
	<-done
	if len(got) != pairs {
		t.Fatalf("there are %d pairs, want %d", len(got), pairs)
	}
	for n, p := range got {
		if k := key(1, n); p.at.offset != uint32(n) || !bytes.Equal(p.key, k.bytes()) {
			t.Errorf("pair %d is %s at %d", n, p.key, p.at.offset)
		}
	}
}
