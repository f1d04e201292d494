package sim

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"sync/atomic"

	"github.com/google/uuid"
)

// The streams of a seed. Each part has dice of its own, so that a change in one, as
// a fault less, does not change the luck of the others.
const (
	streamSetup = iota
	streamTurns
	streamNetwork
	streamSchedule
	streamRaft
	streamClients
	streamDisks // and those after it, one for each node
)

// Streams of what came later.
const (
	streamAudit = 500 + iota
	streamMore  // faults beside those of streamSchedule
	streamLife  // of [Config.LifeCycle]
)

func newDice(seed, stream uint64) *mathrand.Rand {
	return mathrand.New(mathrand.NewPCG(seed, stream*0x9E3779B97F4A7C15+1))
}

// nodeDice are the dice of one start of a node.
type nodeDice struct{ *mathrand.Rand }

// UUID returns a random UUID of version 4.
func (d nodeDice) UUID() (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], d.Uint64())
	binary.BigEndian.PutUint64(id[8:], d.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// entropy gives out the bytes of dice.
type entropy struct{ dice *mathrand.Rand }

// Read never fails.
func (e entropy) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e.dice.Uint32())
	}
	return len(p), nil
}

// ErrBusy says that a simulation is running in this process. Raft takes its
// randomness from crypto/rand.Reader, which a simulation replaces, so there can be
// one at a time.
var ErrBusy = errors.New("sim: another simulation is running in this process")

// simulating is set while crypto/rand.Reader is replaced.
var simulating atomic.Bool

// takeEntropy makes dice of crypto/rand.Reader until restore is called.
func takeEntropy(dice *mathrand.Rand) (restore func(), err error) {
	if !simulating.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	before := rand.Reader
	rand.Reader = io.Reader(entropy{dice})
	return func() {
		rand.Reader = before
		simulating.Store(false)
	}, nil
}
