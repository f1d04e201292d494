package compare

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/raftyard/raftyard/test/peers/internal/trial"
)

// A Report is everything about a comparison: what is written as JSON.
type Report struct {
	Command string            `json:"command"`
	Date    string            `json:"date"`
	Machine Machine           `json:"machine"`
	Modules map[string]string `json:"modules"` // versions of what is compared
	Rounds  int               `json:"rounds"`
	Base    trial.Spec        `json:"base"`
	Cells   []Summary         `json:"cells"`
	Runs    []Run             `json:"runs"`
}

// A Machine is where a comparison ran.
type Machine struct {
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"`
	Memory float64 `json:"memory_gib"`
	Kernel string  `json:"kernel"`
	Go     string  `json:"go"`
}

// A table has a title, a header and rows.
type table struct {
	title  string
	header []string
	rows   [][]string
	notes  []string
}

// Text returns the report for a terminal.
func (r *Report) Text() string {
	var out strings.Builder
	for _, t := range r.tables() {
		out.WriteString(t.text() + "\n")
	}
	out.WriteString(r.footer())
	return out.String()
}

// Markdown returns the report for a document.
func (r *Report) Markdown() string {
	var out strings.Builder
	for _, t := range r.tables() {
		out.WriteString(t.markdown() + "\n")
	}
	out.WriteString(r.footer())
	return out.String()
}

// footer says where and how it was measured.
func (r *Report) footer() string {
	m := &r.Machine
	return fmt.Sprintf("%s; %d cores of %s, %.0f GiB, Linux %s, %s; %d hosts in one process, "+
		"%d rounds of %v after %v, medians.\n%s\n",
		r.Date, m.Cores, m.CPU, m.Memory, m.Kernel, m.Go,
		r.Base.Hosts, r.Rounds, r.Base.Duration, r.Base.Warmup, r.Command)
}

// tables returns the overview, and one for each cell.
func (r *Report) tables() []table {
	var all []table
	if t := r.overview(); len(t.rows) > 0 {
		all = append(all, t)
	}
	for i := range r.Cells {
		all = append(all, r.Cells[i].table())
	}
	return all
}

// overview has a row for each loaded cell.
func (r *Report) overview() table {
	t := table{
		title: "raftyard beside the best peer of each cell",
		header: []string{
			"load", "raftyard /s", "p50 / p99 ms", "best peer", "its /s", "p50 / p99 ms",
			"throughput", "p50", "p99", "sync p50 ms", "others CPU %",
		},
	}
	for i := range r.Cells {
		s := &r.Cells[i]
		ours, best := s.row(isOurs), s.row(func(name string) bool { return name == s.Best })
		if s.Cell.Op == trial.Idle || ours == nil || best == nil {
			continue
		}
		t.rows = append(t.rows, []string{
			s.Cell.String(), number(ours.PerSecond), latencyPair(ours),
			s.Best, number(best.PerSecond), latencyPair(best),
			s.Throughput.String(), s.P50.String(), s.P99.String(), millis(ours.SyncP50),
			number(ours.OthersPercent) + " / " + number(best.OthersPercent),
		})
	}
	return t
}

// row returns the medians of the first contestant that is looked for and has any.
func (s *Summary) row(wanted func(name string) bool) *trial.Result {
	for i := range s.Rows {
		if row := &s.Rows[i]; wanted(row.Contestant) && row.Rounds > 0 {
			return &row.Median
		}
	}
	return nil
}

// table has a row for each contestant of a cell, with figures of its medians.
func (s *Summary) table() table {
	header, figures := loadHeader(), loadFigures
	if s.Cell.Op == trial.Idle {
		header, figures = idleHeader(), idleFigures
	}
	t := table{
		title: s.Cell.String(), header: append([]string{"system"}, header...), notes: s.notes(),
	}
	for i := range s.Rows {
		row := &s.Rows[i]
		cells := []string{"-"}
		if row.Rounds > 0 {
			cells = figures(&row.Median)
		}
		t.rows = append(t.rows, append([]string{row.Contestant}, cells...))
	}
	return t
}

