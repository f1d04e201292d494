//go:build unix

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/raftyard/raftyard"
)

// A Node is one node of a [Cluster]: a directory, two addresses, and at most one
// process at a time. Start, Kill, Stop and the like are called by one goroutine
// at a time; requests may be sent by any number.
type Node struct {
	cluster *Cluster
	id      raftyard.NodeID
	dir     string // data
	config  string
	log     string
	http    *port
	peer    *port
	relay   string // where others reach it; empty: directly
	client  *http.Client

	mu      sync.Mutex
	process *process // nil: none runs
}

// A process is one life of a node.
type process struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{} // closed when it has ended
	err  error         // of Wait, once done is closed
}

func newNode(c *Cluster, id raftyard.NodeID, logs string) (_ *Node, err error) {
	name := "n" + id.String()
	n := &Node{
		cluster: c, id: id,
		dir:    filepath.Join(c.dir, name),
		config: filepath.Join(c.dir, name+".yaml"),
		log:    filepath.Join(logs, c.cfg.Label+"-"+name+".log"),
		client: newHTTPClient(),
	}
	n.http, err = reservePort()
	if err != nil {
		return nil, err
	}
	n.peer, err = reservePort()
	if err != nil {
		n.http.release()
		return nil, err
	}
	return n, nil
}

// ID returns the node's id.
func (n *Node) ID() raftyard.NodeID { return n.id }

// Dir returns the data directory.
func (n *Node) Dir() string { return n.dir }

// HTTPAddr returns host:port of the HTTP API, and PeerAddr that for other nodes.
func (n *Node) HTTPAddr() string { return n.http.addr() }

// PeerAddr returns the host:port on which the node listens for other nodes.
func (n *Node) PeerAddr() string { return n.peer.addr() }

// ReachedAt returns the host:port at which other nodes reach the node.
func (n *Node) ReachedAt() string { return cmp.Or(n.relay, n.peer.addr()) }

// writeConfig writes the node's configuration file.
func (n *Node) writeConfig() error {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: %s\nnode:\n  id: %d\n  data_dir: %s\n",
		n.cluster.cfg.Name, n.id, n.dir)
	fmt.Fprintf(&b, "listen:\n  http: %s\n  peer: %s\n", n.http.addr(), n.peer.addr())
	founders := n.cluster.nodes[:n.cluster.cfg.Nodes]
	if !slices.Contains(founders, n) {
		fmt.Fprintf(&b, "advertise:\n  peer: %s\n", n.ReachedAt())
	}
	fmt.Fprint(&b, "nodes:\n")
	for _, p := range founders {
		fmt.Fprintf(&b, "  - {id: %d, peer: \"%s\", http: \"%s\"}\n",
			p.id, p.ReachedAt(), p.http.addr())
	}
	return os.WriteFile(n.config, []byte(b.String()), 0o600)
}

// Configure replaces texts, given in pairs, in the node's configuration file.
func (n *Node) Configure(oldnew ...string) {
	n.cluster.t.Helper()
	b, err := os.ReadFile(n.config)
	if err == nil {
		changed := strings.NewReplacer(oldnew...).Replace(string(b))
		//nolint:gosec // the file is in the test's own directory
		err = os.WriteFile(n.config, []byte(changed), 0o600)
	}
	n.cluster.check(err)
}

// Move gives the node, which must not run, another port for other nodes, and
// writes it into the node's own configuration.
func (n *Node) Move() {
	n.cluster.t.Helper()
	was := n.peer
	next, err := reservePort()
	n.cluster.check(err)
	n.peer = next
	n.Configure(was.addr(), next.addr())
	was.release()
}

// Wipe deletes the data directory of the node, which must not run, as if its disk had
// been replaced.
func (n *Node) Wipe() {
	n.cluster.t.Helper()
	if n.Running() {
		n.cluster.t.Fatalf("node %d runs", n.id)
	}
	n.cluster.check(os.RemoveAll(n.dir))
}

