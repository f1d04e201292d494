package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/cluster"
	"github.com/raftyard/raftyard/test/crash/internal/strace"
)

// syncGroup is the group that is written to.
const syncGroup raftyard.GroupID = 7

// binaryEnv names the program that package cluster starts.
const binaryEnv = "RAFTYARD_TEST_BINARY"

// traced makes every daemon that the test starts run under strace, and returns the
// directory of the traces.
func traced(t *testing.T) string {
	t.Helper()
	program := cluster.Strace(t)
	dir := t.TempDir()
	// With -D the daemon keeps the process id, which is the shell's, and strace
	// goes when it goes.
	script := "#!/bin/sh\nexec '" + program + "' -D -o '" + dir + "'/$$ '" +
		strings.Join(strace.Options(), "' '") + "' -- '" + os.Getenv(binaryEnv) + "' \"$@\"\n"
	path := filepath.Join(dir, "traced")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(binaryEnv, path)
	return dir
}

// traceOf waits until strace has written the end of a process, and reads the trace.
func traceOf(t *testing.T, dir string, pid int) *strace.Trace {
	t.Helper()
	path := filepath.Join(dir, strconv.Itoa(pid))
	var text []byte
	cluster.Eventually(t, time.Minute, "strace has written everything", func() (err error) {
		if text, err = os.ReadFile(path); err != nil {
			return err
		}
		last := strings.LastIndex(strings.TrimSuffix(string(text), "\n"), "\n")
		if !strings.Contains(string(text[last+1:]), " +++ ") ||
			!strings.HasPrefix(string(text[last+1:]), strconv.Itoa(pid)+" ") {
			return fmt.Errorf("the trace ends with %.200q", text[last+1:])
		}
		return nil
	})
	tr, err := strace.Parse(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// logOf matches the journal of a node's log store.
func logOf(n *cluster.Node) func(path string) bool {
	dir := filepath.Join(n.Dir(), "log") + string(filepath.Separator)
	return func(path string) bool {
		return strings.HasPrefix(path, dir) && strings.HasSuffix(path, ".jnl")
	}
}

// marksOf sends writes with values that are unique, by as many clients as there
// are nodes given, and returns the marks that each node was sent: the values.
func marksOf(
	t *testing.T, nodes []*cluster.Node, name string, each int,
) map[*cluster.Node][]string {
	t.Helper()
	marks := make(map[*cluster.Node][]string)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			for k := range each {
				mark := fmt.Sprintf("<%s:%d:%d>", name, i, k)
				key := fmt.Sprintf("%s-%d-%d", name, i, k)
				a := n.Do(t.Context(), cluster.Request{
					Method: "PUT", Path: cluster.KeyPath(syncGroup, key), Body: []byte(mark),
					Timeout: 10 * time.Second,
				})
				if err := a.Error(); err != nil {
					t.Errorf("node %d: %s: %v", n.ID(), mark, err)
					return
				}
				mu.Lock()
				marks[n] = append(marks[n], mark)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return marks
}

// TestAnswerAfterSyncOne shows that a single node answers no write before the command was
// written to its log and a sync that began after that has ended.
func TestAnswerAfterSyncOne(t *testing.T) {
	dir := traced(t)
	c := cluster.New(t, cluster.Config{Nodes: 1})
	c.Start()
	n := c.Node(1)
	mustCreate(t, n, syncGroup, 1)
	alone := marksOf(t, []*cluster.Node{n}, "alone", 30)
	crowd := marksOf(t, []*cluster.Node{n, n, n, n, n, n, n, n}, "crowd", 10)
	pid := stop(t, n)

	tr := traceOf(t, dir, pid)
	commits, err := tr.Commits(logOf(n))
	if err != nil {
		t.Fatal(err)
	}
	marks := slices.Concat(alone[n], crowd[n])
	answers, err := tr.Answers(n.HTTPAddr(), marks)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if !a.HoldsLine(strace.With(commits, a.Mark)) {
			t.Errorf("%s was answered in line %d of the trace; it was not written to the log and "+
				"synced since it came in line %d", a.Mark, a.Before.Begin.Line, a.After.End.Line)
		}
	}
	t.Logf("%d answers, each after its sync; %d system calls, %d writes of the log",
		len(answers), len(tr.Calls), len(commits))
}

// TestAnswerAfterSyncThree shows that of three nodes two have a command in their logs, written
// and synced, before it is answered, through the leader or not; and that no node
// acknowledges an entry before it has the same, or votes before it has written and synced.
func TestAnswerAfterSyncThree(t *testing.T) {
	dir := traced(t)
	c := cluster.New(t, cluster.Config{Nodes: 3})
	c.Start()
	mustCreate(t, c.Node(1), syncGroup, 1, 2, 3)
	var marks []map[*cluster.Node][]string
	for i, n := range c.Nodes() {
		marks = append(marks, marksOf(t, []*cluster.Node{n}, "alone"+strconv.Itoa(i), 15))
	}
	crowd := slices.Repeat(c.Nodes(), 3)
	marks = append(marks, marksOf(t, crowd, "crowd", 8))
	pids := make(map[*cluster.Node]int)
	for _, n := range c.Nodes() {
		pids[n] = stop(t, n)
	}

	var nodes []tracedNode
	for _, n := range c.Nodes() {
		nodes = append(nodes, newTracedNode(t, n, traceOf(t, dir, pids[n])))
	}
	checked := 0
	var all []string
	for _, m := range marks {
		for n, sent := range m {
			all = append(all, sent...)
			checked += checkQuorum(t, nodes, n, sent)
		}
	}
	acks, votes := 0, 0
	for _, n := range nodes {
		a, v := n.checkVouches(t, all)
		acks, votes = acks+a, votes+v
	}
	if acks < len(all)/2 {
		t.Errorf("only %d acknowledgements of %d entries were found", acks, len(all))
	}
	if votes == 0 {
		t.Error("no vote was found")
	}
	t.Logf("%d answers, each after syncs on two nodes; %d acknowledgements and %d votes, "+
		"each after its sync", checked, acks, votes)
}

// A tracedNode is what a trace shows of a node.
type tracedNode struct {
	node          *cluster.Node
	trace         *strace.Trace
	commits       []strace.Commit
	read, written []strace.Message
}

func newTracedNode(t *testing.T, n *cluster.Node, tr *strace.Trace) tracedNode {
	t.Helper()
	tn := tracedNode{node: n, trace: tr}
	var err error
	if tn.commits, err = tr.Commits(logOf(n)); err != nil {
		t.Fatalf("node %d: %v", n.ID(), err)
	}
	in, err := tr.Read()
	if err == nil {
		tn.read, err = strace.Messages(in)
	}
	if err != nil {
		t.Fatalf("node %d: %v", n.ID(), err)
	}
	out, err := tr.Written()
	if err == nil {
		tn.written, err = strace.Messages(out)
	}
	if err != nil {
		t.Fatalf("node %d: %v", n.ID(), err)
	}
	return tn
}

// checkQuorum checks what a node has answered: two logs had it before.
func checkQuorum(t *testing.T, nodes []tracedNode, at *cluster.Node, marks []string) int {
	t.Helper()
	answers, err := nodes[at.ID()-1].trace.Answers(at.HTTPAddr(), marks)
	if err != nil {
		t.Fatalf("node %d: %v", at.ID(), err)
	}
	for _, a := range answers {
		synced := 0
		for _, n := range nodes {
			commits := strace.With(n.commits, a.Mark)
			if (n.node == at && a.HoldsLine(commits)) || (n.node != at && a.HoldsTime(commits)) {
				synced++
			}
		}
		if synced < 2 {
			t.Errorf("node %d answered %s when %d nodes had it in their logs",
				at.ID(), a.Mark, synced)
		}
	}
	return len(answers)
}

// checkVouches checks the acknowledgements and votes that a node has sent.
func (n *tracedNode) checkVouches(t *testing.T, marks []string) (acks, votes int) {
	t.Helper()
	a := strace.Acks(n.read, n.written, marks)
	v := strace.Votes(n.read, n.written)
	for _, ack := range a {
		n.checkVouch(t, ack, strace.With(n.commits, ack.What))
	}
	for _, vote := range v {
		n.checkVouch(t, vote, n.commits)
	}
	return len(a), len(v)
}

// checkVouch checks that one of the commits lies between what a node was asked and its answer.
func (n *tracedNode) checkVouch(t *testing.T, v strace.Vouch, commits []strace.Commit) {
	t.Helper()
	if !v.HoldsLine(commits) {
		t.Errorf("node %d vouched for %s in line %d of its trace; it was not written to the log "+
			"and synced since line %d", n.node.ID(), v.What, v.Before.Begin.Line, v.After.End.Line)
	}
}

// stop has a node end, and returns the id that its process had.
func stop(t *testing.T, n *cluster.Node) int {
	t.Helper()
	pid := n.PID()
	n.Terminate()
	if code := n.AwaitExit(time.Minute); code != 0 {
		t.Errorf("node %d ended with %d", n.ID(), code)
	}
	return pid
}
