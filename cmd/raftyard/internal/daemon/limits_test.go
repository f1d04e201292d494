package daemon

import (
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/raftyard/raftyard/internal/config"
)

// TestEveryLimitArrives: each limit of the configuration is one of the parts that the daemon
// is made of, and no two are the same.
func TestEveryLimitArrives(t *testing.T) {
	o := options(t, t.TempDir())
	limits := reflect.ValueOf(&o.Config.Limits).Elem()
	const first = 64 << 20 // more than every least
	for i := range limits.NumField() {
		limits.Field(i).SetInt(int64(first + i))
	}
	o.Config.Limits.HTTPConnections, o.Config.Limits.HTTPRequests = 11, 12
	o.Config.Limits.PeerRequests = 13
	o.Config.Limits.SnapshotSends, o.Config.Limits.SnapshotReceives = 14, 15
	l := o.Config.Limits
	d, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDaemon(t, d)
	most, _ := d.crowd.limit()
	of := d.node.Metrics().Limits
	got := []int64{
		int64(most), d.admin.MaxBodyBytes, d.admin.MaxAnswerBytes, int64(d.admin.MaxInFlight),
		of.PeerRequests.Most, of.PeerRequestBytes.Most, of.PeerQueueBytes.Most,
		of.WorkerQueueBytes.Most, of.ProposalBytes.Most, of.UnsavedBytes.Most,
		of.ApplyBacklogBytes.Most, of.EntryCacheBytes.Most, of.SnapshotSends.Most,
		of.SnapshotReceives.Most, of.StateBlockCache.Most, of.StateIndexCache.Most,
	}
	want := []int64{
		int64(l.HTTPConnections), l.HTTPBodyBytes, l.HTTPAnswerBytes, int64(l.HTTPRequests),
		int64(l.PeerRequests), l.PeerRequestBytes, l.PeerQueueBytes,
		l.WorkerQueueBytes, l.ProposalBytes, l.UnsavedBytes,
		l.ApplyBacklogBytes, l.EntryCacheBytes, int64(l.SnapshotSends),
		int64(l.SnapshotReceives), l.StateBlockCacheBytes, l.StateIndexCacheBytes,
	}
	if !slices.Equal(got, want) {
		t.Errorf("limits are %d, want %d", got, want)
	}
	// All but that of the collector, which is the process's.
	if fields := limits.NumField(); len(want) != fields-1 {
		t.Errorf("%d limits are looked at, there are %d", len(want), fields-1)
	}
}

// TestTuneMemory: the collector is held to what is configured for each node, unless the user
// has said something else.
func TestTuneMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	for _, tt := range []struct {
		env        string
		had        int64
		nodes      int
		each, want int64
	}{
		{nodes: 1, had: math.MaxInt64, want: memoryPerNode},
		{nodes: 3, had: math.MaxInt64, each: 200 << 20, want: 600 << 20},
		{nodes: 1, had: 5 << 30, each: 200 << 20, want: 5 << 30, env: "5GiB"},
		{nodes: 1, had: math.MaxInt64, each: 200 << 20, want: math.MaxInt64, env: "off"},
	} {
		t.Setenv("GOMEMLIMIT", tt.env)
		debug.SetMemoryLimit(tt.had)
		got := TuneMemory(tt.nodes, tt.each)
		if set := debug.SetMemoryLimit(-1); got != tt.want || set != tt.want {
			t.Errorf("TuneMemory(%d, %d) with GOMEMLIMIT=%q = %d and sets %d, want %d",
				tt.nodes, tt.each, tt.env, got, set, tt.want)
		}
	}
}

// TestDefaultLimit: what the configuration says is what the daemon has by itself.
func TestDefaultLimit(t *testing.T) {
	loaded, err := config.Load(config.Sources{Flags: map[string]string{
		"cluster": "c", "node-id": "1", "data-dir": t.TempDir(),
		"nodes": "[{id: 1, peer: 127.0.0.1:1, http: 127.0.0.1:2}]",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := loaded.Limits.Memory; got != memoryPerNode {
		t.Errorf("limits.memory is %d by itself, want %d", got, int64(memoryPerNode))
	}
	if got := loaded.Limits.HTTPConnections; got != mostConnections {
		t.Errorf("limits.http_connections is %d by itself, want %d", got, mostConnections)
	}
}
