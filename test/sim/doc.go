// Package sim runs a whole cluster of real nodes, in one thread and in virtual time,
// under everything that can go wrong, and checks after every step what must be true.
// One seed decides everything: which process runs next, what the network and the
// disks do, which faults come, and what clients ask. The same seed is the same run.
//
// Programs that embed a node run their own state machine under it:
//
//	func TestSimulated(t *testing.T) {
//		sim.Seeds(t, 200, sim.Config{
//			Kinds: map[string]sim.Kind{"orders": orders.Kind},
//			Prepare: func(cfg *sim.Config) { // at the beginning of each run
//				var placed int
//				cfg.Workload = func(c *sim.Client) { placed += place(c) }
//				cfg.Audit = func(c *sim.Client) { look(c, placed) }
//			},
//		})
//	}
//
// What state machines may do there is said at [Kind]. Simulations run one at a time:
// tests that use them must not be parallel.
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
