// Package transporttest checks that a network carries what package transport
// promises. The same suite runs over TCP and over [transport.Memory]; a program
// that brings its own Listener and Dial can run it over those:
//
//	transporttest.Run(t, func(t *testing.T) transporttest.Start {
//		return func(cfg transport.Config) (*transport.Transport, error) {
//			cfg.Listener, cfg.Dial = mine(), dialMine
//			return transport.Listen(cfg)
//		}
//	})
package transporttest

import (
	"testing"

	"github.com/raftyard/raftyard/transport"
)

// Start starts a node on a network. The suite sets everything in cfg but where
// to listen and how to dial. Addr of the result is where others reach the node.
type Start func(cfg transport.Config) (*transport.Transport, error)

// Run runs the suite. network makes a new network for each test.
func Run(t *testing.T, network func(t *testing.T) Start) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, c *cluster)
	}{
		{"EnvelopesArriveAsSent", testEnvelopesArrive},
		{"OrderIsKept", testOrderIsKept},
		{"WrongEnvelopesAreNotSent", testWrongEnvelopes},
		{"UnreachableIsReported", testUnreachableReported},
		{"PeerComesAndGoes", testPeerComesAndGoes},
		{"CloseIsFinal", testCloseIsFinal},
		{"RequestIsAnswered", testRequestAnswered},
		{"RequestErrorTravels", testRequestErrorTravels},
		{"RequestDeadlineTravels", testRequestDeadlineTravels},
		{"RequestCancelTravels", testRequestCancelTravels},
		{"RequestUnreachable", testRequestUnreachable},
		{"RequestUnknown", testRequestUnknown},
		{"RequestBusy", testRequestBusy},
		{"RequestTooLarge", testRequestTooLarge},
		{"SnapshotArrives", testSnapshotArrives},
		{"SnapshotVerdictTravels", testSnapshotVerdict},
		{"SnapshotRefusedWhileBusy", testSnapshotBusy},
		{"SnapshotBrokenBySender", testSnapshotBrokenBySender},
		{"SnapshotBrokenByReceiver", testSnapshotBrokenByReceiver},
		{"SnapshotCanceled", testSnapshotCanceled},
		{"WrongCluster", testWrongCluster},
		{"WrongNode", testWrongNode},
		{"Itself", testItself},
		{"Clone", testClone},
		{"CopyOfTheSameStart", testCopyOfTheSameStart},
		{"OlderStart", testOlderStart},
		{"Admit", testAdmit},
		{"Restart", testRestart},
		{"CopyOfARunningDirectory", testCopyOfARunningDirectory},
		{"NoLongerAdmitted", testNoLongerAdmitted},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, newCluster(t, network(t)))
		})
	}
}
