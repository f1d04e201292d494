package config

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
)

// A validator looks for what single values cannot tell: keys that are missing
// and values that contradict each other.
type validator struct {
	*Loaded
	report *report
	file   string
	fileID raftyard.NodeID // of the file, which a flag may override; zero: none
}

// at returns where key was written, else where the list element or section that
// should hold it was, else the file.
func (v *validator) at(keys ...string) Origin {
	for _, key := range keys {
		if origin, ok := v.origins[key]; ok && origin.Layer != Default {
			return origin
		}
	}
	if v.file == "" {
		return Origin{Layer: Flag, Name: "configuration"}
	}
	return Origin{Layer: File, Name: v.file}
}

func (v *validator) wrong(key, value, format string, args ...any) {
	v.report.add(Problem{
		Origin: v.at(key), Key: key, Value: value, Want: fmt.Sprintf(format, args...),
	})
}

// known reports whether key has been complained about already.
func (v *validator) known(key string) bool {
	return slices.ContainsFunc(v.report.problems, func(p Problem) bool { return p.Key == key })
}

func (v *validator) require(missing bool, key, want string) {
	if missing && !v.known(key) {
		v.wrong(key, "", "missing, want %s", want)
	}
}

// fillListen takes the addresses to bind from this node's line in the address
// book, unless they are given.
func (v *validator) fillListen() {
	for i, p := range v.Nodes {
		if p.ID == 0 || p.ID != v.Node.ID {
			continue
		}
		from := fmt.Sprintf("nodes[%d]", i)
		v.fill(&v.Listen.HTTP, p.HTTP, "listen.http", from+".http")
		v.fill(&v.Listen.Peer, p.Peer, "listen.peer", from+".peer")
		v.fill(&v.Advertise.HTTP, p.HTTP, "advertise.http", from+".http")
		v.fill(&v.Advertise.Peer, p.Peer, "advertise.peer", from+".peer")
		return
	}
	// It joins: others reach it where it listens, unless that is everywhere.
	if !isWildcard(v.Listen.HTTP) {
		v.fill(&v.Advertise.HTTP, v.Listen.HTTP, "advertise.http", "listen.http")
	}
	if !isWildcard(v.Listen.Peer) {
		v.fill(&v.Advertise.Peer, v.Listen.Peer, "advertise.peer", "listen.peer")
	}
}

// founds reports whether this node is one of those that the cluster is founded with.
func (v *validator) founds() bool {
	return slices.ContainsFunc(v.Nodes, func(p Peer) bool { return p.ID == v.Node.ID })
}

func (v *validator) fill(to *string, from, key, fromKey string) {
	if *to == "" && from != "" && !v.known(key) {
		*to = from
		v.origins[key] = v.origins[fromKey]
	}
}

func (v *validator) validate() {
	v.requireCluster()
	v.require(v.Node.ID == 0, "node.id", "this node's id, an integer from 1 on")
	v.require(v.Node.DataDir == "", "node.data_dir", "the path of a directory")
	v.borrowedDir()
	v.listen()
	v.common()
}

func (v *validator) requireCluster() {
	v.require(v.Cluster == "", "cluster", "a name, the same on every node")
}

// common looks at what counts for all nodes alike.
func (v *validator) common() {
	v.dataDir()
	v.addressBook()
	for i := range v.Groups {
		v.group(i)
	}
	v.duplicateGroups()
	v.ticks()
	v.syncs()
}

// dataDir checks that the directory can be used, without touching it.
func (v *validator) dataDir() {
	const key = "node.data_dir"
	dir := v.Node.DataDir
	if dir == "" {
		return
	}
	for path := filepath.Clean(dir); ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		switch {
		case os.IsNotExist(err) && path != filepath.Dir(path):
			continue // it will be made; what matters is the first one that is there
		case err != nil:
			v.wrong(key, dir, "want a directory that can be written (%v)", err)
		case !info.IsDir():
			v.wrong(key, dir, "%s is a file, want a directory", path)
		case isPseudo(path):
			v.wrong(key, dir, "%s is no file system for data, want a directory on a disk", path)
		case !writable(path):
			v.wrong(key, dir, "%s cannot be written, want a directory that can", path)
		}
		return
	}
}

