package daemon

import (
	"cmp"
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard/node/admin"
)

const (
	// mostConnections bounds the HTTP connections of a node by itself; each takes some 20 KiB, and
	// a descriptor. descriptorShare is the part of the descriptors that they may take
	// where that is less: a database that can open no more files loses data.
	mostConnections = 8192
	descriptorShare = 4

	// vitalConnections are as many more as are taken to answer probes, and to tell others
	// that there are too many.
	vitalConnections = 64
)

// A crowd is a listener that bounds its connections. One that is too many is marked, see
// [admin.Crowded]; of these there is a number, too, and what is beyond is closed at once.
type crowd struct {
	net.Listener

	most    int64
	count   atomic.Int64
	refused atomic.Uint64
}

// newCrowd returns a listener with so many connections at most; zero: the default.
func newCrowd(ln net.Listener, set int) *crowd {
	most := int64(cmp.Or(set, mostConnections))
	if limit := descriptors(); limit > 0 {
		most = min(most, limit/descriptorShare)
	}
	return &crowd{Listener: ln, most: most}
}

// connections returns how many there are.
func (c *crowd) connections() int { return int(c.count.Load()) }

// limit returns how many there may be, and how often there was one too many.
func (c *crowd) limit() (most int, refused uint64) { return int(c.most), c.refused.Load() }

// Accept returns the next connection that there is room for.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		n := c.count.Add(1)
		one := &oneOfCrowd{Conn: conn, crowd: c, tooMany: n > c.most}
		if one.tooMany {
			c.refused.Add(1)
		}
		if n <= c.most+vitalConnections {
			return one, nil
		}
		_ = one.Close() // whoever has called finds out
	}
}

type oneOfCrowd struct {
	net.Conn

	crowd   *crowd
	tooMany bool
	once    sync.Once
}

// Close makes room for another one.
func (o *oneOfCrowd) Close() error {
	o.once.Do(func() { o.crowd.count.Add(-1) })
	return o.Conn.Close()
}

// connContext marks the context of a connection that is one too many.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if one, ok := conn.(*oneOfCrowd); ok && one.tooMany {
		return admin.Crowded(ctx)
	}
	return ctx
}
