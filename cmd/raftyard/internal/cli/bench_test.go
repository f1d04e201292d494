package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/internal/load"
)

// A fakeNode has keys of one group, and of others of another kind.
type fakeNode struct {
	addr string
	// refuse says how put n ends, from 0 on; empty: well.
	refuse func(n int) (outcome string)

	mu   sync.Mutex
	puts int
	gets int
	txns int
	keys map[string]bool
}

func startFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	f := &fakeNode{keys: map[string]bool{}, refuse: func(int) string { return "" }}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/groups", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"groups":[{"id":1,"kind":"kv"},{"id":2,"kind":"queue"}]}`)
	})
	mux.HandleFunc("GET /v1/groups/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"id":%s,"kind":"queue"}`, r.PathValue("id"))
	})
	mux.HandleFunc("PUT /v1/groups/1/kv/{key}", f.put)
	mux.HandleFunc("GET /v1/groups/1/kv/{key}", f.get)
	mux.HandleFunc("POST /v1/groups/1/txn", f.txn)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	f.addr = server.URL
	return f
}

func (f *fakeNode) put(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	outcome := f.refuse(f.puts)
	f.puts++
	if outcome == "" {
		f.keys[r.PathValue("key")] = true
		fmt.Fprint(w, `{"revision":1}`)
		return
	}
	w.Header().Set("Content-Type", client.ProblemType)
	w.WriteHeader(http.StatusInsufficientStorage)
	fmt.Fprintf(w, `{"title":"Odd","code":"disk_full","outcome":%q}`, outcome)
}

func (f *fakeNode) get(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets++
	if !f.keys[r.PathValue("key")] {
		http.Error(w, "no such key", http.StatusInternalServerError)
		return
	}
}

func (f *fakeNode) txn(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.txns++
	var txn client.Txn
	if err := json.NewDecoder(r.Body).Decode(&txn); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, op := range txn.Then {
		if op.Op == client.OpDelete {
			delete(f.keys, *op.Key)
		} else {
			f.keys[*op.Key] = true
		}
	}
	fmt.Fprint(w, `{"succeeded":true}`)
}

// bench runs raftyard bench and returns the document that it prints.
func (f *fakeNode) bench(t *testing.T, args ...string) (code int, doc benchDoc, stderr string) {
	t.Helper()
	code, stdout, stderr := run(t.Context(), append([]string{
		"bench", "--addr", f.addr, "-o", "json", "--warmup", "0", "--duration", "200ms",
	}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatalf("exit code %d, %q is no document: %v\n%s", code, stdout, err, stderr)
	}
	return code, doc, stderr
}

// TestBenchOutcomes: what was done, what certainly was not, and what nobody can tell are
// counted apart.
func TestBenchOutcomes(t *testing.T) {
	f := startFakeNode(t)
	f.refuse = func(n int) string {
		return []string{"", client.OutcomeNotApplied, client.OutcomeUnknown, ""}[n%4]
	}
	code, doc, stderr := f.bench(t)
	put := doc.Operations[0]
	if code != ExitOK || put.Applied == 0 || put.NotApplied == 0 || put.Unknown == 0 {
		t.Fatalf("exit code %d, puts %+v, want some of each outcome\n%s", code, put, stderr)
	}
	if sum := put.Applied + put.NotApplied + put.Unknown; sum != uint64(f.puts) {
		t.Errorf("%d puts are counted, there were %d", sum, f.puts)
	}
	if doc.Groups != 1 || len(doc.Operations) != 1 || doc.Total.Applied != put.Applied {
		t.Errorf("the document is %+v", doc)
	}
	for _, want := range []string{"operations failed, for instance: odd", "look for keys under"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error has no %q: %s", want, stderr)
		}
	}
}

// TestBenchFails: a load of which nothing was applied has failed, as one request would.
func TestBenchFails(t *testing.T) {
	for outcome, want := range map[string]int{
		client.OutcomeNotApplied: ExitFailed, client.OutcomeUnknown: ExitUnknown,
	} {
		f := startFakeNode(t)
		f.refuse = func(int) string { return outcome }
		if code, _, stderr := f.bench(t); code != want {
			t.Errorf("all puts end as %s: exit code %d, want %d\n%s", outcome, code, want, stderr)
		}
	}
}

// TestBenchLeavesNothing: the keys go, unless they shall stay; reads find what was written.
func TestBenchLeavesNothing(t *testing.T) {
	f := startFakeNode(t)
	args := []string{"--read-percent", "60", "--keys", "300"}
	code, doc, stderr := f.bench(t, args...)
	if code != ExitOK || len(f.keys) != 0 {
		t.Errorf("exit code %d, %d keys are left\n%s", code, len(f.keys), stderr)
	}
	if f.txns != 6 {
		t.Errorf("%d transactions for 300 keys that come and go, want 6", f.txns)
	}
	if f.puts == 0 || f.gets == 0 || doc.Operations[1].NotApplied != 0 {
		t.Errorf("there were %d puts and %d gets, %+v, want some of both", f.puts, f.gets, doc)
	}
	_, doc, _ = f.bench(t, append(args, "--keep")...)
	if len(f.keys) != 300 || !doc.Kept {
		t.Errorf("%d keys are left, want the 300 that were to be kept", len(f.keys))
	}
	for key := range f.keys {
		if !strings.HasPrefix(key, doc.Prefix) {
			t.Errorf("key %q has not the prefix %q", key, doc.Prefix)
		}
	}
}

