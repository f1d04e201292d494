package strace

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Stream is what was read from a connection, or what was written to it.
type Stream struct {
	// Conn is the connection as strace names it, this end first.
	Conn string
	Data []byte
	// ends says up to where each call has come.
	ends []end
}

type end struct {
	offset int
	call   *Call
}

// call returns the call that has read or written the byte at an offset.
func (s *Stream) call(offset int) *Call {
	i, _ := slices.BinarySearchFunc(s.ends, offset+1, func(e end, at int) int {
		return cmp.Compare(e.offset, at)
	})
	if i == len(s.ends) {
		return nil
	}
	return s.ends[i].call
}

// Read and Written return the streams of all TCP connections.
func (t *Trace) Read() ([]*Stream, error) {
	return t.streams("read", "readv", "recvfrom", "recvmsg")
}

// Written is what was written to all TCP connections.
func (t *Trace) Written() ([]*Stream, error) {
	return t.streams("write", "writev", "sendto", "sendmsg")
}

func (t *Trace) streams(names ...string) ([]*Stream, error) {
	byConn := make(map[string]*Stream)
	var all []*Stream
	for _, c := range t.Calls {
		if !c.OK || c.Result == 0 || !slices.Contains(names, c.Name) {
			continue
		}
		conn, ok := strings.CutPrefix(c.File(), "TCP:[")
		conn, closed := strings.CutSuffix(conn, "]")
		if !ok || !closed {
			continue
		}
		data, err := c.Data()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", c.Begin.Line, err)
		}
		s := byConn[conn]
		if s == nil {
			s = &Stream{Conn: conn}
			byConn[conn] = s
			all = append(all, s)
		}
		s.Data = append(s.Data, data...)
		s.ends = append(s.ends, end{len(s.Data), c})
	}
	return all, nil
}

// An Answer is a request that was answered with success over HTTP.
type Answer struct {
	Mark string
	Span // from reading the request to writing the answer
}

// Answers finds the requests that a node at the given address was sent, by a mark
// that each holds at its end, and their answers.
func (t *Trace) Answers(addr string, marks []string) ([]Answer, error) {
	read, err := t.Read()
	if err != nil {
		return nil, err
	}
	written, err := t.Written()
	if err != nil {
		return nil, err
	}
	answers := make([]Answer, 0, len(marks))
	for _, mark := range marks {
		a := Answer{Mark: mark}
		for _, in := range read {
			i := bytes.LastIndex(in.Data, []byte(mark))
			if i < 0 || !strings.HasPrefix(in.Conn, addr+"->") {
				continue
			}
			a.After = in.call(i + len(mark) - 1)
			if a.Before, err = answerTo(a.After, in.Conn, written); err != nil {
				return nil, fmt.Errorf("request %s: %w", mark, err)
			}
		}
		if a.After == nil || a.Before == nil {
			return nil, fmt.Errorf("request %s, or its answer, is not in the trace", mark)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// answerTo returns the first write to the connection after a read from it.
func answerTo(read *Call, conn string, written []*Stream) (*Call, error) {
	for _, out := range written {
		if out.Conn != conn {
			continue
		}
		for _, e := range out.ends {
			if e.call.Begin.Line <= read.End.Line {
				continue
			}
			data, err := e.call.Data()
			if err == nil && !bytes.HasPrefix(data, []byte("HTTP/1.1 20")) {
				err = fmt.Errorf("it was answered with %.60q", data)
			}
			return e.call, err
		}
	}
	return nil, nil //nolint:nilnil // none was found, which the caller says
}
