package transport

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard/internal/wire"
)

func readFrames(r io.Reader, limit int) (bodies [][]byte, err error) {
	fr := frameReader{r: r, limit: limit}
	for {
		_, body, err := fr.read(nil)
		if err != nil {
			return bodies, err
		}
		bodies = append(bodies, body)
	}
}

func TestFramesRoundTrip(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	var stream []byte
	want := [][]byte{{}, []byte("one"), large, []byte("two")}
	for _, body := range want {
		stream = appendFrame(stream, frameChunk, body)
	}
	for name, r := range map[string]io.Reader{
		"at once":  bytes.NewReader(stream),
		"in parts": iotest.HalfReader(bytes.NewReader(stream)),
	} {
		got, err := readFrames(r, len(large))
		if !errors.Is(err, io.EOF) || len(got) != len(want) {
			t.Fatalf("%s: %d frames, %v, want %d, EOF", name, len(got), err, len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%s: frame %d of %d bytes differs", name, i, len(want[i]))
			}
		}
	}
}

func TestFrameReaderUsesTheBuffer(t *testing.T) {
	stream := appendFrame(nil, framePong, []byte("pong"))
	buf := make([]byte, 0, 8)
	fr := frameReader{r: bytes.NewReader(stream), limit: 100}
	if _, body, err := fr.read(buf); err != nil || &body[0] != &buf[:1][0] {
		t.Errorf("read = %q, %v, want it in the buffer", body, err)
	}
}

func TestFrameReaderRefuses(t *testing.T) {
	frame := appendFrame(nil, frameEnvelopes, []byte("some body"))
	for i := range frame {
		for bit := range 8 {
			damaged := bytes.Clone(frame)
			damaged[i] ^= 1 << bit
			if got, err := readFrames(bytes.NewReader(damaged), 100); len(got) > 0 || err == nil {
				t.Fatalf("bit %d of byte %d flipped: %d frames, %v", bit, i, len(got), err)
			}
		}
	}
	for n := 1; n < len(frame); n++ {
		_, err := readFrames(bytes.NewReader(frame[:n]), 100)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("first %d bytes: %v, want ErrUnexpectedEOF", n, err)
		}
	}
	if _, err := readFrames(bytes.NewReader(frame), 8); !errors.Is(err, errProtocol) {
		t.Errorf("over the limit: %v, want errProtocol", err)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, framePing, make([]byte, pingBody)), frameEnd, nil))
	f.Fuzz(func(t *testing.T, stream []byte) {
		bodies, err := readFrames(bytes.NewReader(stream), 1<<20)
		if err == nil {
			t.Fatal("no error at the end")
		}
		total := 0
		for _, b := range bodies {
			total += frameHeader + len(b)
		}
		if total > len(stream) {
			t.Fatalf("%d bytes of frames in %d", total, len(stream))
		}
	})
}

func testProcess() Identity {
	return Identity{
		Cluster: uuid.UUID{0xc1}, Node: 1, Store: uuid.UUID{0x51}, Boot: 300,
		Process: uuid.UUID{0x1d}, Lineage: "starts",
	}
}

func testHello() hello {
	return hello{
		minVersion: 1, maxVersion: 3, class: ClassRequest, from: testProcess(),
		expect: 2, addr: "10.0.0.2:8701", maxFrame: 16 << 20, at: "10.0.0.1:8701",
	}
}

func testWelcome() welcome {
	return welcome{version: 1, from: testProcess(), maxFrame: 16 << 20, at: "10.0.0.1:8701"}
}

