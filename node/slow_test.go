package node

import (
	"errors"
	"testing"
	"time"
)

var testSyncLimits = syncLimits{slow: time.Second, stuck: 10 * time.Second, fail: 20 * time.Second}

// syncs has so many syncs of a length follow each other, and returns when the last ended.
func syncs(s *slowness, now time.Time, count int, took time.Duration) time.Time {
	for range count {
		s.begin(syncLog, now)
		now = now.Add(took)
		s.end(syncLog, now)
	}
	return now
}

func TestSlownessOfSyncs(t *testing.T) {
	fast := []time.Duration{time.Millisecond, 2 * time.Millisecond}
	now := time.Unix(1000, 0)
	s := &slowness{limits: testSyncLimits}
	now = syncs(s, now, 100, time.Millisecond)
	if v := s.judge(now, fast, true); v.slow || v.stuck || v.failed != nil {
		t.Errorf("with syncs of 1 ms: %+v", v)
	}
	now = syncs(s, now, 1, 3*time.Second)
	if v := s.judge(now, fast, true); v.slow {
		t.Errorf("after one slow sync: %+v", v)
	}
	now = syncs(s, now, 20, 1500*time.Millisecond)
	slow := []time.Duration{1200 * time.Millisecond, 1300 * time.Millisecond}
	if v := s.judge(now, slow, true); v.slow {
		t.Errorf("as slow as all others: %+v", v)
	}
	if v := s.judge(now, fast, false); !v.slow || !v.changed || s.condition(now).Shedding {
		t.Errorf("slow, but not the first: %+v %+v", v, s.condition(now))
	}
	if v := s.judge(now, fast, true); !v.slow || !s.condition(now).Shedding {
		t.Errorf("slow and the first: %+v %+v", v, s.condition(now))
	}
	now = syncs(s, now, 100, time.Millisecond)
	if v := s.judge(now, fast, true); !v.slow {
		t.Errorf("0.1 s after it was slow: %+v", v)
	}
	now = now.Add(recovery)
	if v := s.judge(now, fast, true); v.slow || !v.changed {
		t.Errorf("%v after it was slow: %+v", recovery, v)
	}
}

func TestStuckSync(t *testing.T) {
	fast := []time.Duration{time.Millisecond}
	start := time.Unix(1000, 0)
	s := &slowness{limits: testSyncLimits}
	s.begin(syncLog, start)
	for _, tt := range []struct {
		after                   time.Duration
		slow, stuck, wantFailed bool
	}{
		{after: 999 * time.Millisecond},
		{after: time.Second, slow: true},
		{after: 10*time.Second - 1, slow: true},
		{after: 10 * time.Second, slow: true, stuck: true},
		{after: 20*time.Second - 1, slow: true, stuck: true},
		{after: 20 * time.Second, slow: true, stuck: true, wantFailed: true},
	} {
		s.looked = start.Add(tt.after - slowEvery)
		v := s.judge(start.Add(tt.after), fast, true)
		failed := errors.Is(v.failed, errStuck)
		if v.slow != tt.slow || v.stuck != tt.stuck || failed != tt.wantFailed {
			t.Errorf("after %v: %+v, want slow %t, stuck %t, failed %t",
				tt.after, v, tt.slow, tt.stuck, tt.wantFailed)
		}
	}
	s.looked = start.Add(20*time.Second - slowEvery)
	end := start.Add(21 * time.Second)
	s.end(syncLog, end)
	if v := s.judge(end, fast, true); v.stuck || v.failed != nil {
		t.Errorf("when it has come back: %+v", v)
	}
}

// What waits for space does not wait for the disk.
func TestHeldCommitIsNotStuck(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &slowness{limits: testSyncLimits}
	s.begin(syncLog, now)
	for range 1000 {
		now = now.Add(100 * time.Millisecond)
		s.waitLog(now)
		if v := s.judge(now, nil, true); v.slow || v.stuck || v.failed != nil {
			t.Fatalf("held: %+v", v)
		}
	}
	s.end(syncLog, now.Add(time.Millisecond))
	if got := s.times(now).worst; got > time.Second {
		t.Errorf("the worst sync took %v, want 1 ms", got)
	}
}

// A process that was stopped in a sync has not waited for the disk meanwhile.
func TestPauseIsNotStuck(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &slowness{limits: testSyncLimits}
	s.judge(now, nil, true)
	s.begin(syncLog, now)
	now = now.Add(time.Minute)
	if v := s.judge(now, nil, true); v.slow || v.stuck || v.failed != nil {
		t.Errorf("after a pause of a minute: %+v", v)
	}
	for range 101 {
		now = now.Add(slowEvery)
		s.judge(now, nil, true)
	}
	if v := s.judge(now, nil, true); !v.stuck {
		t.Errorf("10 s after the pause: %+v, want stuck", v)
	}
}

// A disk to which nobody writes any more is not slow for ever.
func TestSlownessIsForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &slowness{limits: testSyncLimits}
	now = syncs(s, now, 50, 2*time.Second)
	if v := s.judge(now, nil, true); !v.slow {
		t.Fatalf("not slow: %+v", v)
	}
	for range 600 {
		now = now.Add(100 * time.Millisecond)
		s.judge(now, nil, true)
	}
	if c := s.condition(now); c.Slow {
		t.Errorf("slow a minute after the last sync: %+v", c)
	}
}

