// Package simnet is a network of simulated nodes in virtual time, with faults. To a
// node it is what package transport is: what its [transport.Handler] hears, and what
// sending and asking return, keep the promises of that package; every batch goes
// through the real codec and its checks.
//
// A connection belongs to who has dialled it. Faults are set for a [Route], which is
// one direction between two nodes, and are those of the connections that From has
// dialled to To: while a route is cut, nothing passes on them either way, and what
// is on its way waits, until the route heals or the connection is given up.
package simnet
