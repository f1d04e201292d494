package daemon

import (
	"cmp"
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

// writersPerNode is how many goroutines of a node wait in a sync of the disk most
// of the time: the log's committer and the state's.
const writersPerNode = 2

// TuneProcs gives the scheduler room for the goroutines that wait for the disk.
// One that waits in fdatasync or msync holds its P until the monitor takes it
// back, so on few cores the rest of the program stands still meanwhile. What the
// user has set stays as it is. It returns the number that now holds.
func TuneProcs(nodes int) int {
	const fewCores = 4
	procs := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") != "" || procs > fewCores {
		return procs
	}
	procs += nodes * writersPerNode
	runtime.GOMAXPROCS(procs)
	return procs
}

// memoryPerNode is the memory that a node may take before the collector works harder than
// usual. By itself it lets garbage grow to as much as is in use, and in use are large
// buffers, of databases and of requests, that come and go; see docs/memory.md.
const memoryPerNode = 1 << 30

// TuneMemory bounds the garbage of a process with some nodes, each with so many bytes; zero:
// the default. What the user has set as GOMEMLIMIT stays as it is. It returns the limit that
// now holds.
func TuneMemory(nodes int, perNode int64) int64 {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 || os.Getenv("GOMEMLIMIT") != "" {
		return limit
	}
	limit := int64(nodes) * cmp.Or(perNode, memoryPerNode)
	debug.SetMemoryLimit(limit)
	return limit
}
