package node

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// sampleMeta and sampleRemains are the examples of docs/formats/node.md.
func sampleMeta() meta {
	return meta{
		Floor: floor{
			Index: 1000, Term: 3, Machine: 998, File: "snapshot-1",
			Check: fileCheck{Known: true, Size: 4096, CRC: 0x01020304},
		},
		Install: &installIntent{
			Index: 2000, Term: 4, File: "incoming-1",
			Check: fileCheck{Known: true, Size: 5, CRC: 7}, Manifest: []byte("manifest"),
		},
		Stores: []knownStore{{
			Node: 1, Store: registry.Store{1, 15: 2}, First: registry.Store{3}, Boot: 300,
			Process: registry.Store{4},
		}},
		StoresAt: 5000, NoMachine: true, Rebuild: true, SkipAt: 700,
		Skips: []group.Skip{{Index: 600, Term: 2, At: 700}},
	}
}

func sampleRemains() remains {
	return remains{
		Descriptor: group.Descriptor{Kind: "list", Members: []group.Member{
			{ID: 1, Node: 300, Role: group.Voter, Store: registry.Store{5}},
			{ID: 2, Node: 2, Role: group.Learner},
		}},
		Index: 500, Term: 3, NoMachine: true,
	}
}

// sampleGrave is of a group that was deleted, sampleLeftover of what is set aside.
func sampleGrave() remains {
	last := sampleRemains()
	last.Deleted, last.NextReplica = true, 9
	last.Ahead = []group.Descriptor{{Epoch: 301, Members: []group.Member{
		{ID: 8, Node: 3, Role: group.Incoming, Store: registry.Store{6}},
	}}}
	last.Blind = true
	return last
}

func sampleLeftover() leftover {
	return leftover{
		group: 300, incarnation: raftyard.Incarnation{1, 15: 2}, id: 7, kind: "list",
		noMachine: true,
	}
}

// TestFormats pins what is on disks. A difference here is a new version of the format.
func TestFormats(t *testing.T) {
	formats := map[string][]byte{
		"replica record": sampleMeta().encode(),
		"empty record":   meta{}.encode(),
		"tombstone":      sampleRemains().encode(),
		"deleted group":  sampleGrave().encode(),
		"leftover":       sampleLeftover().encode(),
	}
	datadriven.RunTest(t, "testdata/formats", func(t *testing.T, d *datadriven.TestData) string {
		b, ok := formats[strings.TrimSpace(d.Input)]
		if !ok {
			d.Fatalf(t, "no format %q", d.Input)
		}
		return hex.Dump(b)
	})
}

// TestEarlierFormats reads what earlier versions have written. Nothing here may change.
func TestEarlierFormats(t *testing.T) {
	const (
		front  = "03010000e80703e6070a736e617073686f742d31"
		intent = "01d00f040a696e636f6d696e672d31086d616e6966657374"
		store  = "01000000000000000000000000000002"
	)
	fifth := sampleMeta()
	fifth.Rebuild, fifth.SkipAt, fifth.Skips = false, 0, nil
	old := fifth
	old.StoresAt = 0
	old.Stores = []knownStore{{Node: 1, Store: registry.Store{1, 15: 2}, Boot: 300}}
	full := old
	full.Install = &installIntent{
		Index: 2000, Term: 4, File: "incoming-1", Manifest: []byte("manifest"),
	}
	full.NoMachine = false
	full.Floor.Check = fileCheck{}
	bootless, storeless := full, full
	bootless.Stores = []knownStore{{Node: 1, Store: registry.Store{1, 15: 2}}}
	storeless.Stores = nil
	for text, want := range map[string]meta{
		"01" + front + intent:                           storeless,
		"02" + front + intent + "0101" + store:          bootless,
		"03" + front + intent + "0101" + store + "ac02": full,
		"04" + front + "018020" + "84868808" + "01d00f040a696e636f6d696e672d31" + "010507" +
			"086d616e6966657374" + "0101" + store + "ac02" + "01": old,
		"05" + front + "018020" + "84868808" + "01d00f040a696e636f6d696e672d31" + "010507" +
			"086d616e6966657374" + "0101" + store + "03000000000000000000000000000000" + "ac02" +
			"04000000000000000000000000000000" + "8827" + "01": fifth,
	} {
		got, err := decodeMeta(unhex(t, text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("decodeMeta(%s) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	homeless := func(d remains) remains {
		for _, ms := range [][]group.Member{d.Members, ahead(d)} {
			for i := range ms {
				ms[i].Store = raftyard.StoreID{}
			}
		}
		return d
	}
	last := homeless(sampleRemains())
	last.NoMachine = false
	unproved := last
	unproved.Index, unproved.Term = 0, 0
	const third = "03046c6973740201ac0201020202f4030301"
	for text, want := range map[string]remains{
		"01046c6973740201ac0201020202":       unproved,
		"02046c6973740201ac0201020202f40303": last,
		third:                                homeless(sampleRemains()),
		"04" + third[2:] + "010901ad020108" + "0303": homeless(sampleGrave()),
		"04046c697374000000" + "00" + "000900": {
			Descriptor: group.Descriptor{Kind: "list", NextReplica: 9}, Blind: true,
		},
	} {
		got, err := decodeRemains(unhex(t, text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("decodeRemains(%s) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func ahead(d remains) []group.Member {
	if len(d.Ahead) == 0 {
		return nil
	}
	return d.Ahead[0].Members
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
