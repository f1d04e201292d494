package registry

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/lineage"
)

// TestFormats runs scripts against one registry each. The output is the bytes of
// every command, result and snapshot: the files pin the formats and show how the
// state evolves. A changed byte needs a new format version.
func TestFormats(t *testing.T) {
	datadriven.Walk(t, "testdata/formats", func(t *testing.T, path string) {
		r := New(nil, nil)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "create":
				return run(t, r, EncodeCreateGroup(CreateGroup{
					ID: scanUint[raftyard.GroupID](t, d, "id"), Incarnation: scanIncarnation(t, d),
					Kind: scanString(t, d, "kind"), Voters: scanNodes(t, d, "voters"),
					Learners:        scanNodes(t, d, "learners"),
					SnapshotEntries: scanUint[uint64](t, d, "snapshot"),
					TrailingEntries: scanUint[uint64](t, d, "trailing"),
					Seed:            scanUint[raftyard.NodeID](t, d, "seed"),
				}))
			case "delete":
				return run(t, r, EncodeDeleteGroup(DeleteGroup{
					ID: scanUint[raftyard.GroupID](t, d, "id"), Incarnation: scanIncarnation(t, d),
				}))
			case "want":
				return run(t, r, EncodeWantMembers(WantMembers{
					ID: scanUint[raftyard.GroupID](t, d, "id"), Incarnation: scanIncarnation(t, d),
					Voters: scanNodes(t, d, "voters"), Learners: scanNodes(t, d, "learners"),
					IfVersion: scanUint[uint64](t, d, "version"),
				}))
			case "node":
				n := Node{
					ID:   scanUint[raftyard.NodeID](t, d, "id"),
					Peer: scanString(t, d, "peer"), HTTP: scanString(t, d, "http"),
					Store: scanID(t, d, "store"), Boot: scanUint[uint64](t, d, "boot"),
				}
				for pair := range strings.SplitSeq(scanString(t, d, "labels"), ";") {
					if k, v, ok := strings.Cut(pair, ":"); ok {
						if n.Labels == nil {
							n.Labels = make(map[string]string)
						}
						n.Labels[k] = v
					}
				}
				return run(t, r, EncodeSetNode(SetNode{
					Node: n, Starts: scanStarts(t, d),
					IfAbsent: d.HasArg("if-absent"), IfPresent: d.HasArg("if-present"),
					Sparse: d.HasArg("sparse"), Late: d.HasArg("late"),
				}))
			case "state":
				return run(t, r, EncodeSetNodeState(SetNodeState{
					ID:    scanUint[raftyard.NodeID](t, d, "id"),
					State: NodeState(scanUint[uint64](t, d, "state")), Forced: d.HasArg("forced"),
				}))
			case "replace":
				return run(t, r, EncodeReplaceStore(ReplaceStore{
					ID:  scanUint[raftyard.NodeID](t, d, "id"),
					Old: scanID(t, d, "old"), New: scanID(t, d, "new"),
				}))
			case "forget":
				return run(t, r, EncodeForgetGroup(ForgetGroup{
					ID: scanUint[raftyard.GroupID](t, d, "id"), Incarnation: scanIncarnation(t, d),
				}))
			case "reached":
				return run(t, r, EncodeReached(Reached{
					ID: scanUint[raftyard.GroupID](t, d, "id"), Incarnation: scanIncarnation(t, d),
					Version: scanUint[uint64](t, d, "version"),
				}))
			case "command": // one of an older format
				return run(t, r, scanHex(t, d))
			case "result": // one of an older format
				return showResult(t, scanHex(t, d))
			case "restore": // a snapshot of an older format
				restore(t, r, scanHex(t, d))
				return dumpSnapshot(t, r)
			case "snapshot":
				return dumpSnapshot(t, r)
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
				return ""
			}
		})
	})
}

// run applies one command and shows it and its result, as bytes and in words.
func run(t *testing.T, r *Registry, cmd []byte) string {
	t.Helper()
	results, err := r.Apply([]group.Command{{Data: cmd}})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("command %x\nresult  %x\n", cmd, results[0].Data) +
		showResult(t, results[0].Data)
}

