// Package bench holds the benchmarks that go across packages: storage, the steps of a
// group, transport, nodes and their keys. docs/performance.md says how to run them and what
// each figure is.
//
// Whatever can be is measured beside a baseline, in turns and in the same run: an append
// file, raft by itself, a bare connection. Their ratio says the same on a fast machine and on
// a slow one, and is what [Floors] holds a change to. No benchmark is compared with a time.
package bench

// CheckVariable is the environment variable with which a benchmark fails whose ratio is
// below its floor.
const CheckVariable = "RAFTYARD_BENCH_CHECK"

// HeapVariable is the environment variable that names the file into which BenchmarkScale
// writes a profile of the heap when all groups sleep.
const HeapVariable = "RAFTYARD_BENCH_HEAP"

// Floors are the least ratios to the baselines, by the name of the benchmark. They leave
// room for noise: what is below one is a regression, what is above is no promise.
func Floors() map[string]float64 {
	return map[string]float64{
		"StorageCommit/committers=1":    0.25,
		"StorageCommit/committers=16":   0.12,
		"StorageCommit/committers=64":   0.12,
		"StorageCommit/committers=256":  0.12,
		"StorageSustained":              0.1,
		"Group/together=1":              0.35,
		"Group/together=16":             1,
		"Group/together=256":            2,
		"Transport/burst=1":             0.3,
		"Transport/burst=16":            0.25,
		"Transport/burst=256":           0.03,
		"KVLarger/op=get/beside=badger": 0.05,
		"KVLarger/op=put/beside=badger": 0.05,
	}
}