// Start starts the node's process. It does not wait for it to be ready.
func (n *Node) Start() {
	n.cluster.t.Helper()
	n.cluster.check(n.start())
}

func (n *Node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil && !n.process.ended() {
		return fmt.Errorf("node %d runs already", n.id)
	}
	n.http.yield()
	n.peer.yield()
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of node %d: %w", n.id, err)
	}
	// The context of the test must not end a process: tests do, by name.
	//nolint:gosec // which program is tested is up to whoever runs the test
	cmd := exec.CommandContext(context.WithoutCancel(n.cluster.t.Context()),
		os.Getenv(envBinary), "serve", "--config", n.config)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start node %d: %w", n.id, err), out.Close())
	}
	p := &process{cmd: cmd, log: out, done: make(chan struct{})}
	go p.wait() // ends with the process, and close waits for it
	n.process = p
	return nil
}

// wait collects the process when it ends.
func (p *process) wait() {
	defer close(p.done)
	p.err = errors.Join(p.cmd.Wait(), p.log.Close())
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (n *Node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// Running reports whether the node's process has not ended.
func (n *Node) Running() bool {
	p := n.current()
	return p != nil && !p.ended()
}

// PID returns the id of the node's process, which must have been started.
func (n *Node) PID() int { return n.current().cmd.Process.Pid }

// Kill ends the process with SIGKILL.
func (n *Node) Kill() {
	n.cluster.t.Helper()
	n.cluster.Kill(n)
}

func (n *Node) signalKill() error { return n.signal(syscall.SIGKILL) }

// Freeze stops the process with SIGSTOP: its sockets stay open and silent.
func (n *Node) Freeze() {
	n.cluster.t.Helper()
	n.cluster.check(n.signal(syscall.SIGSTOP))
}

// Thaw lets a frozen process go on.
func (n *Node) Thaw() {
	n.cluster.t.Helper()
	n.cluster.check(n.signal(syscall.SIGCONT))
}

// Terminate sends SIGTERM. [Node.AwaitExit] waits for what comes of it.
func (n *Node) Terminate() {
	n.cluster.t.Helper()
	n.cluster.check(n.signal(syscall.SIGTERM))
}

func (n *Node) signal(sig syscall.Signal) error {
	p := n.current()
	if p == nil || p.ended() {
		return fmt.Errorf("node %d does not run, so it cannot get %v", n.id, sig)
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("node %d: %v: %w", n.id, sig, err)
	}
	return nil
}

// await waits for the end of the process.
func (n *Node) await() { <-n.current().done }

// AwaitExit waits until the process has ended, and returns its exit code. It
// fails the test when that does not come within the limit.
func (n *Node) AwaitExit(limit time.Duration) int {
	n.cluster.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	p := n.current()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-timer.C:
		n.cluster.t.Fatalf("node %d has not ended within %v", n.id, limit)
		return -1
	}
}

// AwaitReady waits until the node says that it is ready.
func (n *Node) AwaitReady(limit time.Duration) {
	n.cluster.t.Helper()
	ctx, cancel := context.WithTimeout(n.cluster.t.Context(), limit)
	defer cancel()
	n.cluster.check(n.awaitReady(ctx))
}

func (n *Node) awaitReady(ctx context.Context) error {
	var last Answer
	err := Poll(ctx, func() (bool, error) {
		if !n.Running() {
			return false, fmt.Errorf("node %d has ended: %w", n.id, n.current().err)
		}
		last = n.Do(ctx, Request{Method: http.MethodGet, Path: "/readyz", Timeout: time.Second})
		return last.Status == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("node %d is not ready: %w; its last answer: %s", n.id, err, last)
	}
	return nil
}

// close ends the process, if one runs, and gives back what the node holds.
func (n *Node) close() {
	if p := n.current(); p != nil {
		// An error means that it has ended by itself.
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	n.client.CloseIdleConnections()
	n.http.release()
	n.peer.release()
}
