//go:build race

package cluster

// RaceEnabled tells whether the test, and so the daemon, is built with the race detector.
const RaceEnabled = true
