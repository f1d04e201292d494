// Package cluster runs raftyard's daemon as it runs in earnest, for tests: one
// process for each node, real sockets on loopback, real directories.
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		c := cluster.New(t, cluster.Config{Nodes: 3})
//		c.Start()
//		c.Node(1).Kill() // kill -9
//		c.Node(1).Start()
//		c.AwaitReady(time.Minute)
//	}
//
// Whatever a test starts ends with it: when the test ends every process is
// killed and waited for, and on Linux also when the test itself is killed. The
// nodes' logs are files; when the test fails, their ends are part of its output.
// A node that says in its log that something has failed which ought not to,
// fails the test, whatever the test itself looked at.
//
// Nodes of a cluster with Links can be parted: [Cluster.Network] cuts, delays, slows
// and resets what they say to each other, in each direction by itself.
//
// [Node.Do] sends one request once and says how it ended: it repeats nothing, so
// that a test can hold a node to what it has answered.
package cluster
