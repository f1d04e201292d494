package trial

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/raftyard/raftyard/test/internal/device"
)

// usage is what the process has used up to one moment.
type usage struct {
	at      time.Time
	cpu     time.Duration // user and system
	busy    time.Duration // of all processes
	written uint64        // bytes that went to the disk
	device  uint64        // bytes that the disk has taken, from whomever
	mallocs uint64
	bytes   uint64 // allocated
}

// now returns what the process has used, with data in a directory. Linux has the figures.
func now(dir string) (usage, error) {
	u := usage{at: time.Now()}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, fmt.Errorf("getrusage: %w", err)
	}
	u.cpu = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	io, err := fields("/proc/self/io")
	if err != nil {
		return u, err
	}
	u.written = io["write_bytes"]
	if u.device, err = device.Taken(dir); err != nil {
		return u, err
	}
	if u.busy, err = busy(); err != nil {
		return u, err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	u.mallocs, u.bytes = mem.Mallocs, mem.TotalAlloc
	return u, nil
}

// busy returns the CPU time of all processes on the machine, and what was taken from it.
func busy() (time.Duration, error) {
	const (
		file    = "/proc/stat"
		perTick = time.Second / 100 // the kernel's unit for programs
	)
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	// cpu, then user, nice, system, idle, iowait, irq, softirq, steal
	columns := strings.Fields(string(line))
	const steal = 8
	if len(columns) <= steal {
		return 0, fmt.Errorf("%s begins with %q", file, line)
	}
	var ticks int64
	for i, text := range columns[:steal+1] {
		if i == 0 || i == 4 || i == 5 { // the name, idle, iowait
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * perTick, nil
}

// fields reads a file of lines with a name and a number.
func fields(file string) (map[string]uint64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := make(map[string]uint64)
	for line := range strings.Lines(string(data)) {
		name, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			continue
		}
		if n, err := strconv.ParseUint(words[0], 10, 64); err == nil {
			found[name] = n
		}
	}
	return found, nil
}

// fill sets what was used between two moments.
func (r *Result) fill(from, to usage) {
	seconds := to.at.Sub(from.at).Seconds()
	cpu := to.cpu - from.cpu
	r.Seconds = seconds
	r.CPUPercent = 100 * cpu.Seconds() / seconds
	r.OthersPercent = max(0, 100*(to.busy-from.busy-cpu).Seconds()/seconds)
	written := float64(to.written - from.written)
	r.WrittenPerSec = written / seconds
	if r.Ops == 0 {
		return
	}
	ops := float64(r.Ops)
	r.PerSecond = ops / seconds
	r.CPUPerOp = float64(cpu.Microseconds()) / ops
	r.WrittenPerOp = written / ops
	r.DevicePerOp = float64(to.device-from.device) / ops
	r.AllocsPerOp = float64(to.mallocs-from.mallocs) / ops
	r.BytesPerOp = float64(to.bytes-from.bytes) / ops
}

// memory sets what the process holds.
func (r *Result) memory() error {
	status, err := fields("/proc/self/status")
	if err != nil {
		return err
	}
	const kib = 1.0 / 1024 // in MiB
	r.RSS, r.PeakRSS = float64(status["VmRSS"])*kib, float64(status["VmHWM"])*kib
	r.Goroutines = runtime.NumGoroutine()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	r.Heap = float64(mem.HeapAlloc) / (1 << 20)
	return nil
}

// probe measures small synced writes into a file that has its blocks: below that no system
// that waits for a disk can come.
func (r *Result) probe(dir string) (err error) {
	const (
		writes = 200
		block  = 4 << 10
	)
	file, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	if _, err := file.Write(make([]byte, writes*block)); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	data := bytes.Repeat([]byte{1}, block)
	took := make([]time.Duration, writes)
	for i := range took {
		begin := time.Now()
		if _, err := file.WriteAt(data, int64(i*block)); err != nil {
			return err
		}
		if err := device.SyncData(file); err != nil {
			return err
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	r.SyncP50, r.SyncP99 = micros(took[writes/2]), micros(took[writes*99/100])
	return nil
}
