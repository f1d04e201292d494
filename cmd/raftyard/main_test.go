package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"raftyard": main})
}

// TestScripts runs testdata/*.txtar: the program as its users see it. Beside what
// testscript has, they know
//
//	exits CODE PROGRAM ARGS...   runs it and wants this exit code
//	demo ARGS...                 starts raftyard demo --http-port 0 and sets $N1, $N2, ...
//	stopdemo [SIGNAL]            interrupts it: it must exit 0 within 5 s, and what it has
//	                             written to standard error is there to compare
//	killdemo                     kills it
//	same DIR                     the first time notes everything about the files in it, and
//	                             then wants all of it to be as it was
//	flip FILE                    turns a bit in its middle
//	http METHOD URL [BODY]       prints the status, the ETag and the body
//	ports NAME...                sets each variable to a free port
//	await URL                    waits until it answers 200
//	eventually PATTERN PROGRAM ARGS...
//	                             runs it until its standard output matches
//	expand FILE...               puts the variables of the script into files
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Values[demoKey{}] = &demoHolder{files: make(map[string]string)}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":    cmdExits,
			"demo":     cmdDemo,
			"stopdemo": cmdStopDemo,
			"killdemo": cmdKillDemo,
			"same":     cmdSame,
			"flip":     cmdFlip,
			"http":     cmdHTTP,
			"ports":    cmdPorts,
			"await":    cmdAwait,

			"eventually": cmdEventually,
			"expand":     cmdExpand,
		},
	})
}

// patience bounds everything that is waited for.
const patience = 30 * time.Second

func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// A demoProcess is a running demo.
type demoProcess struct {
	cmd    *exec.Cmd
	output *bytes.Buffer
	errors *bytes.Buffer
	copied chan struct{} // closed when all of its output is in output
}

// demoKey finds the demo of a script among its values.
type demoKey struct{}

// A demoHolder holds the demo that a script runs, or nil.
type demoHolder struct {
	p     *demoProcess
	files map[string]string // of directories, as they were
}

func (h *demoHolder) take() *demoProcess {
	p := h.p
	h.p = nil
	return p
}

func holderOf(ts *testscript.TestScript) *demoHolder {
	holder, ok := ts.Value(demoKey{}).(*demoHolder)
	if !ok {
		ts.Fatalf("the script has no holder of a demo")
	}
	return holder
}

func cmdDemo(ts *testscript.TestScript, _ bool, args []string) {
	program, err := lookPath(ts, "raftyard")
	ts.Check(err)
	p := &demoProcess{
		output: &bytes.Buffer{}, errors: &bytes.Buffer{}, copied: make(chan struct{}),
	}
	p.cmd = exec.CommandContext(context.Background(), program,
		append([]string{"demo", "--http-port", "0"}, args...)...)
	p.cmd.Dir = ts.Getenv("WORK")
	p.cmd.Env = append(os.Environ(), "TMPDIR="+ts.Getenv("WORK")+"/tmp")
	ts.Check(os.MkdirAll(ts.Getenv("WORK")+"/tmp", 0o750))
	out, err := p.cmd.StdoutPipe()
	ts.Check(err)
	p.cmd.Stderr = p.errors
	ts.Check(p.cmd.Start())
	holder := holderOf(ts)
	holder.p = p
	ts.Defer(func() {
		if left := holder.take(); left != nil { // the script has failed
			_ = left.cmd.Process.Kill()
			<-left.copied
			_ = left.cmd.Wait()
		}
	})
	ready := make(chan []string, 1)
	go p.copy(out, ready)
	select {
	case nodes := <-ready:
		for i, addr := range nodes {
			ts.Setenv("N"+strconv.Itoa(i+1), addr)
		}
	case <-time.After(patience):
		ts.Fatalf("the demo is not ready")
	}
	_, err = ts.Stdout().Write(p.output.Bytes())
	ts.Check(err)
}

