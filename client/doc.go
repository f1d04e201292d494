// Package client talks to raftyard nodes over HTTP.
//
//	c, err := client.New(client.Config{Addrs: []string{"127.0.0.1:8700", "127.0.0.1:8710"}})
//	put, err := c.Put(ctx, 7, []byte("greeting"), []byte("hello"), client.Cond{})
//	got, err := c.Get(ctx, 7, []byte("greeting"), client.Linearizable)
//
// Any node answers any request, so one reachable address is enough; the client
// goes on to the next when one cannot be reached.
//
// # Outcomes
//
// A request that changes something ends in one of three ways: it is done; it is
// certainly not done, and [NotApplied] is true for the error; or nobody can tell,
// and it is false. The client itself repeats only what is certainly not done, or
// changes nothing.
//
// The package imports nothing of the server, so a program that uses it does not
// link one. The documents it exchanges are described in docs/http.md.
package client