// showResult shows a result in words.
func showResult(t *testing.T, data []byte) string {
	t.Helper()
	res, err := DecodeResult(data)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v", res.Code)
	if res.Detail != "" {
		fmt.Fprintf(&b, ": %s", res.Detail)
	}
	b.WriteByte('\n')
	if g := res.Group; g.ID != 0 {
		fmt.Fprintf(&b, "group %d: %v kind=%s version=%d", g.ID, g.Incarnation, g.Kind, g.Version)
		if g.Deleted {
			b.WriteString(" deleted")
		} else {
			fmt.Fprintf(&b, " voters=%v learners=%v snapshot=%d trailing=%d seed=%d",
				g.Voters, g.Learners, g.SnapshotEntries, g.TrailingEntries, g.Seed)
			if len(g.Before) > 0 {
				fmt.Fprintf(&b, " before=%v", g.Before)
			}
		}
		b.WriteByte('\n')
	}
	if n := res.Node; n.ID != 0 {
		fmt.Fprintf(&b, "node %d: %v peer=%s http=%s labels=%v\n",
			n.ID, n.State, n.Peer, n.HTTP, n.Labels)
		if n.Forced {
			b.WriteString("  forced\n")
		}
		if !n.Store.IsZero() {
			fmt.Fprintf(&b, "  store %v, the first was %v, boot %d\n", n.Store, n.First, n.Boot)
		}
		if !n.Process.IsZero() {
			fmt.Fprintf(&b, "  process %v\n", n.Process)
		}
	}
	return b.String()
}

// dumpSnapshot shows the stream frame by frame.
func dumpSnapshot(t *testing.T, r *Registry) string {
	t.Helper()
	var b strings.Builder
	stream := save(t, r)
	rest := bytes.Clone(stream)
	for len(rest) > 0 {
		size := int(rest[0]) | int(rest[1])<<8
		fmt.Fprintf(&b, "frame length=%x crc=%x\n%s", rest[:4], rest[4:8],
			hex.Dump(rest[frameHeaderBytes:frameHeaderBytes+size]))
		rest = rest[frameHeaderBytes+size:]
	}
	fmt.Fprintf(&b, "hash %x\n", hash(t, r))
	restore(t, New(nil, nil), stream)
	return b.String()
}

func scanString(t *testing.T, d *datadriven.TestData, key string) string {
	t.Helper()
	var s string
	d.MaybeScanArgs(t, key, &s)
	return s
}

func scanUint[T ~uint64](t *testing.T, d *datadriven.TestData, key string) T {
	t.Helper()
	s := scanString(t, d, key)
	if s == "" {
		return 0
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		d.Fatalf(t, "%s: %v", key, err)
	}
	return T(v)
}

func scanNodes(t *testing.T, d *datadriven.TestData, key string) []raftyard.NodeID {
	t.Helper()
	i := slices.IndexFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
	if i < 0 {
		return nil
	}
	var list []raftyard.NodeID
	for _, s := range d.CmdArgs[i].Vals {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			d.Fatalf(t, "%s: %v", key, err)
		}
		list = append(list, raftyard.NodeID(v))
	}
	return list
}

// scanIncarnation reads up to 16 bytes in hexadecimal; the rest is zero.
func scanIncarnation(t *testing.T, d *datadriven.TestData) raftyard.Incarnation {
	t.Helper()
	return scanID(t, d, "incarnation")
}

func scanID(t *testing.T, d *datadriven.TestData, key string) (id [16]byte) {
	t.Helper()
	b, err := hex.DecodeString(scanString(t, d, key))
	if err != nil {
		d.Fatalf(t, "%s: %v", key, err)
	}
	copy(id[:], b)
	return id
}

// scanStarts reads numbers and processes in turn. Starts are kept since the first of them.
func scanStarts(t *testing.T, d *datadriven.TestData) (l lineage.Lineage) {
	t.Helper()
	i := slices.IndexFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == "starts" })
	if i < 0 {
		return l
	}
	for pair := range slices.Chunk(d.CmdArgs[i].Vals, 2) {
		boot, err := strconv.ParseUint(pair[0], 10, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s := lineage.Start{Boot: boot}
		copy(s.Process[:], pair[1])
		l.Starts = append(l.Starts, s)
	}
	l.Since = l.Starts[0].Boot
	return l
}

// scanHex reads the input, hexadecimal digits on any number of lines.
func scanHex(t *testing.T, d *datadriven.TestData) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(d.Input), ""))
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return b
}
