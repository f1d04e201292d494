package space

import (
	"testing"
	"time"
)

// at returns a look whose answer took so long.
func at(asked, took time.Duration, free int64) Look {
	began := time.Unix(1000, 0).Add(asked)
	return Look{Free: free, Asked: began, Seen: began.Add(took)}
}

// TestEvenSpeedIsNotForgotten: what goes evenly for a window goes as fast at each later look,
// however the looks lie.
func TestEvenSpeedIsNotForgotten(t *testing.T) {
	const window, speed = time.Second, 1000
	for _, every := range []time.Duration{
		time.Millisecond, 25 * time.Millisecond, 110 * time.Millisecond,
		250 * time.Millisecond, 333 * time.Millisecond, 1500 * time.Millisecond,
	} {
		s := New(window, 1)
		for now := time.Duration(0); now < 5*window; now += every {
			s.Take(at(now, 0, 1_000_000-int64(speed*now.Seconds())))
			if got := s.PerSecond(); now >= window && (got < speed-1 || got > speed+1) {
				t.Fatalf("every %v: %d a second at %v, want %d", every, got, now, speed)
			}
			if len(s.from) > steps+2 {
				t.Fatalf("every %v: %d looks are kept", every, len(s.from))
			}
		}
	}
}

// TestSpeedOfABeginning: whenever something begins to go, its whole speed is known after a
// window, and what a look may be late.
func TestSpeedOfABeginning(t *testing.T) {
	const window, speed, every = time.Second, 1000, 25 * time.Millisecond
	for begins := 3 * window; begins < 4*window; begins += 10 * time.Millisecond {
		s := New(window, 1)
		known := begins + window + window/steps + 2*every
		for now := time.Duration(0); now < known; now += every {
			gone := max(0, now-begins)
			s.Take(at(now, 0, 1_000_000-int64(speed*gone.Seconds())))
			if got, most := s.PerSecond(), int64(speed); got > most+1 {
				t.Fatalf("it begins at %v: %d a second at %v, want %d at most",
					begins, got, now, most)
			}
		}
		if got := s.PerSecond(); got < speed-1 {
			t.Errorf("it begins at %v: %d a second at %v, want %d", begins, got, known, speed)
		}
	}
}

func TestSpeed(t *testing.T) {
	const window = 250 * time.Millisecond
	for _, tt := range []struct {
		name  string
		looks []Look
		want  int64 // a second
	}{
		{name: "one look", looks: []Look{at(0, 0, 1000)}},
		{
			name:  "it goes",
			looks: []Look{at(0, 0, 1000), at(window, 0, 900)},
			want:  400,
		},
		{
			name:  "what goes at once counts as a window",
			looks: []Look{at(0, 0, 1000), at(time.Millisecond, 0, 900)},
			want:  400,
		},
		{
			name: "several looks in a window",
			looks: []Look{
				at(0, 0, 1000), at(window/2, 0, 950), at(window, 0, 900), at(window, 0, 900),
			},
			want: 400,
		},
		{
			name:  "it grows",
			looks: []Look{at(0, 0, 1000), at(window, 0, 2000)},
		},
		{
			// Two seconds lie between the moments that were seen, and not a quarter of one.
			name:  "the first answer is at hand late",
			looks: []Look{at(0, 1750*time.Millisecond, 1000), at(2*time.Second, 0, 200)},
			want:  400,
		},
		{
			name:  "the second question is answered late",
			looks: []Look{at(0, 0, 1000), at(window, 1750*time.Millisecond, 200)},
			want:  400,
		},
		{
			name:  "an older look comes in late",
			looks: []Look{at(0, 0, 1000), at(window, 0, 900), at(0, 0, 1000)},
			want:  400,
		},
		{
			name:  "half a second later",
			looks: []Look{at(0, 0, 1000), at(window, 0, 900), at(3*window, 0, 900)},
			want:  200,
		},
	} {
		s := New(window, 1)
		for _, l := range tt.looks {
			s.Take(l)
		}
		if got := s.PerSecond(); got != tt.want {
			t.Errorf("%s: %d a second, want %d", tt.name, got, tt.want)
		}
		if got := s.Loss(2 * time.Second); got != 2*tt.want {
			t.Errorf("%s: %d in two seconds, want %d", tt.name, got, 2*tt.want)
		}
		s.Forget()
		if s.Take(at(0, 0, 5)); s.PerSecond() != 0 {
			t.Errorf("%s: %d a second after it was forgotten", tt.name, s.PerSecond())
		}
	}
}
