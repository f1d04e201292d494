package transport

import (
	"net"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// reachable is a listener on loopback, and has the node tell where that is.
func reachable(t *testing.T) (change func(*Config), addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	return func(c *Config) { c.Listener, c.Advertise = l, addr }, addr
}

// TestAnswersWhereItWasTold: a node that nobody has told where another is answers it,
// and finds it again when it has come back elsewhere.
func TestAnswersWhereItWasTold(t *testing.T) {
	here, there := newSink(), newSink()
	atOne, _ := reachable(t)
	atTwo, second := reachable(t)
	one := listenTCP(t, 1, here, map[raftyard.NodeID]string{2: second}, atOne)
	two := listenTCP(t, 2, there, nil, atTwo)
	answer := appendEnvelopeOf(t, raftpb.MsgHeartbeatResp)
	answer.From.Node, answer.To.Node = 2, 1
	two.Connect(1) // in vain, so far
	one.Send([]Envelope{appendEnvelopeOf(t, raftpb.MsgHeartbeat)})
	eventually(t, "it is heard", func() bool { return there.count() == 1 })
	eventually(t, "it is answered", func() bool {
		two.Send([]Envelope{answer})
		return here.count() > 0
	})

	// It moves, of which nothing but its own word tells.
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	again := newSink()
	moved, first := reachable(t)
	restarted := func(c *Config) { c.Boot++ }
	one = listenTCP(t, 1, again, map[raftyard.NodeID]string{2: second}, moved, restarted)
	one.Connect(2)
	eventually(t, "it is found where it has moved to", func() bool {
		two.Send([]Envelope{answer})
		return again.count() > 0
	})
	if peers := two.Peers(); len(peers) != 1 || peers[0].Addr != first {
		t.Errorf("Peers = %+v, want node 1 at %s", peers, first)
	}
}

// TestIsFoundThoughItTellsNonsense: the address that a node tells is one among others.
func TestIsFoundThoughItTellsNonsense(t *testing.T) {
	book := make(map[raftyard.NodeID]string)
	here, there := newSink(), newSink()
	nonsense := func(c *Config) { c.Advertise = "127.0.0.1:1" }
	one := listenTCP(t, 1, here, book, nonsense)
	two := listenTCP(t, 2, there, map[raftyard.NodeID]string{1: one.Addr().String()})
	book[2] = two.Addr().String()
	one.Connect(2)
	eventually(t, "node 2 is connected", func() bool { return here.isUp(2) })
	eventually(t, "it has told", func() bool { return two.admission.told(1) != "" })
	two.Connect(1)
	eventually(t, "node 1 is found", func() bool { return there.isUp(1) })
}
