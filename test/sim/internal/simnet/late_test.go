package simnet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/raftyard/raftyard/transport"
)

// TestLateRequests has a request on its way when its connection is lost because the link
// is cut: it arrives when the link is there again, at the same start of the peer only, and
// with as much time as it had when it was written.
func TestLateRequests(t *testing.T) {
	tests := []struct {
		name  string
		late  float64
		after func(r *rig)
		want  int
	}{
		{"late", 1, func(r *rig) { r.set(func(f *Faults) { *f = Faults{} }) }, 1},
		{"lost", 0, func(r *rig) { r.set(func(f *Faults) { *f = Faults{} }) }, 0},
		{"the link stays cut", 1, func(*rig) {}, 0},
		{"calm", 1, func(r *rig) {
			r.set(func(f *Faults) { *f = Faults{} })
			r.n.Calm()
		}, 0},
		{"another start", 1, func(r *rig) {
			r.crash()
			r.start(2, 2, 2)
			r.hear[2].request = func(context.Context, []byte) ([]byte, error) {
				t.Error("another start of the peer gets it")
				return nil, nil
			}
			r.set(func(f *Faults) { *f = Faults{} })
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			heard := 0
			r.hear[2].request = func(ctx context.Context, body []byte) ([]byte, error) {
				heard++
				deadline, _ := ctx.Deadline()
				if left := deadline.Sub(r.st[2].Now()); left < 2*time.Second {
					t.Errorf("it has %v left", left)
				}
				return body, nil
			}
			r.set(func(f *Faults) { f.Cut, f.Late = true, tt.late })
			if _, err := r.ask(3 * time.Second); !errors.Is(err, transport.ErrUnknown) {
				t.Fatalf("error is %v, want %v", err, transport.ErrUnknown)
			}
			if heard > 0 {
				t.Fatal("it has arrived over a link that is cut")
			}
			tt.after(r)
			r.pass(20 * time.Second)
			if counted := r.n.Counts().RequestsLate; heard != tt.want || int(counted) != heard {
				t.Errorf("it has arrived %d times, counted %d, want %d", heard, counted, tt.want)
			}
		})
	}
}
