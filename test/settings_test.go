//go:build unix

package test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/test/cluster"
)

const (
	exitFailure = 1
	exitUsage   = 2
)

// settings is a configuration that a node would start with. DIR is a directory, FILE a
// file in it, HTTP and PEER are ports that are free, and USED is one that is not.
const settings = `cluster: c
node: {id: 1, data_dir: DIR/data}
listen: {http: "127.0.0.1:HTTP", peer: "127.0.0.1:PEER"}
nodes: [{id: 1, peer: "127.0.0.1:PEER", http: "127.0.0.1:HTTP"}]
`

// A nonsense is a way to start a node that must be refused.
type nonsense struct {
	name string
	// was is replaced by is, and add comes behind the configuration.
	was, is, add string
	env          string
	flags        []string
	code         int // default: exitUsage
	// want are in one line, which names the key, the value and what is wanted.
	want []string
}

var nonsenses = []nonsense{
	{
		name: "unknown section", add: "grops: []",
		want: []string{":5: grops: unknown key", "mean groups?"},
	},
	{name: "unknown key", add: "raft: {tik: 1s}", want: []string{`raft.tik: "1s": unknown key`}},
	{name: "key twice", add: "cluster: d", want: []string{"cluster: given twice"}},
	{
		name: "no duration", add: "raft: {tick: 100mss}",
		want: []string{`raft.tick: "100mss"`, "5ms to 10s"},
	},
	{
		name: "no unit", add: "raft: {tick: 100}",
		want: []string{`raft.tick: "100"`, "such as 100ms"},
	},
	{name: "too long", add: "raft: {tick: 1h}", want: []string{`raft.tick: "1h"`, "5ms to 10s"}},
	{name: "tick of zero", add: "raft: {tick: 0s}", want: []string{`raft.tick: "0s"`}},
	{
		name: "heartbeats rarer than elections",
		add:  "raft: {election_ticks: 5, heartbeat_ticks: 10}",
		want: []string{`raft.election_ticks: "5"`, "3 times heartbeat_ticks, which is 10"},
	},
	{
		name: "stuck before slow", add: "disk: {slow_sync: 20s, stuck_sync: 10s}",
		want: []string{`disk.stuck_sync: "10s"`, "more than disk.slow_sync, which is 20s"},
	},
	{
		name: "snapshots after half an entry",
		add:  "groups: [{id: 1, kind: kv, voters: [1], snapshot_entries: 0.5}]",
		want: []string{`groups[0].snapshot_entries: "0.5"`, "an integer from"},
	},
	{
		name: "snapshots after fewer than none",
		add:  "groups: [{id: 1, kind: kv, voters: [1], snapshot_entries: -4}]",
		want: []string{`groups[0].snapshot_entries: "-4"`, "an integer from"},
	},
	{
		name: "unknown kind", add: "groups: [{id: 1, kind: kw, voters: [1]}]",
		want: []string{`groups[0].kind: "kw"`, "mean kv?"},
	},
	{
		name: "no voters", add: "groups: [{id: 1, kind: kv, voters: []}]",
		want: []string{`groups[0].voters`, "at least one node id"},
	},
	{name: "certificate", add: "tls: {cert: DIR/none.pem}", want: []string{"tls: not supported"}},
	{
		name: "unknown level", add: "log: {level: inof}",
		want: []string{`log.level: "inof"`, "mean info?"},
	},
	{name: "no YAML", add: "log: [1", want: []string{"not valid YAML"}},
	{
		name: "id of zero", was: "node: {id: 1", is: "node: {id: 0",
		want: []string{`node.id: "0"`, "from 1 to"},
	},
	{
		name: "not in nodes", was: "node: {id: 1", is: "node: {id: 2",
		want: []string{"listen.peer", "the address of node 1"},
	},
	{
		name: "id twice", was: "nodes: [", is: `nodes: [{id: 1, peer: "h:1"}, `,
		want: []string{`nodes[1].id: "1"`, "the same as nodes[0].id"},
	},
	{
		name: "directory is a file", was: "DIR/data", is: "FILE",
		want: []string{"node.data_dir", "FILE is a file, want a directory"},
	},
	{
		name: "directory below a file", was: "DIR/data", is: "FILE/data",
		want: []string{"node.data_dir", "FILE/data", "can be written"},
	},
	{
		name: "one port for both", was: "127.0.0.1:PEER\"}\n", is: "127.0.0.1:HTTP\"}\n",
		want: []string{"listen.peer", "the same address as listen.http"},
	},
	{
		name: "no brackets", was: `peer: "127.0.0.1:PEER"}`, is: `peer: "::1:PEER"}`,
		want: []string{"listen.peer", "stands in brackets"},
	},
	{
		name: "a URL", was: `http: "127.0.0.1:HTTP", peer`, is: `http: "http://h:HTTP", peer`,
		want: []string{"listen.http", "no scheme here"},
	},
	{
		name: "port out of range", was: `peer: "127.0.0.1:PEER"}`, is: `peer: "127.0.0.1:70000"}`,
		want: []string{`listen.peer: "127.0.0.1:70000"`, "host:port"},
	},
	{
		name: "port in use", was: `http: "127.0.0.1:HTTP", peer`,
		is: `http: "127.0.0.1:USED", peer`, code: exitFailure,
		want: []string{"listen.http: 127.0.0.1:USED is taken by another process"},
	},
	{
		name: "port for nodes in use", was: `peer: "127.0.0.1:PEER"}` + "\nn",
		is: `peer: "127.0.0.1:USED"}` + "\nn", code: exitFailure,
		want: []string{"listen.peer: 127.0.0.1:USED is taken by another process"},
	},
	{
		name: "bad flag", flags: []string{"--node-id", "two"},
		want: []string{`--node-id: node.id: "two"`},
	},
	{name: "unknown flag", flags: []string{"--tikc", "1s"}, want: []string{"unknown flag: --tikc"}},
	{
		name: "an argument", flags: []string{"more"},
		want: []string{`serve takes no argument, got "more"`},
	},
	{
		name: "bad variable", env: "RAFTYARD_RAFT_TICK=1x",
		want: []string{`RAFTYARD_RAFT_TICK: raft.tick: "1x"`},
	},
	{
		name: "no file", flags: []string{"--config", "DIR/none"},
		want: []string{"DIR/none: cannot be read"},
	},
	{name: "empty file", was: settings, is: "# nothing", want: []string{"the file is empty"}},
}

