package badgerdb

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// appendRaw appends one entry as Badger does.
func appendRaw(b []byte, meta byte, version uint64, key, value string) []byte {
	at := len(b)
	b = append(b, meta, 0)
	b = binary.AppendUvarint(b, uint64(len(key)+8))
	b = binary.AppendUvarint(b, uint64(len(value)))
	b = binary.AppendUvarint(b, 0)
	b = append(b, key...)
	b = binary.BigEndian.AppendUint64(b, ^version)
	b = append(b, value...)
	sum := crc32.Checksum(b[at:], crc32.MakeTable(crc32.Castagnoli))
	return binary.BigEndian.AppendUint32(b, sum)
}

func appendTxn(b []byte, version uint64, key, value string) []byte {
	b = appendRaw(b, bitTxn, version, key, value)
	return appendEnd(b, version)
}

func appendEnd(b []byte, version uint64) []byte {
	return appendRaw(b, bitFinTxn, version, "!badger!txn", strconv.FormatUint(version, 10))
}

func TestTornEndIsToldFromDamage(t *testing.T) {
	header := make([]byte, walHeaderSize)
	good := appendTxn(appendTxn(header, 5, "a", "x"), 6, "b", "y")
	clip := slices.Clip[[]byte]
	good = clip(good)
	bad := func(b []byte) []byte { return append(clip(b), "\x40\x00garbage that is no entry"...) }
	tests := []struct {
		name string
		log  []byte
		last uint64 // of the whole transactions
		want string // in the error
	}{
		{name: "empty", log: header},
		{name: "zeros", log: append(clip(header), make([]byte, 1000)...)},
		{name: "whole", log: good, last: 6},
		{name: "zeros behind", log: append(good, make([]byte, 1000)...), last: 6},
		{name: "garbage behind", log: bad(good), last: 6},
		{name: "no end marker", log: appendRaw(good, bitTxn, 7, "c", "z"), last: 6},
		{name: "front torn, rest there", log: appendTxn(bad(good), 7, "c", "z"), last: 6},
		{
			name: "middle torn", last: 6,
			log: appendEnd(bad(appendRaw(good, bitTxn, 7, "c", "z")), 7),
		},
		{name: "first transaction torn", log: appendTxn(bad(header), 5, "c", "z")},
		{
			name: "two transactions behind",
			log:  appendTxn(appendTxn(bad(good), 7, "c", "z"), 8, "d", ""),
			last: 6, want: "transaction 8 follows",
		},
		{
			name: "one missing", last: 6, want: "transaction 8 follows",
			log: appendTxn(bad(good), 8, "d", "z"),
		},
		{name: "one skipped", log: appendTxn(good, 8, "d", "z"), last: 6, want: "8 follows 6"},
		{
			name: "begun anew before the end", last: 6, want: "no end before",
			log: appendTxn(appendRaw(good, bitTxn, 7, "c", "z"), 8, "d", "z"),
		},
		{
			name: "a value that is a log of long ago", last: 6,
			log: bad(appendRaw(bad(good), bitTxn, 7, "c", string(appendTxn(nil, 3, "old", "old")))),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := replay(tt.log)
			if err == nil {
				err = checkTail(tt.log, c)
			}
			if c.last != tt.last {
				t.Errorf("last = %d, want %d", c.last, tt.last)
			}
			if tt.want == "" {
				if err != nil {
					t.Errorf("error = %v, want none", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestLongestThatMayStay: of whole transactions, and of keys that are not too long, since a file of
// the journal is kept for such values only.
func TestLongestThatMayStay(t *testing.T) {
	size := func(n int) string { return strings.Repeat("v", n) }
	long := strings.Repeat("k", maxValueKey+1)
	header := make([]byte, walHeaderSize)
	for _, tt := range []struct {
		name string
		log  []byte
		want int
	}{
		{"nothing", header, 0},
		{"one", appendTxn(header, 5, "a", size(300)), 300},
		{"the first", appendTxn(appendTxn(header, 5, "a", size(300)), 6, "a", size(7)), 300},
		{"the second", appendTxn(appendTxn(header, 5, "a", size(7)), 6, "a", size(300)), 300},
		{"of a key that is too long", appendTxn(header, 5, long, size(300)), 0},
		{"of the longest key", appendTxn(header, 5, long[1:], size(300)), 300},
		{"torn", appendRaw(appendTxn(header, 5, "a", size(7)), bitTxn, 6, "a", size(300)), 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if c, err := replay(tt.log); err != nil || c.longest != tt.want {
				t.Errorf("%d, %v, want %d", c.longest, err, tt.want)
			}
		})
	}
}

func FuzzReplay(f *testing.F) {
	f.Add(appendTxn(appendTxn(make([]byte, walHeaderSize), 5, "a", "x"), 6, "b", "y"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < walHeaderSize {
			return
		}
		c, err := replay(b)
		if err == nil {
			err = checkTail(b, c)
		}
		if c.end < walHeaderSize || c.end > int64(len(b)) || c.first > c.last && c.last != 0 {
			t.Fatalf("%+v, %v", c, err)
		}
	})
}
