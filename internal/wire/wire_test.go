package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	id := [16]byte{1, 2, 3, 15: 9}
	var b []byte
	b = AppendUvarint(b, 300)
	b = AppendBytes(b, []byte("value"))
	b = AppendString(b, "name")
	b = AppendID(b, id)
	b = AppendBool(b, true)
	b = AppendUvarint(b, 2)
	b = AppendUvarint(b, 7)
	b = AppendUvarint(b, 8)

	r := NewReader(b)
	if got := r.Uvarint(); got != 300 {
		t.Errorf("Uvarint = %d, want 300", got)
	}
	if got := r.Bytes(); !bytes.Equal(got, []byte("value")) {
		t.Errorf("Bytes = %q, want value", got)
	}
	if got := r.String(); got != "name" {
		t.Errorf("String = %q, want name", got)
	}
	if got := r.ID(); got != id {
		t.Errorf("ID = %x, want %x", got, id)
	}
	if got := r.Bool(); !got {
		t.Error("Bool = false, want true")
	}
	if got := r.Count(1); got != 2 {
		t.Errorf("Count = %d, want 2", got)
	}
	if got := []uint64{r.Uvarint(), r.Uvarint()}; got[0] != 7 || got[1] != 8 {
		t.Errorf("elements = %d, want 7 and 8", got)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func TestSizes(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 1 << 14, 1<<63 + 5} {
		if got, want := SizeUvarint(v), len(AppendUvarint(nil, v)); got != want {
			t.Errorf("SizeUvarint(%d) = %d, want %d", v, got, want)
		}
	}
	p := make([]byte, 200)
	if got, want := SizeBytes(len(p)), len(AppendBytes(nil, p)); got != want {
		t.Errorf("SizeBytes(200) = %d, want %d", got, want)
	}
}

func TestReaderRefusesMalformedInput(t *testing.T) {
	huge := AppendUvarint(nil, 1<<62)
	tests := []struct {
		name string
		read func(r *Reader)
		in   []byte
	}{
		{name: "empty varint", read: func(r *Reader) { r.Uvarint() }},
		{
			name: "endless varint", read: func(r *Reader) { r.Uvarint() },
			in: bytes.Repeat([]byte{0x80}, 12),
		},
		{name: "length beyond the input", read: func(r *Reader) { r.Bytes() }, in: huge},
		{name: "count beyond the input", read: func(r *Reader) { r.Count(1) }, in: huge},
		{name: "short id", read: func(r *Reader) { r.ID() }, in: make([]byte, 15)},
		{name: "boolean 2", read: func(r *Reader) { r.Bool() }, in: []byte{2}},
		{name: "no byte", read: func(r *Reader) { r.Byte() }},
		{name: "left over", read: func(*Reader) {}, in: []byte{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(tt.in)
			tt.read(r)
			if err := r.Close(); !errors.Is(err, ErrMalformed) {
				t.Errorf("Close = %v, want ErrMalformed", err)
			}
			// Nothing may be read after an error.
			if got := r.Uvarint(); got != 0 {
				t.Errorf("Uvarint after the error = %d, want 0", got)
			}
		})
	}
}

func FuzzReader(f *testing.F) {
	f.Add(AppendString(AppendUvarint(nil, 1<<40), "x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(in)
		for range r.Count(2) {
			r.Uvarint()
			if n := len(r.Bytes()); n > len(in) {
				t.Fatalf("read %d bytes of %d", n, len(in))
			}
		}
		r.Bool()
		r.ID()
		if err := r.Close(); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("Close = %v, want ErrMalformed", err)
		}
	})
}
