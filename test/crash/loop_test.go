//go:build unix

package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

const (
	// startLimit is how long a child may take until its groups take writes.
	startLimit = 60 * time.Second
	// workLimit is how long a child works when the phase that is aimed at does not come.
	workLimit = 1500 * time.Millisecond
)

// A loop kills children that work on the same directories, one after the other.
type loop struct {
	t      *testing.T
	ctx    context.Context // its end kills the child
	dice   *rand.Rand
	orders orders
	ledger *ledger

	// patience is how long a child works if the moment aimed at does not come.
	patience time.Duration
	// listens, ready and acked hear where a node listens (id and address), that a
	// child is ready, and that a group has acknowledged something. They may be nil.
	listens func(text string)
	ready   func()
	acked   func(v *life, g raftyard.GroupID)

	lives  int
	phases map[string]int // how often each phase came, over all lives
	hits   map[string]int // how often a child was killed in the phase aimed at
	aimed  map[string]int
	starts []time.Duration
}

func newLoop(t *testing.T, nodes, groups int) *loop {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &loop{
		t: t, ctx: t.Context(), dice: rand.New(rand.NewPCG(seed, 0)), ledger: newLedger(),
		patience: workLimit,
		orders:   orders{Dir: t.TempDir(), Seed: seed, Nodes: nodes, Groups: groups},
		phases:   make(map[string]int), hits: make(map[string]int), aimed: make(map[string]int),
	}
}

// takeAim picks a moment in one of the phases, or some time after the start if
// there are none.
func (l *loop) takeAim(phases []string) aim {
	if len(phases) == 0 {
		return aim{Delay: time.Duration(l.dice.IntN(600)) * time.Millisecond}
	}
	a := aim{
		Phase: phases[l.dice.IntN(len(phases))],
		Nth:   1 + l.dice.IntN(5),
		Early: l.dice.IntN(4) == 0,
		Hold:  l.dice.IntN(2) == 0,
		Delay: time.Duration(l.dice.IntN(20_000)) * time.Microsecond,
	}
	switch a.Phase {
	case sayStart:
		a = aim{Delay: time.Duration(l.dice.IntN(600)) * time.Millisecond}
	case sayOK, sayTry:
		a.Nth, a.Hold, a.Early = 1+l.dice.IntN(300), false, false
	case phaseOpen:
		a.Early = true // that is when it comes
	case phaseDestroy, phaseDestroy2:
		a.Delay /= 10 // what others do not know yet they soon will
	}
	return a
}

// sayStart is the phase in takeAim that stands for the start of the process.
const sayStart = "start"

// run kills so many children in the given phases, and then has one show what there
// is and end. It stops at the first thing that is wrong.
func (l *loop) run(kills int, phases ...string) {
	l.t.Helper()
	for range kills {
		if !l.live(l.takeAim(phases)) {
			break
		}
	}
	if len(l.ledger.complaints) == 0 {
		l.check()
	}
	if len(l.ledger.complaints) > 0 {
		l.t.Errorf("life %d, to be killed %v:\n%s", l.lives, l.orders.Aim,
			strings.Join(l.ledger.complaints, "\n"))
	}
}

// check has a child show what there is, and close.
func (l *loop) check() {
	l.t.Helper()
	l.orders.Check = true
	l.live(aim{})
	l.orders.Check = false
}

// A life is one child.
type life struct {
	loop  *loop
	aim   aim
	cmd   *exec.Cmd
	begun time.Time
	late  *time.Timer // until it must be ready
	kill  *time.Timer // once it is known when
	count int
	ready bool
	hit   bool
}

// live runs one child until it is killed as aimed, and reports whether nothing was
// wrong with it.
func (l *loop) live(a aim) bool {
	l.t.Helper()
	l.lives++
	l.orders.Life, l.orders.Aim = l.lives, a
	l.ledger.begin()
	text, err := json.Marshal(l.orders)
	if err != nil {
		l.t.Fatal(err)
	}
	v := &life{loop: l, aim: a}
	v.cmd = exec.CommandContext(l.ctx, os.Args[0])
	v.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	v.cmd.SysProcAttr = childAttributes()
	var stderr bytes.Buffer
	v.cmd.Stderr = &stderr
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	v.begun = time.Now()
	if err = v.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	v.late = time.AfterFunc(startLimit, func() { _ = v.cmd.Process.Signal(syscall.SIGQUIT) })
	if a.Phase == "" && !l.orders.Check {
		v.killAfter(a.Delay)
	}
	lines := bufio.NewReader(out)
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			break // the last line may be cut off by the kill: it was not heard
		}
		v.hear(strings.TrimSuffix(text, "\n"))
	}
	v.late.Stop()
	if v.kill != nil {
		v.kill.Stop()
	}
	return v.ended(v.cmd.Wait(), stderr.String())
}

