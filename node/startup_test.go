package node

import (
	"strings"
	"testing"
)

// TestStartSaysWhatItWaitsFor: a node that starts and finds no majority says in its check which
// step of the start is not done, and why.
func TestStartSaysWhatItWaitsFor(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	for _, id := range nodeIDs(1, 2, 3) {
		c.close(id)
	}
	c.open(1, nil)
	c.eventually("it says what it waits for", func() bool {
		ready, detail := c.registryCheck(1)
		return !ready && strings.Contains(detail, "to read the registry: "+ErrNoLeader.Error())
	})
	c.open(2, nil)
	c.awaitReady(1, 2)
	if _, detail := c.registryCheck(1); detail != "" {
		t.Errorf("node 1 is ready, and waits %s", detail)
	}
}
