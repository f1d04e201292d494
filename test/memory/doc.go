// Package memory holds the tests of what nodes take of memory and of disk. They run
// the daemon itself, under loads that would make it take more and more if anything in
// it had no bound, sample what each process has over time, and hold it to what
// docs/memory.md says. Tables of the samples are printed with -v.
package memory
