package cluster

import (
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// A port is a TCP port of 127.0.0.1 that nobody else gets.
//
// A node that is down for a while would lose its port to any outgoing connection
// if the port were only found free once. Here a socket stays bound to it, with
// SO_REUSEADDR as Go's listeners have, and never listens: connections are refused
// while the node is down, no other program is given the port, and the node can
// still listen on it.
type port struct {
	fd     int
	number int
}

// reservePort reserves a port until it is released.
func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &port{fd: fd}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = p.learn()
	}
	if err != nil {
		p.release()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

// learn asks which port the kernel has chosen.
func (p *port) learn() error {
	name, err := unix.Getsockname(p.fd)
	if err != nil {
		return err
	}
	inet, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("bound to a %T", name)
	}
	p.number = inet.Port
	return nil
}

// yield makes way for the node, which does not need it here.
func (p *port) yield() {}

func (p *port) release() { _ = unix.Close(p.fd) }

func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }
