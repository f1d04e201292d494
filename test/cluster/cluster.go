//go:build unix

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/linear"
)

// Config says what cluster a test wants. The zero value is three nodes with the
// daemon's defaults.
type Config struct {
	// Name is the cluster's. Default: test.
	Name string
	// Label names the cluster in file names, when a test has two of one name.
	// Default: Name.
	Label string
	// Nodes is how many found the cluster; their ids are 1, 2, ... Default: 3.
	// [Cluster.Add] makes those that join later.
	Nodes int
	// Links has the nodes reach each other through a [Network].
	Links bool
	// Tolerate holds texts that excuse a line of a log which would otherwise fail
	// the test.
	Tolerate []string
}

// A Cluster is the nodes of one test. Its methods fail the test when they cannot
// do what they say; those that may do so are called from the test's goroutine.
type Cluster struct {
	t     testing.TB
	cfg   Config
	dir   string
	logs  string // the directory of the nodes' logs
	nodes []*Node
	net   *Network // nil: the nodes reach each other directly
}

// New prepares a cluster: directories, ports and configuration files. Nothing
// runs yet.
func New(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	cfg.Name = cmp.Or(cfg.Name, "test")
	cfg.Label = cmp.Or(cfg.Label, cfg.Name)
	cfg.Nodes = cmp.Or(cfg.Nodes, 3)
	if os.Getenv(envBinary) == "" {
		t.Fatal("there is no daemon: the package's TestMain must call cluster.Main")
	}
	c := &Cluster{t: t, cfg: cfg, dir: t.TempDir(), logs: t.ArtifactDir()}
	t.Cleanup(c.close) // after TempDir, and so done before the directory goes
	if cfg.Links {
		c.net = newNetwork()
	}
	for range cfg.Nodes {
		c.append()
	}
	for _, n := range c.nodes {
		c.check(n.writeConfig())
	}
	return c
}

// append makes one more node, which has no configuration yet.
func (c *Cluster) append() *Node {
	c.t.Helper()
	n, err := newNode(c, raftyard.NodeID(len(c.nodes)+1), c.logs)
	c.check(err)
	c.nodes = append(c.nodes, n)
	if c.net != nil {
		n.relay, err = c.net.join(n.id, n.PeerAddr)
		c.check(err)
	}
	return n
}

// Add makes one more node with the next id, which does not found the cluster. It joins
// when it runs and one of the others has been told of it, with [Node.PutNode].
func (c *Cluster) Add() *Node {
	c.t.Helper()
	n := c.append()
	c.check(n.writeConfig())
	return n
}

func (c *Cluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// Node returns the node with the id.
func (c *Cluster) Node(id raftyard.NodeID) *Node { return c.nodes[id-1] }

// Nodes returns all nodes in the order of their ids.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// Network returns what the nodes reach each other through. It is nil unless
// Config.Links asks for it.
func (c *Cluster) Network() *Network { return c.net }

// Start starts all nodes at once and waits until they are ready.
func (c *Cluster) Start() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.Start()
	}
	c.AwaitReady(time.Minute)
}

// AwaitReady waits until every node that runs says that it is ready.
func (c *Cluster) AwaitReady(limit time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	for _, n := range c.nodes {
		if n.Running() {
			c.check(n.awaitReady(ctx))
		}
	}
}

// Kill kills the nodes with SIGKILL, all of them before it waits for any.
func (c *Cluster) Kill(nodes ...*Node) {
	c.t.Helper()
	for _, n := range nodes {
		c.check(n.signalKill())
	}
	for _, n := range nodes {
		n.await()
	}
}

// close ends every process, then looks at the logs.
func (c *Cluster) close() {
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(n.close)
	}
	wg.Wait()
	if c.net != nil {
		c.net.close()
	}
	for _, n := range c.nodes {
		if complaints := n.complaints(); len(complaints) > 0 {
			c.t.Errorf("node %d says what it ought not to have to say:\n\t%s",
				n.id, strings.Join(complaints, "\n\t"))
		}
	}
	if !c.t.Failed() {
		return
	}
	for _, n := range c.nodes {
		c.t.Logf("the end of %s:\n%s", n.log, n.logEnd())
		if err := n.keepLog(linear.ArtifactDir(c.t)); err != nil {
			c.t.Errorf("keep the log of node %d: %v", n.id, err)
		}
	}
}

// AllocatedBytes returns how much of the disk a directory takes, which of a
// sparse file is less than its size.
func AllocatedBytes(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil {
			var info os.FileInfo
			if info, err = e.Info(); err == nil {
				sum += allocated(info)
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	return sum, nil
}