// hear takes a line of the child, and looks whether it is the moment.
func (v *life) hear(text string) {
	word, rest, _ := strings.Cut(text, " ")
	name, _, _ := strings.Cut(rest, " ")
	switch word {
	case sayReady:
		v.ready = true
		v.late.Stop()
		v.loop.starts = append(v.loop.starts, time.Since(v.begun))
		if !v.loop.orders.Check && v.kill == nil {
			// The phase may not come; then this is the end.
			if v.loop.ready != nil {
				v.loop.ready()
			}
			v.killAfter(v.loop.patience + v.aim.Delay)
		}
	case sayPhase:
		v.loop.phases[name]++
		v.came(name)
	case sayHeld:
		v.fire()
	case sayFault:
		v.loop.ledger.complain("%s", rest)
		// What follows is known: nobody need wait for it.
		_ = v.cmd.Process.Kill()
	case sayOpened, sayMaybe:
	case sayListen:
		v.loop.listens(rest)
	default:
		if g := v.loop.ledger.attempts[rest].group; word == sayOK && v.loop.acked != nil {
			v.loop.acked(v, g)
		}
		if !v.loop.ledger.hear(text) {
			v.loop.ledger.complain("the child says %q", text)
		}
		v.came(word)
	}
}

// came counts what is aimed at.
func (v *life) came(phase string) {
	if phase != v.aim.Phase || (!v.ready && !v.aim.Early) {
		return
	}
	if v.count++; v.count >= v.aim.Nth && !v.aim.Hold {
		v.fire()
	}
}

// fire kills the child soon: the phase has come.
func (v *life) fire() {
	if v.hit {
		return
	}
	v.hit = true
	v.loop.hits[v.aim.Phase]++
	v.killAfter(v.aim.Delay)
}

// killAfter kills the child after a while, and not when it was to be killed before.
func (v *life) killAfter(d time.Duration) {
	if v.kill != nil {
		v.kill.Stop()
	}
	// That it has ended by itself shows when it is waited for.
	v.kill = time.AfterFunc(d, func() { _ = v.cmd.Process.Kill() })
}

// ended looks at how the child has ended.
func (v *life) ended(err error, stderr string) bool {
	l := v.loop
	l.t.Helper()
	l.aimed[v.aim.Phase]++
	exit, _ := errors.AsType[*exec.ExitError](err)
	status, _ := v.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case len(l.ledger.complaints) > 0:
	case l.orders.Check && err == nil:
	case l.orders.Check:
		l.ledger.complain("the child that was to close ended with %v", err)
	case exit == nil || !status.Signaled() || status.Signal() != syscall.SIGKILL:
		l.ledger.complain("the child was to be killed, but ended with %v", err)
	}
	if stderr != "" {
		l.ledger.complain("the child says on standard error: %s", stderr)
	}
	return len(l.ledger.complaints) == 0
}

// report logs what has happened, and demands that phases that were aimed at often
// have come.
func (l *loop) report() {
	l.t.Helper()
	var longest time.Duration
	for _, d := range l.starts {
		longest = max(longest, d)
	}
	var text strings.Builder
	for _, phase := range slices.Sorted(maps.Keys(l.aimed)) {
		if phase == "" {
			continue
		}
		fmt.Fprintf(&text, " %s %d/%d", phase, l.hits[phase], l.aimed[phase])
		if l.aimed[phase] >= 10 && l.hits[phase] == 0 {
			l.t.Errorf("the phase %q was aimed at %d times and never hit", phase, l.aimed[phase])
		}
	}
	l.t.Logf("%d lives, %d operations acknowledged, %d views of groups compared; "+
		"longest start %v; hit of aimed at:%s; phases seen: %v",
		l.lives, l.ledger.acknowledged, l.ledger.compared,
		longest.Round(time.Millisecond), text.String(), l.phases)
}
