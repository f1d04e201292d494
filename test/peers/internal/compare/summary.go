package compare

import (
	"slices"
	"strings"

	"github.com/raftyard/raftyard/test/peers/internal/trial"
)

// Ours is the system that the others are compared with.
const Ours = "raftyard"

// A Summary is what the runs of one cell came to.
type Summary struct {
	Cell Cell  `json:"cell"`
	Rows []Row `json:"rows"` // by contestant
	// Best is the contestant of another system that did best: the highest throughput, the
	// lowest p50 with one client, the least memory when idle. Empty: there is none.
	Best string `json:"best,omitempty"`
	// Throughput, P50, P99 and the others are ours over that of the best, round by round.
	Throughput Ratio `json:"throughput_ratio"`
	P50        Ratio `json:"p50_ratio"`
	P99        Ratio `json:"p99_ratio"`
	CPU        Ratio `json:"cpu_ratio"`
	Memory     Ratio `json:"memory_ratio"`
}

// A Row is the medians of a contestant.
type Row struct {
	Contestant string       `json:"contestant"`
	Rounds     int          `json:"rounds"` // that ended
	Errors     []string     `json:"errors,omitempty"`
	Median     trial.Result `json:"median"`
}

// A Ratio is a median over rounds, with the least and the most. All are zero: there is none.
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Summarize sums the runs of a cell up.
func Summarize(cell Cell, runs []Run) Summary {
	s := Summary{Cell: cell}
	byName := make(map[string]map[int]*trial.Result) // then by round
	for i := range runs {
		name := runs[i].Contestant
		if byName[name] == nil {
			byName[name] = make(map[int]*trial.Result)
			s.Rows = append(s.Rows, Row{Contestant: name})
		}
		at := slices.IndexFunc(s.Rows, func(r Row) bool { return r.Contestant == name })
		if runs[i].Error != "" {
			s.Rows[at].Errors = append(s.Rows[at].Errors, runs[i].Error)
			continue
		}
		byName[name][runs[i].Round] = runs[i].Result
	}
	ours := ""
	var best *Row
	for i := range s.Rows {
		row := &s.Rows[i]
		row.Rounds = len(byName[row.Contestant])
		row.Median = medians(byName[row.Contestant])
		switch {
		case row.Rounds == 0:
		case isOurs(row.Contestant):
			if ours == "" {
				ours = row.Contestant
			}
		case best == nil || better(cell, &row.Median, &best.Median):
			best = row
		}
	}
	if best == nil {
		return s
	}
	s.Best = best.Contestant
	s.ratios(byName[ours], byName[s.Best])
	return s
}

func isOurs(contestant string) bool {
	name, _, _ := strings.Cut(contestant, ":")
	return name == Ours
}

// better reports whether a is better than b.
func better(cell Cell, a, b *trial.Result) bool {
	switch {
	case cell.Op == trial.Idle:
		return a.RSS < b.RSS
	case cell.Clients == 1:
		return a.Latency.P50 < b.Latency.P50
	default:
		return a.PerSecond > b.PerSecond
	}
}

// ratios compares round by round, so that what changes from round to round counts for both.
func (s *Summary) ratios(ours, best map[int]*trial.Result) {
	ratio := func(figure func(*trial.Result) float64) Ratio {
		var all []float64
		for round, a := range ours {
			if b := best[round]; b != nil && figure(b) != 0 {
				all = append(all, figure(a)/figure(b))
			}
		}
		if len(all) == 0 {
			return Ratio{}
		}
		return Ratio{Median: median(all), Low: slices.Min(all), High: slices.Max(all)}
	}
	s.Throughput = ratio(func(r *trial.Result) float64 { return r.PerSecond })
	s.P50 = ratio(func(r *trial.Result) float64 { return r.Latency.P50 })
	s.P99 = ratio(func(r *trial.Result) float64 { return r.Latency.P99 })
	s.CPU = ratio(func(r *trial.Result) float64 { return r.CPUPercent })
	s.Memory = ratio(func(r *trial.Result) float64 { return r.RSS })
}

// medians returns the median of each figure. What fails or is refused is summed up.
func medians(rounds map[int]*trial.Result) (m trial.Result) {
	set := func(to *float64, figure func(*trial.Result) float64) {
		var all []float64
		for _, r := range rounds {
			all = append(all, figure(r))
		}
		*to = median(all)
	}
	set(&m.PerSecond, func(r *trial.Result) float64 { return r.PerSecond })
	set(&m.Seconds, func(r *trial.Result) float64 { return r.Seconds })
	set(&m.StartSeconds, func(r *trial.Result) float64 { return r.StartSeconds })
	set(&m.Latency.Mean, func(r *trial.Result) float64 { return r.Latency.Mean })
	set(&m.Latency.P50, func(r *trial.Result) float64 { return r.Latency.P50 })
	set(&m.Latency.P99, func(r *trial.Result) float64 { return r.Latency.P99 })
	set(&m.Latency.P999, func(r *trial.Result) float64 { return r.Latency.P999 })
	set(&m.Latency.Max, func(r *trial.Result) float64 { return r.Latency.Max })
	set(&m.CPUPercent, func(r *trial.Result) float64 { return r.CPUPercent })
	set(&m.CPUPerOp, func(r *trial.Result) float64 { return r.CPUPerOp })
	set(&m.WrittenPerOp, func(r *trial.Result) float64 { return r.WrittenPerOp })
	set(&m.DevicePerOp, func(r *trial.Result) float64 { return r.DevicePerOp })
	set(&m.WrittenPerSec, func(r *trial.Result) float64 { return r.WrittenPerSec })
	set(&m.AllocsPerOp, func(r *trial.Result) float64 { return r.AllocsPerOp })
	set(&m.BytesPerOp, func(r *trial.Result) float64 { return r.BytesPerOp })
	set(&m.RSS, func(r *trial.Result) float64 { return r.RSS })
	set(&m.PeakRSS, func(r *trial.Result) float64 { return r.PeakRSS })
	set(&m.Heap, func(r *trial.Result) float64 { return r.Heap })
	set(&m.SyncP50, func(r *trial.Result) float64 { return r.SyncP50 })
	set(&m.SyncP99, func(r *trial.Result) float64 { return r.SyncP99 })
	set(&m.OthersPercent, func(r *trial.Result) float64 { return r.OthersPercent })
	for _, r := range rounds {
		m.Ops += r.Ops
		m.Refusals += r.Refusals
		m.Failures += r.Failures
		m.Goroutines = max(m.Goroutines, r.Goroutines)
	}
	return m
}

// median returns the one in the middle, or the average of the two there; zero for none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}
