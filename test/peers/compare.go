package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/raftyard/raftyard/test/peers/internal/compare"
	"github.com/raftyard/raftyard/test/peers/internal/trial"
)

// compare does the whole plan, and shows the report, also of one that was interrupted.
func (o *options) compare(ctx context.Context) error {
	report, err := o.newReport()
	if err != nil {
		return err
	}
	bar := newProgress(os.Stderr, o.plan.Steps())
	do := func(ctx context.Context, what string, spec *trial.Spec) (*trial.Result, error) {
		bar.next(what)
		return runChild(ctx, o.dir, spec)
	}
	var ended error
	for _, cell := range o.plan.Cells {
		var runs []compare.Run
		runs, ended = o.plan.Do(ctx, cell, do)
		if len(runs) > 0 {
			report.Runs = append(report.Runs, runs...)
			report.Cells = append(report.Cells, compare.Summarize(cell, runs))
		}
		ended = errors.Join(ended, o.save(report))
		if ended != nil {
			break
		}
	}
	bar.clear()
	_, err = os.Stdout.WriteString(report.Text())
	return errors.Join(ended, err)
}

// save writes what there is so far.
func (o *options) save(report *compare.Report) error {
	if o.out == "" {
		return nil
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err = os.MkdirAll(o.out, 0o750); err != nil { //nolint:gosec // whoever runs it chooses
		return err
	}
	out, err := os.OpenRoot(o.out)
	if err != nil {
		return err
	}
	return errors.Join(
		out.WriteFile("results.json", append(data, '\n'), 0o600),
		out.WriteFile("table.txt", []byte(report.Text()), 0o600),
		out.WriteFile("table.md", []byte(report.Markdown()), 0o600),
		out.Close(),
	)
}

// newReport returns one without figures.
func (o *options) newReport() (*compare.Report, error) {
	m, err := machine()
	if err != nil {
		return nil, err
	}
	r := &compare.Report{
		Command: o.command, Date: time.Now().UTC().Format("2006-01-02 15:04 MST"), Machine: m,
		Modules: make(map[string]string), Rounds: o.plan.Rounds, Base: o.plan.Base,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if slices.Contains(modules(), dep.Path) {
				r.Modules[dep.Path] = dep.Version
			}
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				r.Modules["github.com/raftyard/raftyard"] = s.Value
			}
		}
	}
	return r, nil
}

// machine describes where it runs.
func machine() (m compare.Machine, err error) {
	m = compare.Machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return m, err
	}
	m.Kernel = strings.TrimSpace(string(kernel))
	if m.CPU, err = field("/proc/cpuinfo", "model name"); err != nil {
		return m, err
	}
	memory, err := field("/proc/meminfo", "MemTotal")
	if err != nil {
		return m, err
	}
	kib, err := strconv.ParseFloat(strings.TrimSuffix(memory, " kB"), 64)
	if err != nil {
		return m, fmt.Errorf("MemTotal is %q: %w", memory, err)
	}
	m.Memory = kib / (1 << 20)
	return m, nil
}

// field returns what a line of a file has behind a name; empty: there is none.
func field(file, name string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(data) {
		got, value, _ := strings.Cut(string(line), ":")
		if strings.TrimSpace(got) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// A progress shows on a terminal what is going on.
type progress struct {
	out         *os.File // nil: nobody looks
	step, steps int
	begin       time.Time
}

func newProgress(f *os.File, steps int) *progress {
	p := &progress{steps: steps, begin: time.Now()}
	info, err := f.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 {
		p.out = f
	}
	return p
}

// next shows the next step, with the time that all that are left will take.
func (p *progress) next(what string) {
	left := ""
	if p.step > 0 {
		each := time.Since(p.begin) / time.Duration(p.step)
		left = ", " + (each * time.Duration(p.steps-p.step)).Round(time.Second).String() + " left"
	}
	p.step++
	p.show(fmt.Sprintf("%d of %d%s: %s", p.step, p.steps, left, what))
}

func (p *progress) clear() { p.show("") }

func (p *progress) show(text string) {
	if p.out != nil {
		// Nobody is left to tell when standard error is closed.
		_, _ = fmt.Fprintf(p.out, "\r%s\x1b[K", text)
	}
}
