package strace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options are what strace must be run with, beside -o and the program, for
// [Parse] to understand what it writes.
func Options() []string {
	return []string{
		"-f", "-yy", "-ttt", "-T", "-q", "-s", "1048576", "--seccomp-bpf",
		"-e", "signal=none",
		"-e", "trace=read,readv,write,writev,recvfrom,sendto,recvmsg,sendmsg," +
			"pwrite64,fsync,fdatasync",
	}
}

// A Moment is a place in a trace.
type Moment struct {
	Line int // from 1; zero: it has not come
	At   time.Duration
}

// A Call is one system call.
type Call struct {
	Thread     int
	Name       string
	Args       string // as strace writes them
	Result     int64
	OK         bool // it has ended, without an error
	Begin, End Moment
}

// A Trace is the system calls of one process, in the order in which they began.
type Trace struct {
	Calls []*Call
}

// Parse reads a trace that was made with [Options]. A trace may break off.
func Parse(r io.Reader) (*Trace, error) {
	t := new(Trace)
	p := parser{open: make(map[int]*Call)}
	lines := bufio.NewReaderSize(r, 1<<20)
	for number := 1; ; number++ {
		text, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read trace: %w", err)
		}
		if err != nil {
			break // a line that is not complete was not written to its end
		}
		call, perr := p.line(number, strings.TrimSuffix(text, "\n"))
		if perr != nil {
			return nil, fmt.Errorf("trace, line %d: %w: %.200s", number, perr, text)
		}
		if call != nil {
			t.Calls = append(t.Calls, call)
		}
	}
	for _, c := range p.open {
		t.Calls = append(t.Calls, c)
	}
	slices.SortFunc(t.Calls, func(a, b *Call) int {
		return cmp.Compare(a.Begin.Line, b.Begin.Line)
	})
	return t, nil
}

// A parser remembers the calls that others have interrupted.
type parser struct {
	open map[int]*Call // by thread; Args is the text so far
}

const (
	unfinished = " <unfinished ...>"
	resumed    = " resumed>"
)

// line reads one line. It returns the call that ends in it, if one does.
func (p *parser) line(number int, text string) (*Call, error) {
	word, rest, _ := strings.Cut(text, " ")
	thread, err := strconv.Atoi(word)
	if err != nil {
		return nil, errors.New("it does not begin with a thread")
	}
	word, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	at, err := parseSeconds(word)
	if err != nil {
		return nil, err
	}
	now := Moment{number, at}
	switch {
	case strings.HasPrefix(rest, "+++"), strings.HasPrefix(rest, "---"):
		return nil, nil //nolint:nilnil // the end of a thread, or a signal: no call
	case strings.HasPrefix(rest, "<... "):
		_, more, ok := strings.Cut(rest, resumed)
		c := p.open[thread]
		if !ok || c == nil {
			return nil, errors.New("it resumes what was not interrupted")
		}
		delete(p.open, thread)
		c.End = now
		if err = c.finish(c.Args + more); err != nil {
			return nil, err
		}
		return c, nil
	}
	name, args, ok := strings.Cut(rest, "(")
	if !ok {
		return nil, errors.New("it is no call")
	}
	c := &Call{Thread: thread, Name: name, Begin: now}
	if before, cut := strings.CutSuffix(args, unfinished); cut {
		c.Args = before
		p.open[thread] = c
		return nil, nil //nolint:nilnil // it ends in a later line
	}
	c.End = now
	if err = c.finish(args); err != nil {
		return nil, err
	}
	return c, nil
}

// finish splits the text behind the opening parenthesis. End is when the call
// ended if it was interrupted, or else when it began.
func (c *Call) finish(text string) error {
	args, result, ok := cutLast(text, " = ")
	args, closed := strings.CutSuffix(strings.TrimRight(args, " "), ")")
	if !ok || !closed {
		return errors.New("it has no result")
	}
	c.Args = args
	if strings.HasPrefix(result, "?") { // it never returned
		return nil
	}
	result, took, _ := cutLast(result, " <")
	d, err := parseSeconds(strings.TrimSuffix(took, ">"))
	if err != nil {
		return err
	}
	if c.End.Line == c.Begin.Line {
		c.End.At += d
	}
	word, _, _ := strings.Cut(result, " ")
	word, _, _ = strings.Cut(word, "<") // the result is a file
	c.Result, err = strconv.ParseInt(word, 0, 64)
	if err != nil {
		return fmt.Errorf("result %q: %w", word, err)
	}
	c.OK = c.Result >= 0
	return nil
}

// parseSeconds reads seconds with six digits behind the point.
func parseSeconds(text string) (time.Duration, error) {
	whole, part, _ := strings.Cut(text, ".")
	s, err := strconv.ParseInt(whole, 10, 64)
	us, err2 := strconv.ParseInt(part, 10, 64)
	if err != nil || err2 != nil || len(part) != 6 {
		return 0, fmt.Errorf("%q is no time", text)
	}
	return time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond, nil
}

func cutLast(text, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// File returns what strace says of the call's file: a path, or a connection such
// as TCP:[127.0.0.1:1->127.0.0.1:2]. The file is the first argument.
func (c *Call) File() string {
	_, args, ok := strings.Cut(strings.TrimLeft(c.Args, "0123456789"), "<")
	if !ok {
		return ""
	}
	end := strings.Index(args+",", ">,")
	if end < 0 {
		return ""
	}
	return args[:end]
}

// Data returns the bytes that the call has read or written.
func (c *Call) Data() ([]byte, error) {
	var b []byte
	text := c.Args
	for {
		_, rest, ok := strings.Cut(text, `"`)
		if !ok {
			break
		}
		var err error
		if b, text, err = unquote(b, rest); err != nil {
			return nil, err
		}
		if strings.HasPrefix(text, "...") {
			return nil, errors.New("strace has cut what was read or written")
		}
	}
	if int64(len(b)) < c.Result {
		return nil, fmt.Errorf("%d bytes are shown, of %d", len(b), c.Result)
	}
	return b[:max(c.Result, 0)], nil
}

// unquote appends what a C string, whose opening quote is gone, stands for. rest is
// what follows the closing quote.
func unquote(b []byte, text string) (_ []byte, rest string, err error) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b, text[i+1:], nil
		case '\\':
			v, n := unescape(text[i+1:])
			if n == 0 {
				return nil, "", errors.New("a string with an unknown escape")
			}
			b = append(b, v)
			i += n
		default:
			b = append(b, text[i])
		}
	}
	return nil, "", errors.New("a string without an end")
}

// unescape reads the escape behind a backslash, and how long it is.
func unescape(text string) (v byte, n int) {
	if text == "" {
		return 0, 0
	}
	if i := strings.IndexByte(`ntrvf"\`, text[0]); i >= 0 {
		return "\n\t\r\v\f\"\\"[i], 1
	}
	for n < 3 && n < len(text) && '0' <= text[n] && text[n] <= '7' {
		v = v*8 + text[n] - '0'
		n++
	}
	return v, n
}
