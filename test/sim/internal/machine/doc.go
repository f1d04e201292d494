// Package machine holds the state machines that the simulator runs when it is given
// no others: a map of registers with versions, in two kinds.
//
//   - [Memory] lives in memory. The node keeps its snapshots in files, and it is
//     rebuilt from the newest one and the log after it.
//   - [Durable] keeps its state and the index of it on the disk, and syncs later
//     than it applies. After a crash it has any state between the one that it has
//     vouched for and the newest.
//
// Commands and results are those of test/linear: [Encode] makes a command or a
// question of a linear.Op, and [Decode] a linear.Result of the answer.
//
// Both tell an [Observer] what they apply, answer and restore, and their hash after
// every index.
package machine
