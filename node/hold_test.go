package node

import (
	"testing"

	"github.com/raftyard/raftyard/group"
)

// TestAnsweredClientsJoinTheNextBatch has one command answered while another one waits, and
// sends a third one as soon as the first one is answered: the two are one entry. Otherwise
// clients that send one command after the other would be two halves for ever, each with a
// batch, a sync and an answer of its own.
func TestAnsweredClientsJoinTheNextBatch(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.add(1, 1, "before") // it leads
	n := c.nodes[1]
	r := n.replica(1)
	send := func(word string) *call {
		sent := newCall(r)
		r.worker.propose(&proposal{r: r, p: group.Proposal{
			ID: n.newMessageID(), Data: []byte(word), Token: sent,
		}})
		return sent
	}
	answered := make(chan [2]uint64)
	r.worker.box.control(func() { // the worker goes on here, round by round
		first := send("first")
		r.worker.collect()
		second := send("second")
		for r.busy { // with nobody else in the group, its own sync commits the first one
			<-r.worker.box.wake
			m := r.worker.box.take(mail{})
			r.worker.process(&m)
		}
		<-first.done
		third := send("third")
		go func() {
			<-second.done
			<-third.done
			answered <- [2]uint64{second.answer.result.Index, third.answer.result.Index}
		}()
	})
	if at := <-answered; at[0] != at[1] {
		t.Errorf("what waited is entry %d, what came meanwhile is entry %d", at[0], at[1])
	}
	c.wantWords(1, 1, "before", "first", "second", "third")
}
