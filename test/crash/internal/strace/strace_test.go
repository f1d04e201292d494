package strace

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard/internal/wire"
)

// script makes a trace: each line begins with a thread, and gets the next
// millisecond as its time.
func script(lines ...string) string {
	var b strings.Builder
	for i, text := range lines {
		thread, call, _ := strings.Cut(text, " ")
		fmt.Fprintf(&b, "%s 100.%06d %s\n", thread, 1000*i, call)
	}
	return b.String()
}

func mustParse(t *testing.T, text string) *Trace {
	t.Helper()
	tr, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func mustCommit(t *testing.T, tr *Trace) []Commit {
	t.Helper()
	commits, err := tr.Commits(isLog)
	if err != nil {
		t.Fatal(err)
	}
	return commits
}

func isLog(path string) bool { return strings.HasPrefix(path, "/d/log/") }

// What strace writes, in the pieces that the tests put together.
const (
	writeLog   = `3 pwrite64(15</d/log/00001.jnl>, "..put mark-1..", 14, 4096) = 14 <0.000010>`
	writeOld   = `3 pwrite64(15</d/log/00001.jnl>, "..put mark-0..", 14, 0) = 14 <0.000010>`
	writeNew   = `3 pwrite64(17</d/log/00002.jnl>, "..put mark-2..", 14, 0) = 14 <0.000010>`
	writeState = `3 pwrite64(16</d/state/00001.jnl>, "..mark-1..", 10, 0) = 10 <0.000010>`
	writeBegin = `3 pwrite64(15</d/log/00001.jnl>, "..put mark-1..", 14, 4096 <unfinished ...>`
	writeEnd   = `3 <... pwrite64 resumed>) = 14 <0.002000>`
	request    = `2 read(9<TCP:[127.0.0.1:80->127.0.0.1:90]>, "PUT /x HTTP/1.1\r\n\r\nmark-1", ` +
		`4096) = 25 <0.000010>`
	answer = `2 write(9<TCP:[127.0.0.1:80->127.0.0.1:90]>, "HTTP/1.1 201 Created\r\n\r\n", 24) ` +
		`= 24 <0.000010>`
	syncLog   = `3 fdatasync(15</d/log/00001.jnl>) = 0 <0.000200>`
	syncNew   = `3 fdatasync(17</d/log/00002.jnl>) = 0 <0.000200>`
	syncState = `3 fdatasync(16</d/state/00001.jnl>) = 0 <0.000200>`
	syncBegin = `4 fdatasync(15</d/log/00001.jnl> <unfinished ...>`
	syncEnd   = `4 <... fdatasync resumed>) = 0 <0.002000>`
)

func TestAnswerAfterItsSync(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  bool
	}{
		{"synced", []string{request, writeLog, syncLog, answer}, true},
		{"synced while others run", []string{
			request, writeLog, syncBegin, writeState, syncState, syncEnd, answer,
		}, true},
		{"the answer comes first", []string{request, answer, writeLog, syncLog}, false},
		{"the answer comes before the sync", []string{request, writeLog, answer, syncLog}, false},
		{"no sync", []string{request, writeLog, answer}, false},
		{"nothing written", []string{request, syncLog, answer}, false},
		{"another command", []string{request, writeOld, syncLog, answer}, false},
		{"with another command, and then again", []string{
			request, writeOld, syncLog, writeLog, answer, syncLog,
		}, false},
		{"another database", []string{request, writeState, syncState, answer}, false},
		{"another file is synced", []string{
			request, writeLog, writeNew, syncNew, answer,
		}, false},
		{"the answer comes during the sync", []string{
			request, writeLog, syncBegin, answer, syncEnd,
		}, false},
		{"the sync began before", []string{request, syncBegin, writeLog, syncEnd, answer}, false},
		{"the sync began while it was written", []string{
			request, writeBegin, syncBegin, writeEnd, syncEnd, answer,
		}, false},
		{"it was before", []string{writeLog, syncLog, request, answer}, false},
		{"it was written before", []string{writeLog, request, syncLog, answer}, false},
		{"the sync never ends", []string{request, writeLog, syncBegin, answer}, false},
		{"the sync fails", []string{
			request, writeLog,
			`3 fdatasync(15</d/log/00001.jnl>) = -1 EIO (Input/output error) <0.000200>`, answer,
		}, false},
		{"the request is read in two parts", []string{
			`2 read(9<TCP:[127.0.0.1:80->127.0.0.1:90]>, "PUT /x HTTP/1.1\r\n\r\nma", ` +
				`4096) = 21 <0.000010>`,
			writeLog, syncLog,
			`2 read(9<TCP:[127.0.0.1:80->127.0.0.1:90]>, "rk-1", 4096) = 4 <0.000010>`,
			answer,
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := mustParse(t, script(tt.lines...))
			answers, err := tr.Answers("127.0.0.1:80", []string{"mark-1"})
			if err != nil {
				t.Fatal(err)
			}
			commits := With(mustCommit(t, tr), "mark-1")
			if got := answers[0].HoldsLine(commits); got != tt.want {
				t.Errorf("answered after a sync: %t, want %t", got, tt.want)
			}
			// Between traces of several nodes the clock decides, and not the line.
			if got := answers[0].HoldsTime(commits); got != tt.want {
				t.Errorf("by the clock: answered after a sync: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"refused", strings.Replace(answer, "201 Created", "503 Service", 1), "answered with"},
		{"no answer", syncLog, "not in the trace"},
		{"to somebody else", strings.Replace(answer, ":90]", ":91]", 1), "not in the trace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := mustParse(t, script(request, tt.answer))
			_, err := tr.Answers("127.0.0.1:80", []string{"mark-1"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// frame encodes a frame with one envelope.
func frame(from, to uint64, message []byte) []byte {
	body := wire.AppendUvarint(wire.AppendUvarint(nil, from), to)
	body = wire.AppendUvarint(body, 1)
	body = wire.AppendUvarint(append(body, kindMessage), 7)
	body = wire.AppendID(body, [16]byte{1})
	body = append(append(body, 1, 1, 2), message...)
	b := make([]byte, frameHeader)
	binary.BigEndian.PutUint32(b, uint64Len(body))
	b[4] = typeEnvelopes
	return append(b, body...)
}

func uint64Len(b []byte) uint32 { return uint32(len(b)) }

// The messages: term 5, index 8; the entry has index 9.
func app() []byte {
	b := []byte{TypeApp, 0x17, 5, 8, 4, 1, 0x80 | 1<<5 | 2<<3, 5}
	return wire.AppendBytes(b, []byte("put mark-1"))
}
func appResp(index byte) []byte { return []byte{TypeAppResp, 0x3, 5, index} }
func vote() []byte              { return []byte{TypeVote, 0x7, 6, 8, 4} }
func voteResp() []byte          { return []byte{TypeVoteResp, 0x1, 6} }
func refusal() []byte           { return []byte{TypeVoteResp, 0xc1, 0x1, 6} }

// traffic writes a call that reads or writes bytes, with the greeting before them.
func traffic(call string, conn int, data []byte) string {
	data = append([]byte(greeting), data...)
	var text strings.Builder
	text.WriteByte('"')
	for _, b := range data {
		fmt.Fprintf(&text, `\%03o`, b)
	}
	text.WriteByte('"')
	return fmt.Sprintf("2 %s(9<TCP:[127.0.0.1:1->127.0.0.1:%d]>, %s, 65536) = %d <0.000010>",
		call, conn, text.String(), len(data))
}

func TestVouchAfterItsSync(t *testing.T) {
	readApp := traffic("read", 50, frame(1, 2, app()))
	ack := traffic("write", 60, frame(2, 1, appResp(9)))
	tests := []struct {
		name  string
		lines []string
		found int
		want  bool
	}{
		{"synced", []string{readApp, writeLog, syncLog, ack}, 1, true},
		{"the answer comes first", []string{readApp, ack, writeLog, syncLog}, 1, false},
		{
			"the answer comes during the sync",
			[]string{readApp, writeLog, syncBegin, ack, syncEnd},
			1, false,
		},
		{
			"an acknowledgement of less vouches for nothing",
			[]string{
				readApp, traffic("write", 61, frame(2, 1, appResp(8))), writeLog, syncLog, ack,
			},
			1, true,
		},
		{
			"to another node",
			[]string{readApp, traffic("write", 60, frame(2, 3, appResp(9)))},
			0, false,
		},
		{"not acknowledged", []string{readApp, writeLog, syncLog}, 0, false},
		{
			"vote",
			[]string{
				traffic("read", 50, frame(1, 2, vote())), writeLog, syncLog,
				traffic("write", 60, frame(2, 1, voteResp())),
			},
			1, true,
		},
		{
			"vote before its sync",
			[]string{
				traffic("read", 50, frame(1, 2, vote())),
				traffic("write", 60, frame(2, 1, voteResp())), writeLog, syncLog,
			},
			1, false,
		},
		{
			"a refusal needs no sync",
			[]string{
				traffic("read", 50, frame(1, 2, vote())),
				traffic("write", 60, frame(2, 1, refusal())),
			},
			0, false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := mustParse(t, script(tt.lines...))
			read, written := messages(t, tr)
			vouches := append(Acks(read, written, []string{"mark-1"}), Votes(read, written)...)
			if len(vouches) != tt.found {
				t.Fatalf("found %v, want %d", vouches, tt.found)
			}
			for _, v := range vouches {
				if got := v.HoldsLine(mustCommit(t, tr)); got != tt.want {
					t.Errorf("%s: said after a sync: %t, want %t", v.What, got, tt.want)
				}
			}
		})
	}
}

func messages(t *testing.T, tr *Trace) (read, written []Message) {
	t.Helper()
	in, err := tr.Read()
	if err != nil {
		t.Fatal(err)
	}
	out, err := tr.Written()
	if err != nil {
		t.Fatal(err)
	}
	if read, err = Messages(in); err != nil {
		t.Fatal(err)
	}
	if written, err = Messages(out); err != nil {
		t.Fatal(err)
	}
	return read, written
}

func TestParse(t *testing.T) {
	tr := mustParse(t, `7 12.000001 read(3</a b>, "x\"\\\n\0\3778)\10" = "", 9) = 9 <0.000002>
8 12.000002 +++ exited with 0 +++
8 12.000003 close(3</a>)             = ? <unavailable>
9 12.00`)
	if len(tr.Calls) != 2 {
		t.Fatalf("%d calls, want 2", len(tr.Calls))
	}
	c := tr.Calls[0]
	if got, err := c.Data(); err != nil || string(got) != "x\"\\\n\x00\xff8)\x08" {
		t.Errorf("Data() = %q, %v", got, err)
	}
	if c.File() != "/a b" || c.Result != 9 || !c.OK || c.Thread != 7 {
		t.Errorf("file %q, result %d, OK %t, thread %d", c.File(), c.Result, c.OK, c.Thread)
	}
	if want := (Moment{1, 12*time.Second + 3*time.Microsecond}); c.End != want {
		t.Errorf("it ends at %v, want %v", c.End, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"x 1.000000 read(3) = 0 <0.000001>",
		"1 1.0 read(3) = 0 <0.000001>",
		"1 1.000000 read 3",
		"1 1.000000 read(3",
		"1 1.000000 <... read resumed>) = 0 <0.000001>",
		"1 1.000000 read(3) = zero <0.000001>",
	} {
		if _, err := Parse(strings.NewReader(text + "\n")); err == nil {
			t.Errorf("Parse(%q) accepts it", text)
		}
	}
}

func TestDataRefuses(t *testing.T) {
	for _, args := range []string{
		`read(3<x>, "abc"..., 9) = 9 <0.000001>`,
		`read(3<x>, "abc", 9) = 9 <0.000001>`,
	} {
		tr := mustParse(t, "1 1.000000 "+args+"\n")
		if b, err := tr.Calls[0].Data(); err == nil {
			t.Errorf("Data of %s = %q, want an error", args, b)
		}
	}
}
