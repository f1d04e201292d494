//go:build !race

package cluster

// raceEnabled: the test is built with the race detector.
const raceEnabled = false
