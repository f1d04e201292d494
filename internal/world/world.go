// Package world is what a node touches outside of its own memory: time, dice, the
// disk, the network, and the goroutines that it starts. In production all of it is
// the real one, which is a nil [World]. The simulator in test/sim puts its own in
// its place, so that the code that is simulated is the code that runs.
//
// # Turns
//
// A simulated node has one goroutine at a time. Whatever the node does at the same
// time is a process that was started with [Turns.Go], and a process runs until it
// has to wait. Before every operation that may block the node says, with
// [Turns.Until], what it waits for; the simulator lets another process run, and
// returns when it can be had. Nothing waits while it holds a lock.
package world

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/transport"
)

// A World is the surroundings of one start of one node.
type World struct {
	Turns
	Dice
	Disk

	// Listen connects the node to the network.
	Listen func(transport.Config) (Carrier, error)

	// FreeSpace returns how many bytes are free where the node's data is.
	FreeSpace func() int64

	// Opened, if it is not nil, is called when all replicas are open and before any
	// peer is heard. Examine shows the node; it may be called between two steps, for as
	// long as the node lives.
	Opened func(examine func() Examined)
}

// Turns decide which of a node's processes runs, and what time it is.
type Turns interface {
	// Go runs fn as a process. The name is for traces.
	Go(name string, fn func())

	// Until returns when ready returns true. It does not return, and the
	// deferred calls of the process run, when the node has crashed meanwhile.
	// ready must have no effect; it is called from whichever goroutine.
	Until(ready func() bool)

	// Sleep waits for d or until ctx ends, and reports whether ctx still goes on.
	Sleep(ctx context.Context, d time.Duration) bool

	// WithTimeout is context.WithTimeout by this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)

	// Now returns the time.
	Now() time.Time
}

// Dice are where everything random comes from.
type Dice interface {
	Uint64() uint64
	UUID() uuid.UUID
}

// Disk is where everything durable goes.
type Disk struct {
	Files vfs.FS
	// OpenDB opens the database in a directory, as badgerdb.Open does.
	OpenDB kv.Opener
}

// Carrier is what a node needs of a transport. See [transport.Transport], whose
// methods these are.
//
//nolint:interfacebloat // it is what a node does with its network, in one place
type Carrier interface {
	Send(batch []transport.Envelope)
	Connect(to raftyard.NodeID)
	Disconnect(to raftyard.NodeID)
	Request(ctx context.Context, to raftyard.NodeID, kind uint8, body []byte) ([]byte, error)
	SendSnapshot(ctx context.Context, env transport.Envelope, body io.WriterTo) error
	Peers() []transport.PeerStatus
	Stats() transport.Stats
	Close() error
}
