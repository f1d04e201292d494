// Package crash kills nodes that run on real Badger, and holds what is left against
// what was acknowledged.
//
// A child process, the test binary again, embeds several nodes and works on several
// groups. It tells its parent over a pipe what it is about to do and what it was
// told, and in which phase of its life a replica is. The parent kills it at random
// moments, or in a phase, and starts it again on the same directories; the child
// then shows what there is, and the parent compares.
//
// Beside that, the daemon runs under strace, and its system calls are to show that
// nothing is answered before what it says is on the disk.
package crash