func TestHandshakeRoundTrip(t *testing.T) {
	h := testHello()
	body := encodeHello(&h)
	later := append(bytes.Clone(body), "a field of a later version"...)
	for _, b := range [][]byte{body, later} {
		if got, err := decodeHello(b); err != nil || got != h {
			t.Errorf("decodeHello = %+v, %v, want %+v", got, err, h)
		}
	}
	w := testWelcome()
	if got, err := decodeWelcome(encodeWelcome(&w)); err != nil || got != w {
		t.Errorf("decodeWelcome = %+v, %v, want %+v", got, err, w)
	}
	ref := refuse(RefusedStale, "text %d", 1)
	if got, err := decodeRefusal(encodeRefusal(ref)); err != nil || *got != *ref {
		t.Errorf("decodeRefusal = %+v, %v, want %+v", got, err, ref)
	}
	// Nodes of earlier releases show no starts, and those of the first do not say where
	// they are.
	second := len(body) - 1 - len(h.from.Lineage)
	h.from.Lineage, w.from.Lineage = "", ""
	if got, err := decodeHello(body[:second]); err != nil || got != h {
		t.Errorf("decodeHello of an earlier release = %+v, %v, want %+v", got, err, h)
	}
	answer := encodeWelcome(&w)
	if got, err := decodeWelcome(answer[:len(answer)-1]); err != nil || got != w {
		t.Errorf("decodeWelcome of an earlier release = %+v, %v, want %+v", got, err, w)
	}
	first := second - 1 - len(h.at)
	h.at = ""
	if got, err := decodeHello(body[:first]); err != nil || got != h {
		t.Errorf("decodeHello of a first release = %+v, %v, want %+v", got, err, h)
	}
	body = encodeWelcome(&w)
	body = body[:len(body)-2-len(w.at)]
	w.at = ""
	if got, err := decodeWelcome(body); err != nil || got != w {
		t.Errorf("decodeWelcome of a first release = %+v, %v, want %+v", got, err, w)
	}
}

func TestHelloThatIsCutOff(t *testing.T) {
	h := testHello()
	body := encodeHello(&h)
	second := len(body) - 1 - len(h.from.Lineage) // as long as one of an earlier release
	first := second - 1 - len(h.at)               // and of a first one
	for n := range body {
		if n == first || n == second {
			continue
		}
		if _, err := decodeHello(body[:n]); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("decodeHello of the first %d bytes = %v, want ErrMalformed", n, err)
		}
	}
}

func TestHelloIsChecked(t *testing.T) {
	for name, change := range map[string]func(*hello){
		"class 0":      func(h *hello) { h.class = 0 },
		"class 4":      func(h *hello) { h.class = 4 },
		"node 0":       func(h *hello) { h.from.Node = 0 },
		"small frames": func(h *hello) { h.maxFrame = minFrameBytes - 1 },
		"long lineage": func(h *hello) { h.from.Lineage = strings.Repeat("a", MaxLineageBytes+1) },
	} {
		h := testHello()
		change(&h)
		if _, err := decodeHello(encodeHello(&h)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: decodeHello = %v, want ErrMalformed", name, err)
		}
	}
}

// TestTellsNoEndlessAddress: what is remembered of a node is bounded.
func TestTellsNoEndlessAddress(t *testing.T) {
	endless := strings.Repeat("a", maxAddress+1)
	h, w := testHello(), testWelcome()
	h.at, w.at, h.from.Lineage, w.from.Lineage = "", "", "", ""
	hello, welcome := encodeHello(&h), encodeWelcome(&w)
	hello = wire.AppendString(hello[:len(hello)-2], endless)
	welcome = wire.AppendString(welcome[:len(welcome)-2], endless)
	if _, err := decodeHello(hello); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("decodeHello = %v, want ErrMalformed", err)
	}
	if _, err := decodeWelcome(welcome); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("decodeWelcome = %v, want ErrMalformed", err)
	}
	if err := (Config{Advertise: endless}).Validate(); !strings.Contains(err.Error(), "Advertise") {
		t.Errorf("Validate = %v, want an error about Advertise", err)
	}
}

func TestCommonVersion(t *testing.T) {
	for _, tt := range []struct{ low, high, want uint64 }{
		{1, 1, 1}, {1, 9, 1}, {0, 1, 1}, {2, 9, 0}, {0, 0, 0}, {5, 1, 0},
	} {
		if got := commonVersion(tt.low, tt.high); got != tt.want {
			t.Errorf("commonVersion(%d, %d) = %d, want %d", tt.low, tt.high, got, tt.want)
		}
	}
}

