package group

import "strconv"

// Consistency says how fresh a read must be. The numbers are part of the wire format.
type Consistency uint8

const (
	// Linearizable reads see every write that was acknowledged before the read
	// began, wherever.
	Linearizable Consistency = iota
	// Stale reads see some earlier state; which one is unknown. One replica does not go back, but
	// for a restart of one whose state machine is in memory, or that was killed before its state
	// machine had written what it showed, as the key-value store may be: see [Durable].
	Stale
)

// String returns the word that the API uses.
func (c Consistency) String() string {
	switch c {
	case Linearizable:
		return "linearizable"
	case Stale:
		return "stale"
	default:
		return "consistency(" + strconv.Itoa(int(c)) + ")"
	}
}
