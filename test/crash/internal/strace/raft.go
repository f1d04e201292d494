package strace

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/raftyard/raftyard/internal/wire"
)

// Raft's numbers of the messages that are looked at.
const (
	TypeApp      = 3
	TypeAppResp  = 4
	TypeVote     = 5
	TypeVoteResp = 6
)

// A Message is a raft message between two nodes. The layout of all this is in
// docs/formats/transport.md.
type Message struct {
	FromNode, ToNode uint64
	Group            uint64
	Type             byte
	Term, Index      uint64
	Reject           bool
	Entries          []Entry
	// First and Last are the calls that have written or read the first and the last
	// byte of its frame.
	First, Last *Call
}

// An Entry is an entry of a message's.
type Entry struct {
	Index uint64
	Data  []byte
}

const (
	greeting        = "raftyard"
	frameHeader     = 12
	typeEnvelopes   = 6
	kindMessage     = 1
	kindNotice      = 2
	sizeNoticeKind  = 1
	numbersOfNotice = 4
)

// Messages returns the raft messages in streams, in the order of their connections.
func Messages(streams []*Stream) ([]Message, error) {
	var all []Message
	for _, s := range streams {
		rest, ok := bytes.CutPrefix(s.Data, []byte(greeting))
		if !ok {
			continue // HTTP
		}
		offset := len(greeting)
		for len(rest) >= frameHeader {
			n := frameHeader + int(binary.BigEndian.Uint32(rest))
			if n > len(rest) {
				break // the trace ends within a frame
			}
			if rest[4] == typeEnvelopes {
				ms, err := envelopes(rest[frameHeader:n])
				if err != nil {
					return nil, fmt.Errorf("connection %s, offset %d: %w", s.Conn, offset, err)
				}
				for i := range ms {
					ms[i].First, ms[i].Last = s.call(offset), s.call(offset+n-1)
				}
				all = append(all, ms...)
			}
			rest, offset = rest[n:], offset+n
		}
	}
	return all, nil
}

// envelopes reads the body of a frame of envelopes.
func envelopes(body []byte) ([]Message, error) {
	r := wire.NewReader(body)
	from, to := r.Uvarint(), r.Uvarint()
	var ms []Message
	for range r.Count(1) {
		kind := r.Byte()
		m := Message{FromNode: from, ToNode: to, Group: r.Uvarint()}
		r.ID()      // incarnation
		r.Uvarint() // epoch
		r.Uvarint() // replicas
		r.Uvarint()
		switch kind {
		case kindMessage:
			readMessage(r, &m)
			ms = append(ms, m)
		case kindNotice:
			r.Raw(sizeNoticeKind)
			for range numbersOfNotice {
				r.Uvarint()
			}
		default:
			r.Fail("envelope of kind %d", kind)
		}
	}
	return ms, r.Close()
}

func readMessage(r *wire.Reader, m *Message) {
	m.Type = r.Byte()
	flags := r.Uvarint()
	number := func(bit uint64) uint64 {
		if flags&bit == 0 {
			return 0
		}
		return r.Uvarint()
	}
	m.Term, m.Index = number(0x1), number(0x2)
	number(0x4)   // log term
	number(0x8)   // commit
	number(0x100) // reject hint
	number(0x200) // vote
	m.Reject = flags&0x80 != 0
	if flags&0x20 != 0 { // context
		r.Bytes()
	}
	if flags&0x400 != 0 {
		skipSnapshot(r)
	}
	if flags&0x10 != 0 {
		readEntries(r, m)
	}
}

func readEntries(r *wire.Reader, m *Message) {
	index := m.Index
	for range r.Count(1) {
		head := r.Byte()
		if head>>3&3 == 2 { // term
			r.Uvarint()
		}
		switch head >> 5 & 3 {
		case 1:
			index++
		case 2:
			index = r.Uvarint()
		}
		e := Entry{Index: index}
		if head&0x80 != 0 {
			e.Data = r.Bytes()
		}
		m.Entries = append(m.Entries, e)
	}
}

func skipSnapshot(r *wire.Reader) {
	flags := r.Byte()
	if flags&0x1 != 0 {
		r.Bytes()
	}
	for _, bit := range []byte{0x4, 0x8} {
		if flags&bit != 0 {
			r.Uvarint()
		}
	}
	if flags&0x10 == 0 {
		return
	}
	for range 4 {
		for range r.Count(1) {
			r.Uvarint()
		}
	}
}

// A Vouch is a message with which a node vouches for what is on its disk, and the
// one that it answers.
type Vouch struct {
	What string
	Span // from reading the one to writing the other
}

// Acks finds the entries with the marks among what a node has read, and the first
// acknowledgement of each that it has written. An entry that was not read, or not
// acknowledged, is left out.
func Acks(read, written []Message, marks []string) []Vouch {
	var found []Vouch
	for _, mark := range marks {
		in, index := entryWith(read, mark)
		if in == nil {
			continue
		}
		ack := first(written, in, func(m *Message) bool {
			return m.Type == TypeAppResp && !m.Reject && m.Index >= index
		})
		if ack != nil {
			found = append(found, Vouch{mark, Span{in.Last, ack.First}})
		}
	}
	return found
}

// Votes finds the requests for votes that a node has read, and the votes that it
// gave.
func Votes(read, written []Message) []Vouch {
	var found []Vouch
	for i := range read {
		in := &read[i]
		if in.Type != TypeVote {
			continue
		}
		vote := first(written, in, func(m *Message) bool {
			return m.Type == TypeVoteResp && !m.Reject && m.Term == in.Term
		})
		if vote != nil {
			found = append(found, Vouch{
				fmt.Sprintf("vote in group %d, term %d", in.Group, in.Term),
				Span{in.Last, vote.First},
			})
		}
	}
	return found
}

// entryWith returns the first message with an entry that holds the mark.
func entryWith(read []Message, mark string) (*Message, uint64) {
	var found *Message
	var index uint64
	for i := range read {
		m := &read[i]
		for _, e := range m.Entries {
			earlier := found == nil || m.Last.End.Line < found.Last.End.Line
			if m.Type == TypeApp && earlier && bytes.Contains(e.Data, []byte(mark)) {
				found, index = m, e.Index
			}
		}
	}
	return found, index
}

// first returns the first answer to a message: to its sender, in its group, after it.
func first(written []Message, to *Message, is func(*Message) bool) *Message {
	var found *Message
	for i := range written {
		m := &written[i]
		if m.Group != to.Group || m.ToNode != to.FromNode || !is(m) ||
			m.First.Begin.Line <= to.Last.End.Line {
			continue
		}
		if found == nil || m.First.Begin.Line < found.First.Begin.Line {
			found = m
		}
	}
	return found
}
