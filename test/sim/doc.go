// Package sim runs a whole cluster of real nodes, in one thread and in virtual time,
// under everything that can go wrong, and checks after every step what must be true.
// One seed decides everything: which process runs next, what the network and the
// disks do, which faults come, and what clients ask. The same seed is the same run.
//
// Programs that embed a node run their own state machine under it:
//
//	func TestSimulated(t *testing.T) {
//		for seed := range uint64(200) {
//			sim.Test(t, sim.Config{
//				Seed:     seed,
//				Kinds:    map[string]sim.Kind{"orders": orders.Kind},
//				Workload: placeOrders,
//			})
//		}
//	}
//
// A run has two phases. In the first one anything may fail, and whatever happens the
// rules of safety must hold. Then all faults end, and the cluster must get well, and
// answer, within bounds.
//
// A seed that fails prints what was broken, the last events, and the [Schedule] of
// its faults, made as small as possible. A schedule is text, and can be given back.
//
// # Scripts
//
// [Start] returns a [World] without faults and clients, and its methods do what a
// test says: crash this node, hold that message, wait until something is so. That is
// how a bug that was found becomes a test that stays.
package sim
