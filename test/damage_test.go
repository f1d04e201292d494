//go:build unix

package test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/vfs/vfstest"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestDamage damages every kind of file of a node's directory in every way, one after the
// other, and starts the node. It must be as if nothing had happened, or say in one line
// what is wrong and go back to work when what was damaged is restored, and when its directory
// is emptied, or rebuild what is damaged; docs/damage.md says which. In every case everything
// that was acknowledged must be there, through each node.
//
//nolint:tparallel // the cells are tried one after the other, on one cluster
func TestDamage(t *testing.T) {
	t.Parallel()
	m := newDamageMatrix(t)
	promised := promisedOutcomes(t)
	got := make(map[string]string)
	for _, k := range damageKinds() {
		for _, f := range damageForms() {
			cell := k.name + " / " + f.name
			if !cluster.FullScale() && !slices.Contains(damageSample(), cell) {
				continue
			}
			t.Run(cell, func(t *testing.T) {
				got[cell] = m.try(t, k, f, slices.Contains(promised[cell], refused))
				if !slices.Contains(promised[cell], got[cell]) {
					t.Errorf("outcome %q, docs/damage.md has %q", got[cell], promised[cell])
				}
			})
		}
	}
	m.table(t, got)
	m.finish(t)
}

// promisedOutcomes reads the table in docs/damage.md: what may come of each cell.
func promisedOutcomes(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../docs/damage.md")
	if err != nil {
		t.Fatal(err)
	}
	promised := make(map[string][]string)
	for line := range strings.Lines(string(b)) {
		fields := strings.Split(line, "|")
		if len(fields) != len(damageForms())+3 || !strings.HasPrefix(line, "| `") {
			continue
		}
		kind := strings.Trim(fields[1], " `")
		for i, f := range damageForms() {
			promised[kind+" / "+f.name] = strings.Split(strings.TrimSpace(fields[i+2]), " or ")
		}
	}
	return promised
}

// damageSample are the cells that are tried for every change: one of each outcome, and with
// more time some more.
func damageSample() []string {
	sample := []string{
		"log/*.jnl / flip middle", "state/*.sst / flip middle", "state/DISCARD / deleted",
	}
	if testing.Short() {
		return sample
	}
	return append(sample, "IDENTITY / half", "sequence / deleted", "log/*.sst / flip middle",
		"log/MANIFEST / deleted", "log/*.val / deleted", "replicas/*/snapshot-* / empty")
}

// A damageKind is files of one purpose.
type damageKind struct {
	name  string // a pattern, below the data directory
	match *regexp.Regexp

	// stop: there is something in the files after a stop, not after a kill.
	stop bool

	// large: there is something in the files when entries are large.
	large bool

	// as is a file that a copy is made of, if there is none of the kind: there is one only now
	// and then.
	as string
}

func damageKinds() []damageKind {
	kind := func(name, match string) damageKind {
		return damageKind{name: name, match: regexp.MustCompile("^" + match + "$")}
	}
	kinds := []damageKind{
		kind("LOCK", "LOCK"), kind("IDENTITY", "IDENTITY"), kind("sequence", "sequence"),
		kind("inventory", "inventory"), kind("probe", "probe"),
	}
	for _, db := range []string{"log", "state"} {
		table := kind(db+"/*.sst", db+`/\d{6}\.sst`)
		table.stop = true
		spare := kind(db+"/*.free", db+`/\d{5}(-new)?\.free`)
		spare.as = db + "/*.jnl"
		kinds = append(kinds, kind(db+"/MANIFEST", db+"/MANIFEST"), table,
			kind(db+"/*.jnl", db+`/\d{5}\.jnl`), spare,
			kind(db+"/*.mem", db+`/\d{5}\.mem`), kind(db+"/*.vlog", db+`/\d{6}\.vlog`),
			kind(db+"/KEYREGISTRY", db+"/KEYREGISTRY"), kind(db+"/DISCARD", db+"/DISCARD"),
			kind(db+"/LOCK", db+"/LOCK"), kind(db+"/RESERVE", db+"/RESERVE"))
	}
	values := kind("log/*.val", `log/\d{5}\.val`)
	values.stop, values.large = true, true
	kinds = append(kinds, values)
	return append(kinds, kind("replicas/*/snapshot-*", `replicas/[^/]+/snapshot-[^/]+`))
}

