// Package turns runs processes in virtual time, one at a time, in an order that the
// dice decide. It is what a simulation has in place of the Go scheduler and the
// clock.
//
// A process is a coroutine. It runs until it says, with [Station.Until], what it
// waits for; then the scheduler asks which of the waiting processes can go on, and
// lets the dice pick one. When none can, time jumps to the next timer. Nothing
// happens at the same time as something else, so the same seed gives the same run.
//
// Processes belong to a [Station], which is one start of one simulated machine:
// stations are paused, and killed, as a whole.
//
// The goroutine that makes the [Scheduler] drives it: nothing moves except while
// it is in [Scheduler.Until]. Nothing here may be used by another goroutine, except
// by the processes themselves.
package turns
