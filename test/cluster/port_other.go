//go:build unix && !linux

package cluster

import (
	"fmt"
	"net"
	"sync"
)

// A port is a TCP port of 127.0.0.1 that was free. It is held until the node
// starts for the first time.
type port struct {
	once     sync.Once
	listener net.Listener
}

func reservePort() (*port, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &port{listener: ln}, nil
}

// yield makes way for the node.
func (p *port) yield() { p.once.Do(func() { _ = p.listener.Close() }) }

func (p *port) release() { p.yield() }

func (p *port) addr() string { return p.listener.Addr().String() }
