package badgerdb

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestPointerFormat compares pointers with what they were when the format was made.
func TestPointerFormat(t *testing.T) {
	datadriven.RunTest(t, "testdata/pointer/format",
		func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "write":
				var file, offset, size uint64
				d.ScanArgs(t, "file", &file)
				d.ScanArgs(t, "offset", &offset)
				d.ScanArgs(t, "size", &size)
				p := place{file: uint32(file), offset: uint32(offset), size: uint32(size)}
				return fmt.Sprintf("%x\n", p.append(nil))
			case "read":
				b, err := hex.DecodeString(strings.TrimSpace(d.Input))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				p, err := readPointer(b)
				if err != nil {
					return fmt.Sprintln(err)
				}
				return fmt.Sprintf("%+v\n", p)
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
				return ""
			}
		})
}

// TestPointerIsBelievedWithItsEntryOnly: whatever else is in the place is damage, and not a value.
func TestPointerIsBelievedWithItsEntryOnly(t *testing.T) {
	const offset = 100
	value := strings.Repeat("v", 2000)
	entry := appendEntry(nil, entryMeta{meta: bitTxn}, 5, []byte("key"), []byte(value))
	content := append(make([]byte, offset), entry...)
	content = appendEntry(content, entryMeta{meta: bitTxn}, 5, []byte("next"), []byte(value))
	right := place{file: 7, offset: offset, size: uint32(len(entry))}
	flipped := func(at int) []byte {
		b := bytes.Clone(content)
		b[offset+at] ^= 1
		return b
	}
	type reading struct {
		at      place
		key     string
		version uint64
		content []byte
	}
	for name, change := range map[string]func(*reading){
		"another key":     func(r *reading) { r.key = "kez" },
		"shorter key":     func(r *reading) { r.key = "ke" },
		"another version": func(r *reading) { r.version++ },
		"before it":       func(r *reading) { r.at.offset-- },
		"behind it":       func(r *reading) { r.at.offset++ },
		"the next":        func(r *reading) { r.at.offset += r.at.size },
		"too short":       func(r *reading) { r.at.size-- },
		"too long":        func(r *reading) { r.at.size++ },
		"nothing":         func(r *reading) { r.at.size = 0 },
		"behind the end":  func(r *reading) { r.at.offset = 1 << 31 },
		"cut off":         func(r *reading) { r.content = content[:offset+len(entry)-1] },
		"zeros":           func(r *reading) { r.content = make([]byte, len(content)) },
		"flipped first":   func(r *reading) { r.content = flipped(0) },
		"flipped value":   func(r *reading) { r.content = flipped(len(entry) / 2) },
		"flipped sum":     func(r *reading) { r.content = flipped(len(entry) - 1) },
		"no file":         func(r *reading) { r.content = nil },
		"right":           func(*reading) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := reading{right, "key", 5, content}
			change(&r)
			reader := valueReader{files: func(id uint32, _ uint64) (io.ReaderAt, string, error) {
				if id != right.file || r.content == nil {
					return nil, "", fmt.Errorf("%w: no file %d", ErrDamaged, id)
				}
				return bytes.NewReader(r.content), "the file", nil
			}}
			got, err := reader.read(r.at.append(nil), []byte(r.key), r.version)
			if name == "right" {
				if err != nil || string(got) != value {
					t.Errorf("%.20q (%d), %v", got, len(got), err)
				}
				return
			}
			if !errors.Is(err, ErrDamaged) || got != nil {
				t.Errorf("%.20q (%d), %v, want %v", got, len(got), err, ErrDamaged)
			}
		})
	}
}
