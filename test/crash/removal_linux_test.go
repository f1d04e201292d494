package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestSurvivorOfRemoval removes one of two members while the disk of the other,
// which leads, is slow, and kills the leader when the removed one is gone. The
// leader must not need the vote of the one that is gone when it comes back:
// nobody could ever give it.
func TestSurvivorOfRemoval(t *testing.T) {
	const group raftyard.GroupID = 8 // begins on node 1, which leads it
	strace := cluster.Strace(t)
	c := cluster.New(t, cluster.Config{Nodes: 2})
	c.Start()
	stays, goes := c.Node(1), c.Node(2)
	mustCreate(t, stays, group, 1, 2)
	mustPut(t, stays, group, "before")
	slow := slowSyncs(t, strace, stays.PID())
	decided := make(chan cluster.Answer, 1)
	go func() { // ends with the kill at the latest
		decided <- stays.SetMembers(context.WithoutCancel(t.Context()), group,
			client.Members{Voters: []raftyard.NodeID{1}}, time.Minute)
	}()
	cluster.Eventually(t, time.Minute, "the member that is removed is gone", func() error {
		_, err := goes.Raft(t.Context(), group)
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || p.Code != client.CodeNoReplica {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	stays.Kill()
	<-decided
	_ = slow.Wait() // it has lost whom it traced
	stays.Start()
	stays.AwaitReady(time.Minute)
	cluster.Eventually(t, 20*time.Second, "the group takes writes", func() error {
		return put(t, stays, group, "after")
	})
}

func mustPut(t *testing.T, n *cluster.Node, g raftyard.GroupID, key string) {
	t.Helper()
	if err := put(t, n, g, key); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, n *cluster.Node, g raftyard.GroupID, key string) error {
	t.Helper()
	a := n.Do(t.Context(), cluster.Request{
		Method: http.MethodPut, Path: cluster.KeyPath(g, key), Body: []byte(key),
		Timeout: 2 * time.Second,
	})
	return a.Error()
}

// slowSyncs has every sync of a process take some more time, until it ends.
func slowSyncs(t *testing.T, strace string, pid int) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-q", "-o", os.DevNull,
		"-e", "trace=msync,fdatasync", "-e", "inject=msync,fdatasync:delay_enter=150000",
		"-p", strconv.Itoa(pid))
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, time.Minute, "strace has attached", func() error {
		tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status")
		for _, path := range tasks {
			text, rerr := os.ReadFile(path)
			if rerr == nil && strings.Contains(string(text), "\nTracerPid:\t0\n") {
				err = errors.Join(err, fmt.Errorf("%s: no tracer", path))
			}
		}
		return err
	})
	return cmd
}
