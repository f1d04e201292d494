package kv

import (
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	long := strings.Repeat("k", 100)
	tests := []struct {
		name string
		data []byte
		want string
	}{
		{"put", put("a", "123"), `put "a" (3 bytes)`},
		{
			"put if absent", encodePut([]byte("a"), nil, Cond{Absent: true}),
			`put "a" (0 bytes) if absent`,
		},
		{
			"put if present", encodePut([]byte("a"), nil, Cond{Present: true}),
			`put "a" (0 bytes) if present`,
		},
		{
			"delete at a revision", encodeDelete([]byte("\x1b"), Cond{Revision: 7}),
			`delete "\x1b" if at revision 7`,
		},
		{"long key", del(long), `delete "` + long[:64] + `"...`},
		{"txn", encodeTxn(Txn{
			Compares: []Compare{{Key: []byte("a"), Target: TargetRevision, Is: Equal}},
			Then: []Op{
				{Kind: OpPut, Key: []byte("a")},
				{Kind: OpDelete, Key: []byte("b")},
				{Kind: OpGet, Key: []byte("c")},
				{Kind: OpGet, Key: []byte("d")},
				{Kind: OpGet, Key: []byte("e")},
				{Kind: OpGet, Key: []byte("f")},
			},
		}), `txn: 1 compares; then put "a", delete "b", get "c", get "d", 2 more; else nothing`},
		{"nonsense", []byte{9, 9}, "unreadable, 2 bytes: "},
		{"nothing", nil, "unreadable, 0 bytes: "},
	}
	for _, tt := range tests {
		if got := Describe(tt.data); got != tt.want &&
			(!strings.HasPrefix(got, tt.want) || !strings.HasPrefix(tt.want, "unreadable")) {
			t.Errorf("%s: Describe = %s, want %s", tt.name, got, tt.want)
		}
	}
}