// TestBenchGroups: only groups that have keys are used.
func TestBenchGroups(t *testing.T) {
	f := startFakeNode(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--groups", "2"}, "--groups is 2, there are 1 of kind kv"},
		{[]string{"2"}, "group 2 is of kind queue, want kv"},
	} {
		args := append([]string{"bench", "--addr", f.addr}, tt.args...)
		code, _, stderr := run(t.Context(), args...)
		if code != ExitUsage || !strings.Contains(stderr, tt.want) {
			t.Errorf("bench %v = %d %q, want %q", tt.args, code, stderr, tt.want)
		}
	}
}

// TestBenchInterrupted: the figures so far are shown, and the keys go.
func TestBenchInterrupted(t *testing.T) {
	f := startFakeNode(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	f.refuse = func(n int) string {
		if n == 500 {
			cancel(ErrInterrupted)
		}
		return ""
	}
	code, stdout, stderr := run(ctx, "bench", "--addr", f.addr, "--warmup", "0", "--duration", "1h")
	if code != ExitInterrupted || stderr != "raftyard: interrupted\n" {
		t.Errorf("an interrupted load = %d %q, want 130", code, stderr)
	}
	if !strings.Contains(stdout, "(interrupted)\n") || !strings.Contains(stdout, "put  5") {
		t.Errorf("the figures so far are\n%s", stdout)
	}
	if len(f.keys) > 0 {
		t.Errorf("%d keys are left", len(f.keys))
	}
}

// A watcher calls seen when a text has been written.
type watcher struct {
	bytes.Buffer
	text string
	seen func()
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.seen()
	}
	return n, err
}

// TestBenchProgress: it is shown to whoever looks, and taken away in the end.
func TestBenchProgress(t *testing.T) {
	f := startFakeNode(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stderr := &watcher{text: " of 3600 s: ", seen: func() { cancel(ErrInterrupted) }}
	code := Run(ctx, Env{
		Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: stderr, Terminal: true,
		LookupEnv: func(string) (string, bool) { return "", false },
	}, []string{"bench", "--addr", f.addr, "--warmup", "0", "--duration", "1h"})
	if code != ExitInterrupted ||
		!strings.HasSuffix(stderr.String(), "\r\x1b[Kraftyard: interrupted\n") {
		t.Errorf("exit code %d, standard error is %q", code, stderr)
	}
	code, _, quiet := run(t.Context(), "bench", "--addr", f.addr, "--warmup", "0",
		"--duration", "100ms", "--read-percent", "50")
	if code != ExitOK || quiet != "" {
		t.Errorf("exit code %d, where nobody looks standard error is %q", code, quiet)
	}
}

func TestProgressText(t *testing.T) {
	got := progressText(load.Progress{
		Elapsed: 12 * time.Second, Of: time.Minute, PerSecond: 10234, P99: 4100 * time.Microsecond,
		Failed: 3,
	})
	if want := "measuring, 12 of 60 s: 10234 a second, p99 4.10ms, 3 failed"; got != want {
		t.Errorf("progressText = %q, want %q", got, want)
	}
	got = progressText(load.Progress{Warming: true, Of: time.Second})
	if want := "warming up, 0 of 1 s: 0 a second, p99 -"; got != want {
		t.Errorf("progressText = %q, want %q", got, want)
	}
}

// TestWorkload: every group and every key has its share of each kind of operation.
func TestWorkload(t *testing.T) {
	const operations = 100_000
	w := newWorkload(benchFlags{readPercent: 30, keys: 10, valueSize: 5}, nil, nil)
	gets := map[uint64]int{} // by group and key
	puts := map[uint64]int{}
	for n := range uint64(operations) {
		at := n%100*10 + w.keyOf(n)
		if w.kind(n) == kindGet {
			gets[at]++
		} else {
			puts[at]++
		}
		if len(w.value(n)) != 5 || bytes.Equal(w.value(n), w.value(n+1)) {
			t.Fatalf("values %d and %d are %x and %x", n, n+1, w.value(n), w.value(n+1))
		}
	}
	if len(gets) != 1000 || len(puts) != 1000 {
		t.Errorf("%d keys of 100 groups are read and %d written, want all 1000",
			len(gets), len(puts))
	}
	total := 0
	for _, n := range gets {
		total += n
	}
	if total < 29_000 || total > 31_000 {
		t.Errorf("%d of %d are reads, want 30 %%", total, operations)
	}
}

// TestBenchAddrs: clients begin with different addresses.
func TestBenchAddrs(t *testing.T) {
	first, second := startFakeNode(t), startFakeNode(t)
	code, _, stderr := run(t.Context(), "bench", "--addr", first.addr+","+second.addr,
		"--warmup", "0", "--duration", "200ms")
	if code != ExitOK || first.puts == 0 || second.puts == 0 {
		t.Errorf("exit code %d, %d puts to one address and %d to the other\n%s",
			code, first.puts, second.puts, stderr)
	}
}

func TestLatency(t *testing.T) {
	for d, want := range map[time.Duration]string{
		950 * time.Nanosecond: "1us", 999 * time.Microsecond: "999us",
		1234 * time.Microsecond: "1.23ms", 56780 * time.Microsecond: "56.8ms",
		123 * time.Millisecond: "123ms", 12345 * time.Millisecond: "12.3s", 0: "",
	} {
		if got := latency(float64(d) / 1e3); got != want {
			t.Errorf("latency(%v) = %q, want %q", d, got, want)
		}
	}
}
