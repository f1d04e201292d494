package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
)

// minFrameBytes is the least that Config.MaxFrameBytes may be.
const minFrameBytes = 64 << 10

// Config holds the settings of a [Transport]. Identity, Resolve, Handler and one
// of Listen and Listener must be set; the zero value of every other field means
// its default. Nodes of one cluster may differ in all of it, except that DeadAfter of
// each must be at least twice PingInterval of every other.
type Config struct {
	Identity

	// Listen is the TCP address, host:port, to take connections at. It is not
	// looked at when Listener is set.
	Listen string

	// Listener, if set, is where connections are taken from. The transport closes
	// it. With Dial it lets connections be something else than plain TCP.
	Listener net.Listener

	// Dial opens a connection to an address that Resolve has returned, and gives
	// up when ctx ends. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Advertise is the address at which others reach this node. Every handshake tells
	// it: only who has dialled a connection sends on it, so somebody who is called and
	// does not know the caller's address could not answer. At most 512 bytes. Empty:
	// nothing is told.
	Advertise string

	// Resolve returns the addresses at which a node may be, the best one first, or none
	// if it is not known, or not to be connected with; empty texts and repetitions count
	// for nothing. told is where a process that speaks for the node, and was let in, has
	// said last that it is reached, or empty. Attempts to connect go through the
	// addresses in turn, and stay with one at which the node was found; whose an address
	// is, the handshake tells. It is asked before each attempt, from several goroutines,
	// and must not block.
	Resolve func(node raftyard.NodeID, told string) (addrs []string)

	// Admit, if set, is asked in each handshake, on either side, whether this node
	// wants to have to do with the process that the peer presents itself as. What it
	// returns ends the connection; an acceptor tells the dialler. It is called from
	// several goroutines and must not block.
	Admit func(peer Identity) *RefusalError

	Handler Handler

	// Logger gets what an operator should know, at a limited rate, from a goroutine
	// of its own: one that blocks loses records and holds up only Close. Default:
	// none.
	Logger *slog.Logger

	// MaxFrameBytes is the greatest frame that is sent or taken, and so a little
	// more than the greatest message, request or answer. Default: 16 MiB, which is
	// more than the greatest entry that a log can store.
	MaxFrameBytes int

	// MaxQueueBytes and MaxQueueMessages bound what waits to be sent to one peer,
	// for messages and for requests each. Defaults: 64 MiB and 65536.
	MaxQueueBytes    int64
	MaxQueueMessages int

	// MaxRequestsPerPeer bounds how many requests of this node are unanswered at
	// one peer, and how many of one peer's are being handled here. MaxRequests and
	// MaxRequestBytes bound those of all peers that are being handled here, in
	// number and by the size of bodies. What exceeds a bound ends with ErrBusy.
	// MaxRequestBytes also bounds the answers that wait to be sent, of which one
	// peer gets a half; one for which there is no room is dropped, and the request
	// ends with ErrUnknown. Defaults: 512, 2048 and 64 MiB.
	MaxRequestsPerPeer int
	MaxRequests        int
	MaxRequestBytes    int64

	// RequestTimeout is the deadline of a request whose context has none.
	// Default: 10 s.
	RequestTimeout time.Duration

	// MaxSnapshotsOut bounds how many snapshots are sent at a time; more wait.
	// MaxSnapshotsIn bounds how many are received at a time; more are refused with
	// ErrBusy before any of the body is sent. Defaults: 4 and 4.
	MaxSnapshotsOut int
	MaxSnapshotsIn  int

	// SnapshotBytesPerSecond bounds the rate of all snapshots that are sent, and
	// also of all that are received. Default: 128 MiB/s. Negative: no bound.
	SnapshotBytesPerSecond int64

	// SnapshotStall is how long the receiver's handler may take nothing of what was
	// sent of a snapshot, and SnapshotVerdict how long it may take to return after
	// it has taken everything, before the sender gives up. Defaults: 1 min and
	// 10 min.
	SnapshotStall   time.Duration
	SnapshotVerdict time.Duration

	// MaxConnections bounds the connections that peers have dialled, and
	// MaxConnectionsPerPeer those of one peer. Defaults: 1024 and 32.
	MaxConnections        int
	MaxConnectionsPerPeer int

	// DialTimeout bounds dialling, and the handshake on either side. Default: 2 s.
	DialTimeout time.Duration

	// PingInterval is how often an established connection is probed. A peer that
	// has not answered for DeadAfter, or has not taken the next 256 KiB of what was
	// written in that time, is given up. Defaults: 1 s and 3 s.
	PingInterval time.Duration
	DeadAfter    time.Duration

	// MinBackoff and MaxBackoff bound the pause between attempts to connect. It
	// doubles from one to the next, is shortened by a random part of up to a half,
	// and starts again when a connection has worked. Defaults: 50 ms and 2 s.
	MinBackoff time.Duration
	MaxBackoff time.Duration

	// UnreachableInterval is the least time between two calls of
	// HandleUnreachable for one peer. Default: 500 ms.
	UnreachableInterval time.Duration

	// faults changes batches of envelopes on their way out. Memory sets it.
	faults faultInjector
}