func TestFitterToLead(t *testing.T) {
	for _, tt := range []struct {
		name        string
		theirs, our condition
		want        bool
	}{
		{"both well", condition{}, condition{}, false},
		{"we are short", condition{}, condition{Level: DiskSoft}, true},
		{"both are short", condition{Level: DiskSoft}, condition{Level: DiskSoft}, false},
		{"we are shorter", condition{Level: DiskSoft}, condition{Level: DiskHard}, true},
		{"we are short, they are slow", condition{Slow: true}, condition{Level: DiskFloor}, false},
		{"we are slow", condition{}, condition{Slow: true}, true},
		{"we are slow, they are short", condition{Level: DiskSoft}, condition{Slow: true}, true},
		{"we are slow, they are full", condition{Level: DiskHard}, condition{Slow: true}, false},
		{"both are slow", condition{Slow: true}, condition{Slow: true}, false},
		{"they are stuck", condition{Stuck: true}, condition{Slow: true}, false},
	} {
		if got := tt.theirs.fitter(tt.our); got != tt.want {
			t.Errorf("%s: fitter = %t, want %t", tt.name, got, tt.want)
		}
	}
}

// A disk that fills up fast is given up early.
func TestDiskLevelFollowsTheSpeed(t *testing.T) {
	free, now := int64(10_000), time.Unix(1000, 0)
	d := newDisk(func() time.Time { return now }, func() int64 { return free })
	d.floor.Store(100)
	if level, _, again := d.look(); level != DiskOK || again != diskEvery {
		t.Errorf("level = %v, again in %v", level, again)
	}
	now, free = now.Add(diskEvery), 9000 // 4,000 a second
	if level, _, _ := d.look(); level != DiskOK {
		t.Errorf("with two seconds left: %v", level)
	}
	now, free = now.Add(diskEvery), 4050
	if level, _, _ := d.look(); level != DiskFloor {
		t.Errorf("with less than a second left: %v", level)
	}
	for range 40 {
		now = now.Add(diskEvery)
		d.look()
	}
	if level := d.current(); level != DiskOK {
		t.Errorf("ten seconds after it has stopped: %v", level)
	}
}

// TestBurstRefusesNothing: much is taken at once, and much more is left. Work may move away
// for it, no write is refused.
func TestBurstRefusesNothing(t *testing.T) {
	free, now := int64(30_000), time.Unix(1000, 0)
	d := newDisk(func() time.Time { return now }, func() int64 { return free })
	d.floor.Store(1000)
	for range 8 {
		d.look()
		now = now.Add(diskEvery)
	}
	free = 24_000 // it would be full after four more
	if level, _, _ := d.look(); level >= DiskHard {
		t.Errorf("four fifths are left after a burst: %v", level)
	}
	for range 40 {
		now = now.Add(diskOften)
		if level, _, _ := d.look(); level >= DiskHard {
			t.Fatalf("four fifths are left after a burst, and nothing more goes: %v", level)
		}
	}
	// The same again and again is a speed.
	var level DiskLevel
	for free > 12_000 {
		now, free = now.Add(diskEvery), free-6_000
		level, _, _ = d.look()
	}
	if level != DiskFloor {
		t.Errorf("with half a second left: %v", level)
	}
}

// TestSpeedOfALateLook: whoever asks may wait for a processor before it looks at the clock.
// What has gone meanwhile has not gone since then.
func TestSpeedOfALateLook(t *testing.T) {
	free, now, late := int64(30_000), time.Unix(1000, 0), time.Duration(0)
	d := newDisk(func() time.Time { return now }, func() int64 {
		was := free
		free -= late.Milliseconds() // 1,000 a second
		now = now.Add(late)
		return was
	})
	d.floor.Store(1000)
	late = 6 * time.Second
	d.look()
	late = 0
	now, free = now.Add(diskEvery), free-diskEvery.Milliseconds()
	if level, _, _ := d.look(); level != DiskOK {
		t.Errorf("with more than 20 seconds left: %v, %d a second", level, d.burst.PerSecond())
	}
}

// TestWaitForSpaceIsThatOfTheLog: while commits wait for space, what else is synced waits
// for the disk alone.
func TestWaitForSpaceIsThatOfTheLog(t *testing.T) {
	start := time.Unix(1000, 0)
	s := &slowness{limits: testSyncLimits}
	s.begin(syncProbe, start)
	s.begin(syncLog, start)
	now := start
	for now.Before(start.Add(testSyncLimits.stuck)) {
		now = now.Add(slowEvery)
		s.waitLog(now)
		if v := s.judge(now, nil, true); v.stuck != (now.Sub(start) >= testSyncLimits.stuck) {
			t.Fatalf("after %v: %+v", now.Sub(start), v)
		}
	}
	s.end(syncProbe, now)
	if v := s.judge(now, nil, true); v.stuck {
		t.Errorf("only the log is under way, which waits for space: %+v", v)
	}
	s.end(syncLog, now)
	s.waitLog(now) // nothing is under way
	if v := s.judge(now.Add(time.Hour), nil, true); v.stuck {
		t.Errorf("nothing is under way: %+v", v)
	}
}
