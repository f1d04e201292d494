// Package load gives a system operations to do, for a while, and tells how many it did
// and how long they took.
//
//	report := load.Run(ctx, load.Config{
//		Clients: 16, Rate: 2000, Warmup: time.Second, Duration: 10 * time.Second,
//		Kinds: 1, Do: put,
//	})
//
// # Closed and open loop
//
// Without a rate each client begins an operation when its last one has ended: the system
// sets the pace, and a stall delays only as many operations as there are clients. Nothing
// tells what others would have had to wait who wanted something meanwhile.
//
// With a rate operations are due at fixed times, whatever the system does, and latency is
// counted from then on. An operation that has to wait for a client, because all of them
// wait for the system, is slow. One that no client had begun by the end has waited at least
// until then: that is its latency, and it is counted as late.
package load