// TestNonsenseSettings starts nodes with settings that cannot be meant. Each ends at once,
// with one line that names the key, its value and what is wanted, and has written nothing.
func TestNonsenseSettings(t *testing.T) {
	t.Parallel()
	used, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := used.Close(); err != nil {
			t.Error(err)
		}
	})
	// A node that is never started keeps two ports free.
	free := cluster.New(t, cluster.Config{Nodes: 1}).Node(1)
	for i := range nonsenses {
		n := &nonsenses[i]
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put := strings.NewReplacer("DIR", dir, "FILE", filepath.Join(dir, "file"),
				"HTTP", portOf(free.HTTPAddr()), "PEER", portOf(free.PeerAddr()),
				"USED", portOf(used.Addr().String())).Replace
			n.check(t, dir, put)
		})
	}
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// check starts a node in a directory; put replaces what stands for something.
func (n *nonsense) check(t *testing.T, dir string, put func(string) string) {
	t.Helper()
	config := settings + n.add + "\n"
	if n.was != "" {
		if config = strings.Replace(settings, n.was, n.is, 1); config == settings {
			t.Fatal("nothing is replaced")
		}
	}
	path := filepath.Join(t.TempDir(), "node.yaml")
	err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
		os.WriteFile(path, []byte(put(config)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--config", path}
	for _, f := range n.flags {
		args = append(args, put(f))
	}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv("RAFTYARD_TEST_BINARY"), args...)
	if n.env != "" {
		cmd.Env = append(os.Environ(), n.env)
	}
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if want := cmp.Or(n.code, exitUsage); !ok || exit.ExitCode() != want {
		t.Errorf("it ends with %v, want exit code %d", err, want)
	}
	said := func(line string) bool {
		lacks := func(w string) bool { return !strings.Contains(line, put(w)) }
		return strings.HasPrefix(line, "raftyard: ") && !slices.ContainsFunc(n.want, lacks)
	}
	if !slices.ContainsFunc(strings.Split(string(out), "\n"), said) {
		t.Errorf("it says\n%s\nwant a line with %q", out, n.want)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("it has left %v, %v, want the file that was there", left, err)
	}
}
