package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/raftyard/raftyard"
)

// base is a configuration to which scripts add lines; those begin at line 4.
const base = `cluster: c
node: {id: 1, data_dir: DIR/data}
nodes: [{id: 1, peer: "127.0.0.1:8701", http: "127.0.0.1:8700"}, {id: 2, peer: "127.0.0.1:8711"}]
`

// TestScripts runs testdata/*: configurations and every message that they get.
//
//	load          the input is the whole file
//	add           the input follows base
//	flags         base, and each line of the input is a flag=value
//
// All take env=(NAME=value) and flag=(name=value). DIR is an empty directory,
// FILE a file.
func TestScripts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("DIR", dir, "FILE", file)
	hide := strings.NewReplacer(file, "FILE", dir+string(filepath.Separator), "DIR/")
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			env, flags := pairs(d, "env"), pairs(d, "flag")
			text := d.Input + "\n"
			switch d.Cmd {
			case "load":
			case "add":
				text = base + text
			case "flags":
				for line := range strings.Lines(text) {
					name, val, _ := strings.Cut(strings.TrimSpace(line), "=")
					flags[name] = val
				}
				text = base
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			path := filepath.Join(t.TempDir(), "node.yaml")
			if err := os.WriteFile(path, []byte(names.Replace(text)), 0o600); err != nil {
				t.Fatal(err)
			}
			loaded, err := Load(Sources{
				File:      path,
				LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
				Flags:     flags,
			})
			return strings.ReplaceAll(hide.Replace(outcome(loaded, err)), path, "node.yaml")
		})
	})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("loading wrote into the data directory: %v, %v", entries, err)
	}
}

func pairs(d *datadriven.TestData, name string) map[string]string {
	got := map[string]string{}
	for _, arg := range d.CmdArgs {
		if arg.Key != name {
			continue
		}
		key, val, _ := strings.Cut(strings.Join(arg.Vals, ", "), "=")
		got[key] = val
	}
	return got
}

func outcome(loaded *Loaded, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, w := range loaded.Warnings {
		b.WriteString(w.String() + "\n")
	}
	for _, e := range loaded.Effective() {
		if strings.HasPrefix(e.Key, "limits.") && e.Origin == "default" {
			continue // there are many, and TestLoadMergesLayers has them
		}
		b.WriteString(e.Key + " = " + e.Value + " <- " + e.Origin + "\n")
	}
	return b.String()
}

