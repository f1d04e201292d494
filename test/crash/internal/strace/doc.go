// Package strace reads what strace has written of a node's system calls, and finds
// out whether what the node said was on its disk before it said it.
//
// It counts on how strace works: a thread stands still while its call is written
// down, both when the call begins and when it ends. So if the node does one thing
// because another has ended, the end of the one stands before the beginning of the
// other, in the lines of one trace, and by the clock in the traces of two nodes.
//
// Badger writes its logs through mappings, so a write to the disk shows as nothing but a
// sync: by the descriptor of the file, or the msync of a mapping of it.
package strace