func loadHeader() []string {
	return []string{
		"/s", "p50 ms", "p99 ms", "p99.9 ms", "CPU us/op", "disk B/op", "device B/op",
		"allocs/op", "B alloc/op", "RSS MiB", "refused", "failed", "others CPU %",
	}
}

func loadFigures(m *trial.Result) []string {
	return []string{
		number(m.PerSecond), millis(m.Latency.P50), millis(m.Latency.P99),
		millis(m.Latency.P999), number(m.CPUPerOp), number(m.WrittenPerOp),
		number(m.DevicePerOp), number(m.AllocsPerOp), number(m.BytesPerOp), number(m.PeakRSS),
		fmt.Sprint(m.Refusals), fmt.Sprint(m.Failures), number(m.OthersPercent),
	}
}

func idleHeader() []string {
	return []string{
		"CPU %", "RSS MiB", "heap MiB", "disk B/s", "goroutines", "start s", "others CPU %",
	}
}

func idleFigures(m *trial.Result) []string {
	return []string{
		number(m.CPUPercent), number(m.RSS), number(m.Heap), number(m.WrittenPerSec),
		fmt.Sprint(m.Goroutines), number(m.StartSeconds), number(m.OthersPercent),
	}
}

// notes has the ratios, and what went wrong.
func (s *Summary) notes() []string {
	var notes []string
	switch {
	case s.Best == "" || s.Memory == Ratio{}:
	case s.Cell.Op == trial.Idle:
		notes = append(notes, fmt.Sprintf("%s over %s: CPU %s, memory %s",
			Ours, s.Best, s.CPU, s.Memory))
	default:
		notes = append(notes, fmt.Sprintf("%s over %s: throughput %s, p50 %s, p99 %s",
			Ours, s.Best, s.Throughput, s.P50, s.P99))
	}
	for i := range s.Rows {
		for _, err := range s.Rows[i].Errors {
			line, _, _ := strings.Cut(err, "\n")
			notes = append(notes, s.Rows[i].Contestant+" failed: "+line)
		}
	}
	return notes
}

// String returns the median, and the range if there is one.
func (r Ratio) String() string {
	switch {
	case r == Ratio{}:
		return "-"
	case r.Low == r.High:
		return fmt.Sprintf("%.2f", r.Median)
	default:
		return fmt.Sprintf("%.2f (%.2f-%.2f)", r.Median, r.Low, r.High)
	}
}

func latencyPair(r *trial.Result) string {
	return millis(r.Latency.P50) + " / " + millis(r.Latency.P99)
}

func millis(us float64) string { return fmt.Sprintf("%.2f", us/1e3) }

// number returns a figure with as many digits as count.
func number(v float64) string {
	if v < 10 && v != 0 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func (t *table) text() string {
	var buf bytes.Buffer
	buf.WriteString(t.title + "\n")
	w := tabwriter.NewWriter(&buf, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		// Writing to a buffer does not fail.
		_, _ = fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	_ = w.Flush()
	for _, note := range t.notes {
		buf.WriteString("  " + note + "\n")
	}
	return buf.String()
}

func (t *table) markdown() string {
	var out strings.Builder
	out.WriteString("### " + t.title + "\n\n")
	line := func(row []string) {
		cells := make([]string, len(t.header))
		for i := range min(len(row), len(cells)) {
			cells[i] = strings.ReplaceAll(row[i], "|", `\|`)
		}
		out.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	line(t.header)
	out.WriteString(strings.Repeat("|---", len(t.header)) + "|\n")
	for _, row := range t.rows {
		line(row)
	}
	for _, note := range t.notes {
		out.WriteString("\n" + note + "\n")
	}
	return out.String()
}