// borrowedDir warns when the file is one node's, and its directory is used for
// another.
func (v *validator) borrowedDir() {
	const key = "node.data_dir"
	if v.fileID == 0 || v.fileID == v.Node.ID || v.origins[key].Layer != File {
		return
	}
	v.report.odd(v.at(key), key, "the directory of node %s in this file, "+
		"and this is node %s (%s): give --data-dir, too", v.fileID, v.Node.ID, v.at("node.id"))
}

func (v *validator) listen() {
	if v.Node.ID == 0 && v.known("node.id") {
		return // whose addresses they should be is not known
	}
	if v.Listen.HTTP == "" && v.Listen.Peer == "" && len(v.Nodes) > 0 && v.Node.ID != 0 &&
		!v.founds() && !v.known("listen.http") && !v.known("listen.peer") {
		v.wrong("node.id", v.Node.ID.String(), "not in nodes, want the id of one of them, "+
			"or listen.http and listen.peer, too, for a node that joins later")
		return
	}
	v.require(v.Listen.HTTP == "", "listen.http", "host:port, such as 127.0.0.1:8700")
	v.require(v.Listen.Peer == "", "listen.peer", "host:port, such as 127.0.0.1:8701")
	v.require(v.Advertise.Peer == "" && isWildcard(v.Listen.Peer), "advertise.peer",
		"the host:port at which other nodes reach this one: nodes does not hold it")
	v.notAnothers("listen.http", v.Listen.HTTP)
	v.notAnothers("listen.peer", v.Listen.Peer)
	v.notAnothers("advertise.http", v.Advertise.HTTP)
	v.notAnothers("advertise.peer", v.Advertise.Peer)
	if overlap(v.Listen.HTTP, v.Listen.Peer) {
		v.wrong("listen.peer", v.Listen.Peer, "the same address as listen.http, want another port")
	}
}

// notAnothers refuses what the address book gives to another node: the file was copied, or
// the id overridden, without the rest. A node that has a directory is only warned: the book is
// that of the founding, and the other one may have moved since. Users may be told of one
// address for several nodes.
func (v *validator) notAnothers(key, address string) {
	own := func(p Peer) bool {
		return p.ID == v.Node.ID && (p.Peer == address || p.HTTP == address)
	}
	if slices.ContainsFunc(v.Nodes, own) {
		return
	}
	for i, p := range v.Nodes {
		name := ""
		switch address {
		case "":
		case p.Peer:
			name = "peer"
		case p.HTTP:
			if key != "advertise.http" {
				name = "http"
			}
		}
		if name == "" || p.ID == v.Node.ID || v.Node.ID == 0 {
			continue
		}
		if v.hasStarted() {
			v.report.odd(v.at(key), key, "%s is the address of node %s (nodes[%d].%s), and this "+
				"is node %s: that is right only if the other one has moved",
				address, p.ID, i, name, v.Node.ID)
			return
		}
		advice := "leave listen out, and the address is from this node's line"
		if !v.founds() || strings.HasPrefix(key, "advertise.") {
			advice = "want one that is this node's own"
		}
		v.wrong(key, address, "the address of node %s (nodes[%d].%s), and this is node %s: %s",
			p.ID, i, name, v.Node.ID, advice)
		return
	}
}

// hasStarted reports whether the directory is one in which a node was started before.
func (v *validator) hasStarted() bool {
	if v.Node.DataDir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(v.Node.DataDir, storage.IdentityName))
	return err == nil
}

// overlap reports whether both addresses cannot be bound at once.
func overlap(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB {
		return false
	}
	return hostA == hostB || isWildcard(a) || isWildcard(b)
}

