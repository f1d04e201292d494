// Package linear says whether what clients were told about keys fits one order of
// events: whether a history of a key-value store is linearizable.
//
// A [History] is written down as it happens, by any number of clients, on one
// clock, which may be a simulated one:
//
//	var h linear.History
//	p := h.Begin(client, linear.Op{Kind: linear.Put, Key: "7/k", Value: "a"}, now())
//	switch err := put(); {
//	case err == nil:
//		p.Done(now(), linear.Result{OK: true})
//	case certainlyNoEffect(err):
//		p.Refused()
//	default:
//		p.Unknown()
//	}
//	linear.Require(t, &h, time.Minute)
//
// Keys do not depend on each other, so each has a history of its own. Keys of
// several groups must differ: put the group into the key.
//
// What ends with an unknown outcome, or has not ended, may have its effect at any
// later time, and the check must consider all of them: its cost grows fast with
// their number. A test should leave a key alone after a handful of unknown
// outcomes, and after some hundred operations in any case.
package linear
