package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/raftyard/raftyard/internal/load"
)

// benchDoc is the result of raftyard bench.
type benchDoc struct {
	Groups      int     `json:"groups"`
	Clients     int     `json:"clients"`
	Keys        int     `json:"keys"` // in each group
	ValueSize   int     `json:"value_size"`
	ReadPercent int     `json:"read_percent"`
	Rate        float64 `json:"rate"` // zero: as fast as it went
	Seconds     float64 `json:"seconds"`
	Interrupted bool    `json:"interrupted"`
	Prefix      string  `json:"prefix"`
	Kept        bool    `json:"kept"`

	Operations []benchOp `json:"operations"` // by kind
	Total      benchOp   `json:"total"`
}

// benchOp is what became of the operations of a kind.
type benchOp struct {
	Op         string       `json:"op"`
	Applied    uint64       `json:"applied"`
	NotApplied uint64       `json:"not_applied"`
	Unknown    uint64       `json:"unknown"`
	Late       uint64       `json:"late"`
	PerSecond  float64      `json:"per_second"` // applied
	Latency    benchLatency `json:"latency_us"`
}

// benchLatency is in microseconds.
type benchLatency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

func newBenchDoc(w *workload, r *load.Report) *benchDoc {
	f := w.flags
	doc := &benchDoc{
		Groups: len(w.groups), Clients: f.clients, Keys: f.keys, ValueSize: f.valueSize,
		ReadPercent: f.readPercent, Rate: f.rate, Seconds: r.Elapsed.Seconds(),
		Interrupted: r.Interrupted, Prefix: w.prefix, Kept: f.keep,
		Operations: []benchOp{},
	}
	var total load.Tally
	for kind, name := range []string{kindPut: "put", kindGet: "get"} {
		t := &r.Kinds[kind]
		if kind == kindGet && f.readPercent > 0 || kind == kindPut && f.readPercent < 100 {
			doc.Operations = append(doc.Operations, newBenchOp(name, t, r.Elapsed))
		}
		total.Applied += t.Applied
		total.NotApplied += t.NotApplied
		total.Unknown += t.Unknown
		total.Late += t.Late
		total.Latency.Merge(&t.Latency)
	}
	doc.Total = newBenchOp("all", &total, r.Elapsed)
	return doc
}

func newBenchOp(name string, t *load.Tally, elapsed time.Duration) benchOp {
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	op := benchOp{
		Op: name, Applied: t.Applied, NotApplied: t.NotApplied, Unknown: t.Unknown, Late: t.Late,
		Latency: benchLatency{
			Mean: micros(t.Latency.Mean()),
			P50:  micros(t.Latency.Quantile(0.5)),
			P90:  micros(t.Latency.Quantile(0.9)),
			P99:  micros(t.Latency.Quantile(0.99)),
			P999: micros(t.Latency.Quantile(0.999)),
			Max:  micros(t.Latency.Max()),
		},
	}
	if elapsed > 0 {
		op.PerSecond = float64(t.Applied) / elapsed.Seconds()
	}
	return op
}

// view shows the document; its name is the number of operations a second.
func (d *benchDoc) view() view {
	what := fmt.Sprintf("%s, %s, %s in each, values of %s, %d %% reads",
		count(d.Groups, "group"), count(d.Clients, "client"), count(d.Keys, "key"),
		size(int64(d.ValueSize)), d.ReadPercent)
	if d.Rate > 0 {
		what += fmt.Sprintf(", %g operations a second", d.Rate)
	}
	what += fmt.Sprintf(", for %.1f s", d.Seconds)
	if d.Interrupted {
		what += " (interrupted)"
	}
	header := []string{
		"OP", "APPLIED", "NOT APPLIED", "UNKNOWN", "LATE", "PER SECOND",
		"P50", "P90", "P99", "P99.9", "MAX",
	}
	ops := d.Operations
	if len(ops) > 1 {
		ops = append(slices.Clip(ops), d.Total)
	}
	var rows [][]string
	for i := range ops {
		rows = append(rows, ops[i].row())
	}
	text := what + "\n\n" + table(header, rows)
	if d.Kept {
		text += "\nThe keys are under " + d.Prefix + "\n"
	}
	return view{data: d, names: []string{fmt.Sprintf("%.0f", d.Total.PerSecond)}, text: text}
}

func (o *benchOp) row() []string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	row := []string{
		o.Op, number(o.Applied), number(o.NotApplied), number(o.Unknown), number(o.Late),
		fmt.Sprintf("%.0f", o.PerSecond),
	}
	l := &o.Latency
	for _, us := range []float64{l.P50, l.P90, l.P99, l.P999, l.Max} {
		row = append(row, dash(latency(us)))
	}
	return row
}

// latency returns microseconds with three digits that count.
func latency(us float64) string {
	switch {
	case us == 0:
		return ""
	case us < 1e3:
		return fmt.Sprintf("%.0fus", us)
	case us < 1e6:
		return digits(us/1e3) + "ms"
	default:
		return digits(us/1e6) + "s"
	}
}

func digits(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// progressText is one line about a run.
func progressText(p load.Progress) string {
	phase := "measuring"
	if p.Warming {
		phase = "warming up"
	}
	text := fmt.Sprintf("%s, %.0f of %.0f s: %.0f a second, p99 %s", phase,
		p.Elapsed.Seconds(), p.Of.Seconds(), p.PerSecond,
		dash(latency(float64(p.P99)/float64(time.Microsecond))))
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d failed", p.Failed)
	}
	return text
}

// progress replaces the line that says what is going on; the empty text takes it away. It
// is for people, so that there is none where nobody looks.
func (a *app) progress(text string) {
	if a.env.Terminal {
		// Nobody is left to tell when standard error is closed.
		_, _ = fmt.Fprint(a.env.Stderr, "\r"+strings.ReplaceAll(text, "\n", " ")+"\x1b[K")
	}
}
