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