// isWildcard reports whether address stands for every address of the machine.
func isWildcard(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// unique reports an element that another key has already, and notes it else.
func unique[T comparable](v *validator, seen map[T]string, element T, key, shown string) {
	if first, twice := seen[element]; twice {
		v.wrong(key, shown, "the same as %s, want another", first)
		return
	}
	seen[element] = key
}

func (v *validator) duplicateGroups() {
	seen := map[raftyard.GroupID]string{}
	for i, g := range v.Groups {
		if g.ID != 0 {
			unique(v, seen, g.ID, fmt.Sprintf("groups[%d].id", i), g.ID.String())
		}
	}
}

func (v *validator) group(i int) {
	g := v.Groups[i]
	at := fmt.Sprintf("groups[%d]", i)
	voters := at + ".voters"
	if len(g.Voters) == 0 && v.has(voters) {
		v.wrong(voters, "[]", "no voters, want at least one node id")
	}
	if len(g.Voters) > maxVoters {
		v.wrong(voters, "", "%d voters, want at most %d", len(g.Voters), maxVoters)
	}
	seen := map[raftyard.NodeID]string{}
	v.members(seen, voters, g.Voters)
	v.members(seen, at+".learners", g.Learners)
	if len(g.Voters) > 0 && len(g.Voters)%2 == 0 {
		v.report.odd(v.at(voters), voters, "%d voters survive as many failures as %d would, "+
			"and wait for more answers", len(g.Voters), len(g.Voters)-1)
	}
	snapshot := cmp.Or(g.SnapshotEntries, defaultSnapshotEntries)
	if key := at + ".trailing_entries"; g.TrailingEntries > snapshot {
		v.report.odd(v.at(key), key, "%d entries stay in the log, more than there are between "+
			"two snapshots, %d", g.TrailingEntries, snapshot)
	}
}

func (v *validator) has(key string) bool {
	_, ok := v.origins[key]
	return ok
}

// members checks one list of a group. seen holds who was listed before.
func (v *validator) members(seen map[raftyard.NodeID]string, key string, ids []raftyard.NodeID) {
	for i, id := range ids {
		if id == 0 {
			continue // complained about already
		}
		at := fmt.Sprintf("%s[%d]", key, i)
		unique(v, seen, id, at, id.String())
		known := id == v.Node.ID ||
			slices.ContainsFunc(v.Nodes, func(p Peer) bool { return p.ID == id })
		if !known && len(v.Nodes) > 0 {
			v.wrong(at, id.String(), "not in nodes, want the id of one of them")
		}
	}
}

// syncs checks that the limits of a sync follow each other.
func (v *validator) syncs() {
	v.longer("disk.stuck_sync", v.Disk.StuckSync, "slow_sync", v.Disk.SlowSync)
	v.longer("disk.fail_sync", v.Disk.FailSync, "stuck_sync", v.Disk.StuckSync)
}

func (v *validator) longer(key string, is time.Duration, than string, least time.Duration) {
	than = "disk." + than
	if v.known(key) || v.known(than) || is > least {
		return
	}
	v.report.add(Problem{
		Origin: v.at(key, than), Key: key, Value: is.String(),
		Want: fmt.Sprintf("want more than %s, which is %v", than, least),
	})
}

func (v *validator) ticks() {
	const election, heartbeat = "raft.election_ticks", "raft.heartbeat_ticks"
	r := v.Raft
	if v.known(election) || v.known(heartbeat) || r.ElectionTicks >= minTickRatio*r.HeartbeatTicks {
		return
	}
	v.report.add(Problem{
		Origin: v.at(election, heartbeat),
		Key:    election,
		Value:  fmt.Sprint(r.ElectionTicks),
		Want: fmt.Sprintf("want at least %d times heartbeat_ticks, which is %d",
			minTickRatio, r.HeartbeatTicks),
	})
}