func (c Config) withDefaults() Config {
	if c.Dial == nil {
		c.Dial = dialTCP
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.MaxFrameBytes = cmp.Or(c.MaxFrameBytes, 16<<20)
	c.MaxQueueBytes = cmp.Or(c.MaxQueueBytes, 64<<20)
	c.MaxQueueMessages = cmp.Or(c.MaxQueueMessages, 65536)
	c.MaxRequestsPerPeer = cmp.Or(c.MaxRequestsPerPeer, 512)
	c.MaxRequests = cmp.Or(c.MaxRequests, 2048)
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, 64<<20)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.MaxSnapshotsOut = cmp.Or(c.MaxSnapshotsOut, 4)
	c.MaxSnapshotsIn = cmp.Or(c.MaxSnapshotsIn, 4)
	c.SnapshotBytesPerSecond = cmp.Or(c.SnapshotBytesPerSecond, 128<<20)
	c.SnapshotStall = cmp.Or(c.SnapshotStall, time.Minute)
	c.SnapshotVerdict = cmp.Or(c.SnapshotVerdict, 10*time.Minute)
	c.MaxConnections = cmp.Or(c.MaxConnections, 1024)
	c.MaxConnectionsPerPeer = cmp.Or(c.MaxConnectionsPerPeer, 32)
	c.DialTimeout = cmp.Or(c.DialTimeout, 2*time.Second)
	c.PingInterval = cmp.Or(c.PingInterval, time.Second)
	c.DeadAfter = cmp.Or(c.DeadAfter, 3*time.Second)
	c.MinBackoff = cmp.Or(c.MinBackoff, 50*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 2*time.Second)
	c.UnreachableInterval = cmp.Or(c.UnreachableInterval, 500*time.Millisecond)
	return c
}

// Validate reports every problem in c, not only the first one. [Listen] calls it.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("transport: config: "+format, args...))
		}
	}
	check(c.Node != 0, "Node must not be zero")
	check(c.Cluster != uuid.Nil, "Cluster must not be zero")
	check(c.Store != uuid.Nil, "Store must not be zero")
	check(len(c.Lineage) <= MaxLineageBytes,
		"Lineage has %d bytes, want at most %d", len(c.Lineage), MaxLineageBytes)
	check(c.Listen != "" || c.Listener != nil, "one of Listen and Listener must be set")
	check(len(c.Advertise) <= maxAddress,
		"Advertise has %d bytes, want at most %d", len(c.Advertise), maxAddress)
	check(c.Resolve != nil, "Resolve must be set")
	check(c.Handler != nil, "Handler must be set")
	check(c.MaxFrameBytes >= minFrameBytes && c.MaxFrameBytes <= 1<<30,
		"MaxFrameBytes is %d, want %d to %d", c.MaxFrameBytes, minFrameBytes, 1<<30)
	check(c.MaxQueueBytes >= int64(c.MaxFrameBytes),
		"MaxQueueBytes is %d, want at least MaxFrameBytes, %d", c.MaxQueueBytes, c.MaxFrameBytes)
	check(c.MaxRequestBytes >= int64(c.MaxFrameBytes),
		"MaxRequestBytes is %d, want at least MaxFrameBytes, %d",
		c.MaxRequestBytes, c.MaxFrameBytes)
	for _, n := range []struct {
		name  string
		value int
	}{
		{"MaxQueueMessages", c.MaxQueueMessages},
		{"MaxRequestsPerPeer", c.MaxRequestsPerPeer},
		{"MaxRequests", c.MaxRequests},
		{"MaxSnapshotsOut", c.MaxSnapshotsOut},
		{"MaxSnapshotsIn", c.MaxSnapshotsIn},
		{"MaxConnections", c.MaxConnections},
	} {
		check(n.value > 0, "%s is %d, want at least 1", n.name, n.value)
	}
	check(c.MaxConnectionsPerPeer >= 3,
		"MaxConnectionsPerPeer is %d, want at least 3", c.MaxConnectionsPerPeer)
	c.checkTimes(check)
	return errors.Join(errs...)
}

func (c *Config) checkTimes(check func(ok bool, format string, args ...any)) {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"RequestTimeout", c.RequestTimeout},
		{"SnapshotStall", c.SnapshotStall},
		{"SnapshotVerdict", c.SnapshotVerdict},
		{"DialTimeout", c.DialTimeout},
		{"PingInterval", c.PingInterval},
		{"MinBackoff", c.MinBackoff},
		{"UnreachableInterval", c.UnreachableInterval},
	} {
		check(d.value > 0, "%s is %v, want more than zero", d.name, d.value)
	}
	// The handler cannot take what the rate keeps back.
	within := float64(c.SnapshotBytesPerSecond) * c.SnapshotStall.Seconds()
	check(within < 0 || within >= float64(c.MaxSnapshotsIn)*chunkBytes,
		"SnapshotBytesPerSecond is %d, want enough for %d snapshots to get %d bytes within %v",
		c.SnapshotBytesPerSecond, c.MaxSnapshotsIn, chunkBytes, c.SnapshotStall)
	check(c.DeadAfter >= 2*c.PingInterval,
		"DeadAfter is %v, want at least twice PingInterval, %v", c.DeadAfter, c.PingInterval)
	check(c.MaxBackoff >= c.MinBackoff,
		"MaxBackoff is %v, want at least MinBackoff, %v", c.MaxBackoff, c.MinBackoff)
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	// The pings of the protocol find dead peers sooner than those of TCP would.
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, "tcp", addr)
}
