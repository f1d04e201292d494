package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// TestRefusalsThatPass: what each refusal says of a node that nobody talks to. Whoever asks it
// may ask again if that passes.
func TestRefusalsThatPass(t *testing.T) {
	founder := Config{ID: 3, Dir: "d", Cluster: "c", Peers: []Peer{{ID: 3, Addr: "a:1"}}}
	joiner := Config{ID: 3, Dir: "d", Cluster: "c", Advertise: Peer{Addr: "a:1"}}
	refused := func(codes ...transport.RefusalCode) (peers []transport.PeerStatus) {
		for i, code := range codes {
			peers = append(peers, transport.PeerStatus{
				Node:      raftyard.NodeID(10 + i),
				LastError: fmt.Errorf("dial: %w", &transport.RefusalError{Code: code, Text: "why"}),
			})
		}
		return peers
	}
	one := func(p transport.PeerStatus) []transport.PeerStatus {
		return []transport.PeerStatus{{Node: 9, Up: true}, p}
	}
	clone, stale := transport.RefusedClone, transport.RefusedStale
	for _, tt := range []struct {
		name  string
		cfg   Config
		peers []transport.PeerStatus
		want  error
	}{
		{"nobody has refused", founder, []transport.PeerStatus{{Node: 9}}, nil},
		{"another version", founder, refused(transport.RefusedVersion), nil},
		{"another cluster there", founder, refused(transport.RefusedCluster), nil},
		{"another node there", founder, refused(transport.RefusedWrongNode), nil},
		{"itself there", founder, refused(transport.RefusedSelf), nil},
		{"garbled", founder, refused(transport.RefusedMalformed), nil},
		{"full", founder, refused(transport.RefusedFull), nil},
		{"of a later release", founder, refused(99), nil},
		{"another process", founder, refused(clone, clone), ErrNotReady},
		{"older copy", founder, refused(stale), ErrInvalid},
		{"older copy, after another process", founder, refused(clone, stale), ErrInvalid},
		{"older copy, before another process", founder, refused(stale, clone), ErrInvalid},
		{"replaced", founder, refused(transport.RefusedReplaced), ErrNotReady},
		{"spent", founder, refused(transport.RefusedSpent), ErrInvalid},
		{"not let in", joiner, refused(transport.RefusedUnknown), ErrNotReady},
		{"of another cluster", founder, refused(transport.RefusedUnknown), ErrInvalid},
		{"removed", founder, refused(clone, transport.RefusedRemoved), ErrNodeRemoved},
		{"one talks", founder, one(refused(stale)[0]), nil},
		{"one talks, removed", founder, one(refused(transport.RefusedRemoved)[0]), ErrNodeRemoved},
	} {
		n := &Node{cfg: tt.cfg}
		got := n.judgeRefusals(tt.peers)
		if tt.want == nil && got != nil {
			t.Errorf("%s: %v", tt.name, got)
		}
		if tt.want != nil && (got == nil || !errors.Is(got, tt.want)) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// silent is a process of which nothing comes but its connections.
type silent struct{}

func (silent) HandleEnvelopes(transport.Identity, []transport.Envelope) {}
func (silent) PeerChanged(raftyard.NodeID, bool)                        {}
func (silent) HandleUnreachable(raftyard.NodeID, []transport.Dropped)   {}
func (silent) HandleSnapshot(
	context.Context, transport.Identity, transport.Envelope, io.Reader,
) error {
	return errors.New("nobody is here")
}

func (silent) HandleRequest(
	context.Context, transport.Identity, uint8, []byte,
) ([]byte, error) {
	return nil, errors.New("nobody is here")
}

// TestBackBeforeItsConnectionsAreGone: a machine has lost its power, and is back before the
// others have given up the connections that it had. They refuse it until then. Whoever asks
// it is told to ask again, and it takes part when they are gone.
func TestBackBeforeItsConnectionsAreGone(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	was := c.nodes[3].identity()
	c.close(3)
	left, err := transport.Listen(transport.Config{
		Identity: was, Listen: "127.0.0.1:0", Handler: silent{},
		Resolve: func(id raftyard.NodeID, _ string) []string {
			return []string{c.peers[id-1].Addr}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	left.Connect(1)
	left.Connect(2)
	c.eventually("it seems to be connected", func() bool {
		peers := left.Peers()
		return len(peers) == 2 && peers[0].Up && peers[1].Up
	})
	c.open(3, nil)
	c.eventually("all refuse it", func() bool { return c.nodes[3].refusedByPeers() != nil })
	why := c.nodes[3].Outside()
	if !errors.Is(why, ErrNotReady) || errors.Is(why, ErrInvalid) ||
		!strings.Contains(why.Error(), "this passes when its connections are gone") {
		t.Errorf("the node takes no part in the cluster: %v, want what passes", why)
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	c.awaitReady(3)
	if err := c.nodes[3].Outside(); err != nil {
		t.Errorf("it takes part again: %v", err)
	}
}

// TestOlderCopyServesNobody: when the registry has seen a later start of its directory a
// node is not ready, and takes no request.
func TestOlderCopyServesNobody(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	rec, _ := c.nodes[3].registry.Node(3)
	if rec.Boot != 1 {
		t.Fatalf("registered with start %d, want 1", rec.Boot)
	}
	c.close(3)
	rec.Boot = 9
	res, err := c.nodes[1].command(t.Context(), registry.EncodeSetNode(registry.SetNode{Node: rec}))
	if err != nil || res.Node.Boot != 9 {
		t.Fatalf("SetNode = %+v, %v", res, err)
	}
	c.open(3, nil)
	n := c.nodes[3]
	c.eventually("it says what is wrong", func() bool {
		ready, checks := n.Ready()
		return !ready && strings.Contains(checks[2].Detail, "older copy")
	})
	if _, err := n.serving(1); !errors.Is(err, ErrNotReady) {
		t.Errorf("its replica is asked: %v, want ErrNotReady", err)
	}
	if err := n.mustBelong(); err == nil {
		t.Error("it would ask something of the cluster")
	}
	c.add(1, 1, "b")
}
