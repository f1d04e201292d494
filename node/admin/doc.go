// Package admin serves a node over HTTP: groups and their members, keys and
// values, health, metrics and profiles.
//
//	handler, err := admin.New(admin.Config{Node: n, KV: kv.NewClient(db), Logger: logger})
//	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
//
// A program that embeds a node can mount the handler in a server of its own. It
// registers nothing globally.
//
// # Promises
//
// Every request ends within its deadline: ?timeout=, by default 10 s, which also
// bounds how long a body may take to arrive. Every refusal, also of a path that
// does not exist, is a problem document (RFC 9457) that says whether the request
// may have had an effect. Bodies are bounded before they are read, and so are the
// requests and the bytes that are in flight at once. A handler that panics fails
// its own request only. Keys arrive as the bytes that the path encodes, whatever
// they are.
//
// The routes and documents are described in docs/http.md, the metrics in
// docs/metrics.md.
package admin
