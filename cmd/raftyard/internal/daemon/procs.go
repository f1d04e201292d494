package daemon

import (
	"os"
	"runtime"
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
