// Package test holds the tests that need several nodes. They run the daemon
// itself, in processes of its own, and do to it what happens to it in earnest; see
// README.md for what each of them proves, how large it is and how long it takes.
package test