func FuzzHandshake(f *testing.F) {
	h := testHello()
	w := testWelcome()
	f.Add(encodeHello(&h))
	f.Add(encodeWelcome(&w))
	f.Add(encodeRefusal(refuse(RefusedClone, "text")))
	f.Fuzz(func(t *testing.T, body []byte) {
		if h, err := decodeHello(body); err == nil {
			if again, err := decodeHello(encodeHello(&h)); err != nil || again != h {
				t.Fatalf("hello %+v becomes %+v, %v", h, again, err)
			}
		}
		if w, err := decodeWelcome(body); err == nil {
			if again, err := decodeWelcome(encodeWelcome(&w)); err != nil || again != w {
				t.Fatalf("welcome %+v becomes %+v, %v", w, again, err)
			}
		}
		if _, err := decodeRefusal(body); err != nil && !errors.Is(err, wire.ErrMalformed) {
			t.Fatal(err)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(appendRequest(nil, &request{id: 7, left: 1e9, kind: 3, body: []byte("body")}))
	f.Add(appendCancel(nil, 7))
	for _, err := range []error{nil, io.EOF, ErrBusy, &RemoteError{Code: 9, Body: []byte("b")}} {
		a := answerOf([]byte("body"), err)
		f.Add(appendAnswer(wire.AppendUvarint(nil, 7), &a))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := decodeRequest(body); err == nil {
			again, err := decodeRequest(appendRequest(nil, &r))
			if err != nil || again.id != r.id || again.left != r.left || again.kind != r.kind ||
				!bytes.Equal(again.body, r.body) {
				t.Fatalf("request %+v becomes %+v, %v", r, again, err)
			}
		}
		if id, a, err := decodeAnswer(body); err == nil {
			second, again, err := decodeAnswer(appendAnswer(wire.AppendUvarint(nil, id), &a))
			if err != nil || second != id || again.status != a.status ||
				again.err.Message != a.err.Message || !bytes.Equal(again.body, a.body) {
				t.Fatalf("answer %+v becomes %+v, %v", a, again, err)
			}
			if _, err := a.result(); a.status != answerOK && err == nil {
				t.Fatalf("answer %+v is no error", a)
			}
		}
		if id, err := decodeCancel(body); err == nil {
			if again, err := decodeCancel(appendCancel(nil, id)); err != nil || again != id {
				t.Fatalf("cancel %d becomes %d, %v", id, again, err)
			}
		}
	})
}

func FuzzSnapshotFrames(f *testing.F) {
	f.Add(appendChunk(nil, 300, []byte("data")), uint64(300))
	f.Add(appendEnd(nil, &snapshotEnd{size: 300}), uint64(0))
	f.Add(appendAbort(nil, "disk error"), uint64(0))
	f.Fuzz(func(t *testing.T, body []byte, offset uint64) {
		if data, err := decodeChunk(body, offset); err == nil {
			if again := appendChunk(nil, offset, data); !bytes.Equal(again, body) {
				t.Fatalf("chunk %x becomes %x", body, again)
			}
		}
		if e, err := decodeEnd(body); err == nil {
			if again, err := decodeEnd(appendEnd(nil, &e)); err != nil || again != e {
				t.Fatalf("end %+v becomes %+v, %v", e, again, err)
			}
		}
		if why, err := decodeAbort(body); err == nil && len(why) > len(body) {
			t.Fatalf("abort of %d bytes in %d", len(why), len(body))
		}
		if _, err := decodeVerdict(body); err != nil && !errors.Is(err, wire.ErrMalformed) {
			t.Fatal(err)
		}
		from := Identity{Node: 1}
		if _, _, err := decodeSnapshotHead(body, from, 2); err == nil && len(body) < minEnvelope {
			t.Fatalf("a head in %d bytes", len(body))
		}
	})
}
