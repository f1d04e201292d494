// Package trial puts one load on one system in this process, and measures what it takes.
package trial

import (
	"time"

	"github.com/raftyard/raftyard/test/peers/internal/system"
)

// What a [Spec] asks for.
const (
	Write = "write" // clients propose commands
	Read  = "read"  // clients read, linearizably
	Idle  = "idle"  // nobody does anything
)

// Ops returns all that a Spec can ask for.
func Ops() []string { return []string{Write, Read, Idle} }

// A Spec says what to do.
type Spec struct {
	System  string         `json:"system"`
	Options system.Options `json:"options,omitempty"`

	Op      string `json:"op"`
	Groups  int    `json:"groups"`
	Clients int    `json:"clients"`
	Size    int    `json:"size"` // of a command, in bytes

	Hosts         int           `json:"hosts"`
	Warmup        time.Duration `json:"warmup_ns"`
	Duration      time.Duration `json:"duration_ns"`
	Tick          time.Duration `json:"tick_ns"`
	ElectionTicks int           `json:"election_ticks"`
	SnapshotEvery uint64        `json:"snapshot_every"`

	Dir string `json:"dir"` // is made, and is not removed
}

// A Result is what was measured. Figures for each operation count all hosts and the
// clients together: they are one process.
type Result struct {
	StartSeconds float64 `json:"start_seconds"`
	Seconds      float64 `json:"seconds"` // measured
	Ops          uint64  `json:"ops"`     // that succeeded in the measured time
	PerSecond    float64 `json:"per_second"`
	Refusals     uint64  `json:"refusals"` // were tried again
	Failures     uint64  `json:"failures"`
	Failure      string  `json:"failure,omitempty"` // one of them

	Latency Latency `json:"latency_us"`

	CPUPercent    float64 `json:"cpu_percent"` // of one core
	CPUPerOp      float64 `json:"cpu_us_per_op"`
	WrittenPerOp  float64 `json:"written_bytes_per_op"` // to the disk, by /proc/self/io
	DevicePerOp   float64 `json:"device_bytes_per_op"`  // that the disk took, from whomever
	WrittenPerSec float64 `json:"written_bytes_per_second"`
	AllocsPerOp   float64 `json:"allocs_per_op"`
	BytesPerOp    float64 `json:"allocated_bytes_per_op"`
	RSS           float64 `json:"rss_mib"` // at the end of the measured time
	PeakRSS       float64 `json:"peak_rss_mib"`
	Heap          float64 `json:"heap_mib"` // live, after a collection
	Goroutines    int     `json:"goroutines"`

	// SyncP50 and SyncP99 are of 4 KiB that are written to a file which has its blocks,
	// and synced, just before the start.
	SyncP50 float64 `json:"sync_p50_us"`
	SyncP99 float64 `json:"sync_p99_us"`
	// OthersPercent is the CPU time of everybody else, of one core: a run that was
	// disturbed has much of it.
	OthersPercent float64 `json:"others_percent"`

	Acknowledged uint64 `json:"acknowledged"` // commands, also of the warm-up
	Applied      uint64 `json:"applied"`      // commands that reads have found in the end
}

// Latency is of operations that succeeded, in microseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}
