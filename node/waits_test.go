package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// TestAwaitWithin ends a wait in each way, again and again: a timer that is used again must not
// have anything left of the last time.
func TestAwaitWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSurroundings(nil)
		closed := make(chan struct{})
		close(closed)
		value := make(chan struct{}, 1)
		for range 3 {
			for want := byValue; want <= byClock; want++ {
				channel := func(of ending) <-chan struct{} {
					if of == want {
						return closed
					}
					return nil
				}
				values := (<-chan struct{})(nil)
				if want == byValue {
					value <- struct{}{}
					values = value
				}
				began := time.Now()
				got := s.awaitWithin(values, bounds{
					first: channel(byFirst), second: channel(bySecond), third: channel(byThird),
					limit: time.Minute,
				})
				if got != want {
					t.Errorf("the wait has ended by %d, want %d", got, want)
				}
				after := map[ending]time.Duration{
					byFirst: lookEvery, byThird: lookEvery, byClock: time.Minute,
				}
				if took := time.Since(began); took != after[want] {
					t.Errorf("ended by %d after %v, want after %v", got, took, after[want])
				}
			}
		}
		// Without a limit the clock ends nothing.
		timer := time.AfterFunc(time.Hour, func() { value <- struct{}{} })
		defer timer.Stop()
		if got := s.awaitWithin(value, bounds{}); got != byValue {
			t.Errorf("a wait without a limit has ended by %d", got)
		}
	})
}

// TestLimitIsExact: a wait takes as long as its limit, however often it looks meanwhile.
func TestLimitIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSurroundings(nil)
		for _, limit := range []time.Duration{
			1, lookEvery - 1, lookEvery, lookEvery + 1, 3*lookEvery + lookEvery/2,
		} {
			began := time.Now()
			if got := s.awaitWithin(nil, bounds{limit: limit}); got != byClock {
				t.Errorf("a wait of %v has ended by %d", limit, got)
			}
			if took := time.Since(began); took != limit {
				t.Errorf("a wait of %v has taken %v", limit, took)
			}
		}
	})
}

// TestCallsToWhatHasGone: what reaches a worker when the replica has gone ends at once, and
// certainly has no effect.
func TestCallsToWhatHasGone(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.add(1, 1, "before")
	r := c.nodes[1].replica(1)
	gone := errors.New("gone")
	proposed, read := newCall(r), newCall(r)
	onWorker(r, func() {
		r.worker.retire(r, gone)
		r.worker.propose(&proposal{
			r: r, p: group.Proposal{ID: group.CommandID{1}, Token: proposed},
		})
		r.worker.read(read)
	})
	for _, late := range []*call{proposed, read} {
		select {
		case <-late.done:
		default:
			t.Fatal("a call to what has gone waits")
		}
		if err := late.answer.err; !errors.Is(err, gone) || !NotApplied(err) {
			t.Errorf("a call to what has gone ends with %v", err)
		}
	}
}

// TestProposalThatIsNotApplied proposes what its state machine does not get done, and has
// the wait end in every way: the outcome is not known each time.
func TestProposalThatIsNotApplied(t *testing.T) {
	c := newCluster(t, 2)
	c.createSpec(Spec{ID: 2, Kind: "hooked", Voters: []raftyard.NodeID{2}})
	c.add(2, 2, "a")
	there, release := c.holdWord(2, "X")
	n := c.nodes[2]
	propose := func(ctx context.Context, limit time.Duration, word string) error {
		_, done, err := n.proposeAsLeader(ctx, limit, 2,
			group.Proposal{ID: n.newMessageID(), Data: []byte(word)})
		if !done {
			t.Errorf("proposal of %s is to be made again: %v", word, err)
		}
		return err
	}
	canceled, cancel := context.WithCancel(t.Context())
	go func() {
		<-there
		cancel()
	}()
	if err := propose(canceled, 0, "X"); !errors.Is(err, ErrUnknownOutcome) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("a proposer that has gone gets %v", err)
	}
	if err := propose(t.Context(), time.Millisecond, "Y"); !errors.Is(err, ErrUnknownOutcome) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a proposer without patience gets %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- propose(t.Context(), time.Hour, "Z") }()
	c.eventually("Z is in the log", func() bool {
		st, err := n.RaftStatus(t.Context(), 2)
		return err == nil && st.Commit >= st.Applied+3
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.close(2)
	}()
	if err := <-ended; !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, ErrClosed) {
		t.Errorf("a proposer on a node that closes gets %v", err)
	}
	close(release)
	<-closed
}

// TestNewIDs: ids are of version 4, and no two are the same.
func TestNewIDs(t *testing.T) {
	s := newSurroundings(nil)
	seen := make(map[[16]byte]bool)
	for range 1000 {
		id := s.newID()
		if id.Version() != 4 || id.Variant() != 1 || seen[id] {
			t.Fatalf("id %v has version %d and variant %d, or was there before",
				id, id.Version(), id.Variant())
		}
		seen[id] = true
	}
}

// TestReadDuringRestore: a read waits for a state machine that is being restored, for as long
// as it may take, and goes on when that is done.
func TestReadDuringRestore(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.add(1, 1, "a")
	n := c.nodes[1]
	m := n.replica(1).machine
	read := func(ctx context.Context, at Consistency) error {
		return View(ctx, n, 1, at, func(*list) error { return nil })
	}
	m.access.Lock() // as a restore does
	n.cfg.DefaultTimeout = 20 * time.Millisecond
	for _, at := range []Consistency{Linearizable, Stale} {
		if err := read(t.Context(), at); !errors.Is(err, ErrTimeout) {
			t.Errorf("a read that may not take so long: %v, want %v", err, ErrTimeout)
		}
	}
	n.cfg.DefaultTimeout = testTimeout
	done := make(chan error, 1)
	go func() { done <- read(t.Context(), Linearizable) }()
	select {
	case err := <-done:
		t.Errorf("a read has not waited: %v", err)
	default:
	}
	m.access.Unlock()
	if err := <-done; err != nil {
		t.Errorf("when it is restored: %v", err)
	}
}