// A damageForm is a way to damage a file.
type damageForm struct {
	name string
	do   func(path string) error
}

func damageForms() []damageForm {
	flip := func(name string, at func(size int) int) damageForm {
		return damageForm{name, func(path string) error { return flipByte(path, at) }}
	}
	return []damageForm{
		{"empty", func(path string) error { return os.Truncate(path, 0) }},
		{"half", func(path string) error {
			size, err := contentSize(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, int64(size/2))
		}},
		flip("flip start", func(int) int { return 0 }),
		flip("flip middle", func(size int) int { return size / 2 }),
		flip("flip end", func(size int) int { return size - 1 }),
		{"deleted", os.Remove},
		// Whoever may do everything can read every file; a directory nobody can.
		{"unreadable", func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o750)
		}},
	}
}

// contentSize is the size of a file without the zeros at its end.
func contentSize(path string) (int, error) {
	b, err := os.ReadFile(path)
	return len(strings.TrimRight(string(b), "\x00")), err
}

// flipByte turns a bit of the byte at a place that depends on the size of the content. In
// a file without any it is the first one, and one is added if there is none.
func flipByte(path string, at func(size int) int) error {
	size, err := contentSize(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b := []byte{0}
	place := int64(max(0, at(size)))
	if _, err = f.ReadAt(b, place); err == nil || size == 0 {
		b[0] ^= 0x10
		_, err = f.WriteAt(b, place)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// A damageMatrix is a cluster of which one node is damaged again and again.
type damageMatrix struct {
	*cluster.Cluster
	victim *cluster.Node
	groups []raftyard.GroupID
	keys   map[raftyard.GroupID]map[string]string // acknowledged
	cells  int

	aside string // a copy of the victim's directory from before it was damaged, or nothing
	older bool   // such a copy was put back a second time already
}

const damageLimit = 60 * time.Second

func newDamageMatrix(t *testing.T, tolerate ...string) *damageMatrix {
	t.Helper()
	m := &damageMatrix{
		Cluster: cluster.New(t, cluster.Config{
			Tolerate: append(tolerate, "level=error", "replica stopped", "replica not started"),
		}),
		groups: []raftyard.GroupID{1, 2, 3},
		keys:   make(map[raftyard.GroupID]map[string]string),
	}
	m.victim = m.Node(3)
	m.Start()
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries, spec.TrailingEntries = 20, 5
	createGroups(t, m.Nodes(), m.groups, spec)
	for _, g := range m.groups {
		m.keys[g] = make(map[string]string)
	}
	m.write(t, 30, 20)
	return m
}

// write writes some keys of each group through all nodes, each as often as it is told into its
// value.
func (m *damageMatrix) write(t *testing.T, n, times int) {
	t.Helper()
	for _, g := range m.groups {
		for i := range n {
			key := fmt.Sprintf("cell-%03d-%02d", m.cells, i)
			value := strings.Repeat(key, times)
			if err := put(t, m.Nodes()[i%3], g, key, []byte(value)); err != nil {
				t.Fatal(err)
			}
			m.keys[g][key] = value
		}
	}
}

// try damages one file and returns what came of it. If the node may refuse to start then, a
// copy is made before.
func (m *damageMatrix) try(t *testing.T, k damageKind, f damageForm, mayRefuse bool) string {
	t.Helper()
	m.cells++
	m.write(t, 10, 20)
	if k.large {
		m.write(t, 2, 300)
	}
	if strings.HasPrefix(k.name, "replicas/") {
		if a := m.victim.Snapshot(t.Context(), 0, 10*time.Second); a.Error() != nil {
			t.Fatal(a)
		}
	}
	before := m.replicas(t)
	if k.name == "probe" { // it is written when nothing else is
		cluster.Eventually(t, damageLimit, "the node probes its disk", func() error {
			_, err := os.Stat(filepath.Join(m.victim.Dir(), k.name))
			return err
		})
	}
	if k.stop {
		terminate(t, m.victim)
	} else {
		m.victim.Kill()
	}
	path := m.find(t, k)
	if path == "" && k.as != "" {
		path = m.copyOf(t, k)
	}
	if path == "" {
		t.Fatalf("there is no %s", k.name)
	}
	if m.aside = ""; mayRefuse {
		m.keepAside(t)
	}
	if err := f.do(path); err != nil {
		t.Fatal(err)
	}
	damaged := m.inspect(t)
	outcome := m.outcome(t, path, before)
	if damaged != (outcome != noEffect) {
		t.Errorf("inspect says that it is damaged: %t; what came of it: %s", damaged, outcome)
	}
	m.verify(t)
	if err := os.RemoveAll(filepath.Join(m.victim.Dir(), "state.damaged")); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", path, outcome)
	return outcome
}

// find returns the file of a kind that has most in it. There must be no file of no kind.
func (m *damageMatrix) find(t *testing.T, k damageKind) string {
	t.Helper()
	var best string
	most := -1
	err := filepath.WalkDir(m.victim.Dir(), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		below, err := filepath.Rel(m.victim.Dir(), path)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(damageKinds(), func(k damageKind) bool {
			return k.match.MatchString(below)
		}) {
			t.Errorf("%s is a file of no kind that this test knows", below)
		}
		if !k.match.MatchString(below) {
			return nil
		}
		size, err := contentSize(path)
		if size > most {
			best, most = path, size
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return best
}

// copyOf makes a file of a kind of which there may be none, with what another one holds.
func (m *damageMatrix) copyOf(t *testing.T, k damageKind) string {
	t.Helper()
	i := slices.IndexFunc(damageKinds(), func(other damageKind) bool { return other.name == k.as })
	from := m.find(t, damageKinds()[i])
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimSuffix(from, filepath.Ext(from)) + filepath.Ext(k.name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replicas returns the ids of the victim's replicas, when all that they have is applied: a state
// that is ahead of its log tells then what is lost of the log, if only the other members know
// of it otherwise.
func (m *damageMatrix) replicas(t *testing.T) map[raftyard.GroupID]raftyard.ReplicaID {
	t.Helper()
	ids := make(map[raftyard.GroupID]raftyard.ReplicaID)
	for _, g := range append([]raftyard.GroupID{0}, m.groups...) {
		cluster.Eventually(t, damageLimit, "the victim has its replicas", func() error {
			r, err := m.victim.Raft(t.Context(), g)
			ids[g] = r.Replica.Replica
			if err == nil && g != 0 && r.Applied != r.Last {
				err = fmt.Errorf("group %d has applied %d of %d", g, r.Applied, r.Last)
			}
			return err
		})
	}
	return ids
}

// outcome starts the victim and tells what comes of it.
func (m *damageMatrix) outcome(
	t *testing.T, path string, before map[raftyard.GroupID]raftyard.ReplicaID,
) string {
	t.Helper()
	said := len(m.victim.LogLines("raftyard: "))
	complained := len(m.victim.LogLines("level=error"))
	m.victim.Start()
	ended := false
	cluster.Eventually(t, damageLimit, "the victim starts or refuses", func() error {
		ended = !m.victim.Running()
		a := m.victim.Do(t.Context(), cluster.Request{Method: "GET", Path: "/readyz"})
		return want(ended || a.Status == 200, "%v", a)
	})
	if ended {
		m.refused(t, path, m.victim.LogLines("raftyard: ")[said:])
		if m.aside != "" {
			m.restore(t, before)
		}
		m.beginAnew(t)
		return refused
	}
	m.whole(t)
	after := m.replicas(t)
	for g, id := range before {
		if after[g] != id {
			return remade
		}
	}
	if len(m.victim.LogLines("level=error")) > complained {
		return remade // under the same id: the log was sound
	}
	return noEffect
}

// What may come of damage.
const (
	noEffect = "no effect"
	refused  = "refused"
	remade   = "rebuilt"
)

// inspect looks into the victim's directory, which must not be changed by that, and
// reports whether anything is damaged.
func (m *damageMatrix) inspect(t *testing.T) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("RAFTYARD_TEST_BINARY"),
		"inspect", m.victim.Dir(), "verify")
	before := vfstest.Tree(t, m.victim.Dir())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if after := vfstest.Tree(t, m.victim.Dir()); !slices.Equal(before, after) {
		t.Errorf("inspect has changed something: %q, and was %q", after, before)
	}
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && (!failed || exit.ExitCode() != 1) {
		t.Errorf("inspect: %v", err)
	}
	return failed
}

// refused checks what a node has said that did not start.
func (m *damageMatrix) refused(t *testing.T, path string, lines []string) {
	t.Helper()
	if code := m.victim.AwaitExit(damageLimit); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if len(lines) != 1 {
		t.Errorf("the node says %q, want one line", lines)
	}
	line := strings.Join(lines, "; ")
	if !strings.Contains(line, filepath.Base(path)) && !strings.Contains(line, filepath.Dir(path)) {
		t.Errorf("the node says %q, want %s in it", line, path)
	}
	for _, text := range []string{"restore what is damaged as it was", "or empty the directory"} {
		if !strings.Contains(line, text) {
			t.Errorf("the node says %q, want %q in it", line, text)
		}
	}
}

// beginAnew goes the other way on after a refusal: the node rejoins with an empty directory.
func (m *damageMatrix) beginAnew(t *testing.T) {
	t.Helper()
	m.victim.Wipe()
	m.victim.Start()
	m.victim.AwaitReady(damageLimit)
	m.whole(t)
}

// whole waits until every group has three voters without a fault.
func (m *damageMatrix) whole(t *testing.T) {
	t.Helper()
	for _, g := range m.groups {
		what := fmt.Sprintf("group %d is whole", g)
		cluster.Eventually(t, damageLimit, what, func() error {
			got, err := m.Node(1).Group(t.Context(), g)
			if err != nil {
				return err
			}
			if len(got.Problems) > 0 || len(got.Replicas) != 3 {
				return fmt.Errorf("problems %q, replicas %+v", got.Problems, got.Replicas)
			}
			for i := range got.Replicas {
				r := &got.Replicas[i]
				if text := cmp.Or(r.Fault, r.Error); text != "" {
					return fmt.Errorf("replica on node %d: %s", r.Node, text)
				}
			}
			return nil
		})
	}
}

// verify reads everything through each node, and compares the replicas.
func (m *damageMatrix) verify(t *testing.T) {
	t.Helper()
	for _, n := range m.Nodes() {
		for _, g := range m.groups {
			m.verifyGroup(t, n, g)
		}
	}
	verifyHashes(t, m.Nodes(), m.groups)
}

func (m *damageMatrix) verifyGroup(t *testing.T, n *cluster.Node, g raftyard.GroupID) {
	t.Helper()
	seen := make(map[string]string)
	err := n.List(t.Context(), g, client.Linearizable, func(it client.Item) {
		seen[string(it.Key)] = string(it.Value)
	})
	if err != nil {
		t.Fatalf("node %d: group %d: %v", n.ID(), g, err)
	}
	for key, value := range m.keys[g] {
		if seen[key] != value {
			t.Fatalf("node %d: group %d: %s is %.20q..., want %.20q...",
				n.ID(), g, key, seen[key], value)
		}
	}
}

// table tells all outcomes in the form in which docs/damage.md has them.
func (m *damageMatrix) table(t *testing.T, got map[string]string) {
	t.Helper()
	var b strings.Builder
	for _, k := range damageKinds() {
		fmt.Fprintf(&b, "| `%s` ", k.name)
		for _, f := range damageForms() {
			fmt.Fprintf(&b, "| %s ", cmp.Or(got[k.name+" / "+f.name], "-"))
		}
		fmt.Fprintln(&b, "|")
	}
	t.Logf("%d cells\n%s", m.cells, b.String())
}

// finish stops all nodes: none may have been hurt in a way that a process ought not to be.
func (m *damageMatrix) finish(t *testing.T) {
	t.Helper()
	for _, n := range m.Nodes() {
		for _, text := range []string{"panic:", "fatal error:", "SIGBUS", "DATA RACE"} {
			if lines := n.LogLines(text); len(lines) > 0 {
				t.Errorf("node %d: %q", n.ID(), lines)
			}
		}
	}
	terminate(t, m.Nodes()...)
}
