// Package strace reads what strace has written of a node's system calls, and finds
// out whether what the node said was on its disk before it said it.
//
// It counts on how strace works: a thread stands still while its call is written
// down, both when the call begins and when it ends. So if the node does one thing
// because another has ended, the end of the one stands before the beginning of the
// other, in the lines of one trace, and by the clock in the traces of two nodes.
//
// What must be durable is written to the journal of a database with pwrite64, and synced with
// fdatasync. What Badger writes through its mappings is in no trace, and counts for nothing.
package strace