func TestLoadMergesLayers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "node.yaml")
	text := strings.ReplaceAll(base, "DIR", dir) + "raft: {tick: 50ms, heartbeat_ticks: 3}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"RAFTYARD_RAFT_HEARTBEAT_TICKS": "4",
		"RAFTYARD_DATA_DIR":             dir + "/env",
	}
	loaded, err := Load(Sources{
		File:      path,
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Flags:     map[string]string{"data-dir": dir + "/flag", "election-ticks": "20"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Cluster: "c",
		Node:    Node{ID: 1, DataDir: dir + "/flag"},
		Listen:  Listen{HTTP: "127.0.0.1:8700", Peer: "127.0.0.1:8701"},

		Advertise: Advertise{HTTP: "127.0.0.1:8700", Peer: "127.0.0.1:8701"},
		Nodes: []Peer{
			{ID: 1, Peer: "127.0.0.1:8701", HTTP: "127.0.0.1:8700"},
			{ID: 2, Peer: "127.0.0.1:8711"},
		},
		Raft: Raft{
			Tick: 50 * time.Millisecond, ElectionTicks: 20, HeartbeatTicks: 4, SleepTicks: 30,
		},
		Disk: Disk{
			SlowSync: time.Second, StuckSync: 10 * time.Second, FailSync: 20 * time.Second,
			ScrubRate: 4 << 20, SnapshotRate: 128 << 20,
		},
		Limits: Limits{
			Memory: 1 << 30, HTTPConnections: 8192, HTTPRequests: 4096,
			HTTPBodyBytes: 256 << 20, HTTPAnswerBytes: 256 << 20,
			PeerRequests: 2048, PeerRequestBytes: 64 << 20, PeerQueueBytes: 64 << 20,
			WorkerQueueBytes: 64 << 20, ProposalBytes: 16 << 20,
			UnsavedBytes: 128 << 20, ApplyBacklogBytes: 128 << 20, EntryCacheBytes: 64 << 20,
			SnapshotSends: 4, SnapshotReceives: 4,
			StateBlockCacheBytes: 16 << 20, StateIndexCacheBytes: 8 << 20,
		},
		Log: Log{Level: "info", Format: "text"},
	}
	if diff := cmp.Diff(want, loaded.Config); diff != "" {
		t.Errorf("merged configuration (-want +got):\n%s", diff)
	}
	origins := map[string]string{}
	for _, e := range loaded.Effective() {
		origins[e.Key] = e.Origin
	}
	for key, want := range map[string]string{
		"raft.tick":            path + ":4",
		"raft.heartbeat_ticks": "RAFTYARD_RAFT_HEARTBEAT_TICKS",
		"raft.election_ticks":  "--election-ticks",
		"node.data_dir":        "--data-dir",
		"listen.http":          path + ":3",
		"log.level":            "default",
	} {
		if origins[key] != want {
			t.Errorf("origin of %s = %q, want %q", key, origins[key], want)
		}
	}
}

func TestExampleLoads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(path, []byte(Example()), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(Sources{File: path})
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded.Warnings) > 0 {
		t.Errorf("warnings: %v", loaded.Warnings)
	}
	wantGroup := Group{
		ID: 1, Kind: "kv", Voters: []raftyard.NodeID{1, 2, 3}, SnapshotEntries: 10000,
	}
	if diff := cmp.Diff([]Group{wantGroup}, loaded.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	for _, s := range Settings() {
		_, name := split(s.Key)
		if !strings.Contains(Example(), name+":") {
			t.Errorf("the example does not show %s", s.Key)
		}
	}
}

// TestEffectiveCanBePasted: what show prints of the lists loads again as a flag.
func TestEffectiveCanBePasted(t *testing.T) {
	dir := t.TempDir()
	flags := map[string]string{
		"cluster": "c", "node-id": "1", "data-dir": dir,
		"nodes": `[{id: 1, peer: "[::1]:8701", http: "h:1",
			labels: {zone: "a: b, \"c\"\n", t: "true"}}, {id: 2, peer: "p:2"}]`,
		"groups": "[{id: 18446744073709551615, kind: kv, voters: [1], learners: [2], " +
			"trailing_entries: 7}]",
	}
	first, err := Load(Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range first.Effective() {
		for _, s := range Settings() {
			if s.Key == e.Key {
				flags[s.Flag] = e.Value
			}
		}
	}
	second, err := Load(Sources{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Config, second.Config); diff != "" {
		t.Errorf("loaded again (-first +second):\n%s", diff)
	}
}

func TestUnreadableFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	_, err := Load(Sources{File: missing})
	bad, ok := errors.AsType[*Error](err)
	if !ok || !strings.Contains(bad.Problems[0].String(), missing+": cannot be read") {
		t.Errorf("Load of a missing file = %v, want it to say so", err)
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Sources{File: large}); !strings.Contains(err.Error(), "over 1048576 bytes") {
		t.Errorf("Load of a large file = %v, want it to name the limit", err)
	}
}

func TestSettingsAreConsistent(t *testing.T) {
	envs, flags := map[string]bool{}, map[string]bool{}
	for _, s := range Settings() {
		if envs[s.Env] || flags[s.Flag] || s.Usage == "" {
			t.Errorf("setting %s: variable or flag given twice, or no usage", s.Key)
		}
		envs[s.Env], flags[s.Flag] = true, true
	}
	if !slices.Contains(Kinds(), "kv") {
		t.Error("kv is not a kind")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte(Example()))
	f.Add([]byte("a: &x [*x, !!str 1]\n<<: *x\n? [1]\n: 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := &loader{settings: Settings(), loaded: &Loaded{origins: map[string]Origin{}}}
		l.decoder = &decoder{report: &l.report, origins: l.loaded.origins}
		root, ok := parse(data, Origin{Layer: File, Name: "f"}, &l.report)
		if !ok && len(l.report.problems) == 0 {
			t.Errorf("parse(%q) failed without a problem", data)
		}
		l.decoder.mapping(root, "", l.fileEntries(""))
	})
}
