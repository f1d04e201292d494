package seek

import "testing"

func TestSeeker(t *testing.T) {
	var s Seeker
	next := func(want string, addrs ...string) {
		t.Helper()
		if got, ok := s.Next(addrs); got != want || ok != (want != "") {
			t.Errorf("Next(%q) = %q, %t, want %q", addrs, got, ok, want)
		}
	}
	if s.Last() != "" {
		t.Errorf("Last = %q before the first attempt", s.Last())
	}
	s.Missed("a")
	next("")
	next("", "", "")
	next("a", "a", "", "b", "a", "c")
	next("a", "a", "b", "c") // it was found there
	s.Missed("a")
	s.Missed("a") // by another attempt
	next("b", "a", "b", "c")
	s.Missed("b")
	next("c", "a", "b", "c")
	if s.Last() != "c" {
		t.Errorf("Last = %q, want c", s.Last())
	}
	s.Missed("c")
	next("a", "a", "b", "c")
	s.Missed("a")
	next("d", "d", "b", "c") // it has told something new
	s.Missed("d")
	s.Missed("b")
	s.Missed("d") // late
	next("c", "d", "b", "c")
	next("c", "c") // the others are known to be wrong
	s.Missed("c")
	next("c", "c")
	next("")
	s.Missed("c")
	next("c", "c")
}