// copy reads what the demo prints, and sends the addresses of its nodes when it
// is ready.
func (p *demoProcess) copy(out io.Reader, ready chan<- []string) {
	defer close(p.copied)
	var nodes []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		p.output.WriteString(line + "\n")
		f := strings.Fields(line)
		if len(f) == 5 && strings.HasPrefix(f[1], "http://") && len(f[0]) == 1 {
			nodes = append(nodes, f[1])
		}
		if strings.HasPrefix(line, "Ctrl-C") {
			ready <- nodes
			break
		}
	}
	_, _ = io.Copy(io.Discard, out)
}

// lookPath finds a program on the script's PATH.
func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		if path, err := exec.LookPath(dir + "/" + name); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func cmdStopDemo(ts *testscript.TestScript, _ bool, args []string) {
	p := holderOf(ts).take()
	if p == nil {
		ts.Fatalf("no demo runs")
	}
	begun := time.Now()
	signal := os.Interrupt
	if len(args) > 0 && args[0] == "HUP" {
		signal = syscall.SIGHUP
	}
	ts.Check(p.cmd.Process.Signal(signal))
	<-p.copied
	if err := p.cmd.Wait(); err != nil {
		ts.Fatalf("the demo ended with %v, want 0: %s", err, p.errors)
	}
	_, err := ts.Stderr().Write(p.errors.Bytes())
	ts.Check(err)
	if took := time.Since(begun); took > 5*time.Second {
		ts.Fatalf("the demo took %v to stop, want at most 5 s", took)
	}
}

func cmdKillDemo(ts *testscript.TestScript, _ bool, _ []string) {
	p := holderOf(ts).take()
	if p == nil {
		ts.Fatalf("no demo runs")
	}
	ts.Check(p.cmd.Process.Kill())
	<-p.copied
	_ = p.cmd.Wait() // it says that it was killed
}

// cmdSame compares the files of a directory with what they were.
func cmdSame(ts *testscript.TestScript, _ bool, args []string) {
	var now strings.Builder
	dir := ts.MkAbs(args[0])
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&now, path, info.Mode(), info.Size(), info.ModTime())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&now, "%x\n", sha256.Sum256(b))
		}
		return nil
	})
	ts.Check(err)
	holder := holderOf(ts)
	before, noted := holder.files[dir]
	if !noted {
		holder.files[dir] = now.String()
		return
	}
	if before != now.String() {
		ts.Fatalf("%s has changed:\n%s\nit was:\n%s", args[0], now.String(), before)
	}
}

func cmdFlip(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	b[len(b)/2] ^= 1
	ts.Check(os.WriteFile(path, b, 0o600))
}

func cmdHTTP(ts *testscript.TestScript, _ bool, args []string) {
	body := ""
	if len(args) > 2 {
		body = args[2]
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, args[0], args[1], strings.NewReader(body))
	ts.Check(err)
	resp, err := http.DefaultClient.Do(r)
	ts.Check(err)
	text, err := io.ReadAll(resp.Body)
	ts.Check(errors.Join(err, resp.Body.Close()))
	_, err = io.WriteString(ts.Stdout(), resp.Status+" "+resp.Header.Get("ETag")+"\n"+string(text))
	ts.Check(err)
}

func cmdPorts(ts *testscript.TestScript, _ bool, args []string) {
	var taken []net.Listener
	for _, name := range args {
		ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		ts.Check(err)
		taken = append(taken, ln)
		_, port, err := net.SplitHostPort(ln.Addr().String())
		ts.Check(err)
		ts.Setenv(name, port)
	}
	for _, ln := range taken {
		ts.Check(ln.Close())
	}
}

func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], http.NoBody)
		ts.Check(err)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			ts.Check(resp.Body.Close())
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			ts.Fatalf("%s does not answer 200", args[0])
		}
	}
}

func cmdEventually(ts *testscript.TestScript, _ bool, args []string) {
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		err := ts.Exec(args[1], args[2:]...)
		if got := ts.ReadFile("stdout"); err == nil && want.MatchString(got) {
			return
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			ts.Fatalf("the output does not come to match %s", args[0])
		}
	}
}

func cmdExpand(ts *testscript.TestScript, _ bool, args []string) {
	for _, file := range args {
		text := os.Expand(ts.ReadFile(file), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}
