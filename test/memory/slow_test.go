//go:build linux

package memory

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/cluster"
	"github.com/raftyard/raftyard/transport"
)

// envSlow, when it is set, makes the test binary a process that runs the nodes of
// [TestSlowStateMachines]: it names their directory.
const envSlow = "RAFTYARD_MEMORY_SLOW"

// slowReady is what that process says when it begins to write.
const slowReady = "ready"

// slowGroups is how many groups have slow state machines: with the backlog that each may
// have there would be gigabytes.
const slowGroups = 64

// slow is a state machine that takes ten seconds for a megabyte until it is to stop, and
// keeps nothing.
type slow struct{ stop <-chan struct{} }

func (s slow) Apply(batch []group.Command) ([]group.Result, error) {
	bytes := 0
	for i := range batch {
		bytes += len(batch[i].Data)
	}
	cluster.Pause(s.stop, time.Duration(bytes)*10*time.Second/mib)
	return make([]group.Result, len(batch)), nil
}

func (slow) Snapshot() (group.Snapshot, error) { return nothing{}, nil }
func (slow) Restore(io.Reader) error           { return nil }
func (slow) Close() error                      { return nil }

type nothing struct{}

func (nothing) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write([]byte{0})
	return int64(n), err
}

func (nothing) Close() error { return nil }

// slowMain runs three nodes and writes to all groups until its input ends. It prints how
// writes have ended, and what the nodes say.
func slowMain() int {
	if err := slowNodes(os.Getenv(envSlow)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func slowNodes(dir string) (err error) {
	network := transport.NewMemory(1)
	var peers []node.Peer
	for id := raftyard.NodeID(1); id <= 3; id++ {
		peers = append(peers, node.Peer{ID: id, Addr: transport.MemoryAddr(id)})
	}
	var nodes []*node.Node
	stop := make(chan struct{})
	defer func() {
		close(stop)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, n := range nodes {
			err = errors.Join(err, n.Close(ctx))
		}
	}()
	for _, p := range peers {
		n, err := node.Open(context.Background(), node.Config{
			ID: p.ID, Dir: filepath.Join(dir, p.ID.String()), Cluster: "slow", Peers: peers,
			Network: network,
			Kinds: map[string]group.Factory{
				"slow": func(group.Env) (group.StateMachine, error) { return slow{stop}, nil },
			},
		})
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	failed := make([]error, slowGroups)
	var wg sync.WaitGroup
	for i := range failed {
		wg.Go(func() {
			spec := node.Spec{
				ID: raftyard.GroupID(i + 1), Kind: "slow", Voters: []raftyard.NodeID{1, 2, 3},
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, failed[i] = nodes[0].CreateGroup(ctx, spec)
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	fmt.Println(slowReady)
	return slowWrites(nodes)
}

// slowWrites writes until the input ends. Writers do not wait for more than a second, so
// that what they have proposed waits without them.
func slowWrites(nodes []*node.Node) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied, overloaded, unknown, other := 0, 0, 0, 0
	for i := range 2 * slowGroups {
		wg.Go(func() {
			data := noise(512 << 10)
			for ctx.Err() == nil {
				one, done := context.WithTimeout(ctx, time.Second)
				_, err := nodes[i%3].Propose(one, raftyard.GroupID(i%slowGroups+1), data)
				done()
				mu.Lock()
				switch {
				case err == nil:
					applied++
				case errors.Is(err, node.ErrOverloaded) && node.NotApplied(err):
					overloaded++
				case errors.Is(err, node.ErrUnknownOutcome):
					unknown++
				default:
					other++
				}
				mu.Unlock()
				if err != nil {
					pause(ctx.Done())
				}
			}
		})
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	refused := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return overloaded > 0
	}
	// On a busy machine it takes longer until so much waits that writes are refused.
	for left := 600; left > 0 && !refused(); left-- {
		cluster.Pause(ctx.Done(), 100*time.Millisecond)
	}
	var waits int64
	for _, n := range nodes {
		waits = max(waits, n.Metrics().ApplyBacklogBytes)
	}
	cancel()
	wg.Wait()
	fmt.Printf("applied %d overloaded %d unknown %d other %d; %d MiB wait on one node\n",
		applied, overloaded, unknown, other, waits/mib)
	return err
}

// TestSlowStateMachines: state machines that are much slower than the log, in many groups,
// under writes that do not wait for them. Three nodes are one process here.
func TestSlowStateMachines(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), envSlow+"="+t.TempDir(), "GOMEMLIMIT=3GiB")
	var errs strings.Builder
	cmd.Stderr = &errs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil || line != slowReady+"\n" {
		t.Fatalf("it says %q, %v, %v: %s", line, err, cmd.Wait(), errs.String())
	}
	w := newWatch(t, &watch{processes: []process{processID(cmd.Process.Pid)}})
	cluster.Pause(t.Context().Done(), 2*lasts())
	w.end()
	err = in.Close()
	out, readErr := io.ReadAll(lines)
	if err = errors.Join(err, readErr, cmd.Wait()); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
	t.Logf("%s", out)
	if bytes.Contains(out, []byte("overloaded 0 ")) {
		t.Error("nobody was refused")
	}
	w.check(t, 3*ownBound)
}

// processID is a process that is no node of a cluster.
type processID int

// Memory returns the memory of the process.
func (p processID) Memory() (cluster.Memory, error) {
	return cluster.MemoryOf(strconv.Itoa(int(p)))
}
