package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard/test/peers/internal/system"
)

// starting is how long the start of all groups may take, and finding how long the reads in
// the end.
const (
	starting = 10 * time.Minute
	finding  = 2 * time.Minute
)

// Limit is how long a trial can take that is as it should be.
func (s *Spec) Limit() time.Duration {
	const closing = 2 * time.Minute
	return starting + s.Warmup + s.Duration + finding + closing
}

// Run starts a system, puts the load on it, and stops it. It fails if a command that was
// acknowledged is not there in the end. Latencies and rates are of the measured time only.
func Run(ctx context.Context, sys system.System, spec *Spec) (r *Result, err error) {
	if !slices.Contains(Ops(), spec.Op) {
		return nil, fmt.Errorf("there is no operation %q, only %q", spec.Op, Ops())
	}
	if err = os.MkdirAll(spec.Dir, 0o750); err != nil {
		return nil, err
	}
	r = &Result{}
	if err = r.probe(spec.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if failed := sys.Close(); failed != nil {
			err = errors.Join(err, fmt.Errorf("close: %w", failed))
		}
	}()
	begin := time.Now()
	starts, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	err = sys.Start(starts, system.Config{
		Dir: spec.Dir, Hosts: spec.Hosts, Groups: spec.Groups, Clients: spec.Clients,
		Tick: spec.Tick, ElectionTicks: spec.ElectionTicks,
		SnapshotEvery: spec.SnapshotEvery, Options: spec.Options,
	})
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	r.StartSeconds = time.Since(begin).Seconds()
	d := &driver{spec: spec, sys: sys, latencies: newLatencies()}
	if err = d.measure(ctx, r); err != nil {
		return nil, err
	}
	if err = r.memory(); err != nil {
		return nil, err
	}
	if spec.Op == Write {
		err = d.find(ctx, r)
	}
	return r, err
}

// Phases of a [driver].
const (
	warming int32 = iota
	measuring
	over
)

// A driver is the clients of one trial.
type driver struct {
	spec      *Spec
	sys       system.System
	phase     atomic.Int32
	latencies *latencies

	acknowledged atomic.Uint64
	refusals     atomic.Uint64
	failures     atomic.Uint64
	failure      atomic.Pointer[error] // one of them
}

// measure lets the clients go for the warm-up and the measured time.
func (d *driver) measure(ctx context.Context, r *Result) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	defer d.phase.Store(over)
	if d.spec.Op != Idle {
		for i := range d.spec.Clients {
			clients.Go(func() { d.client(ctx, i) })
		}
	}
	if err := sleep(ctx, d.spec.Warmup); err != nil {
		return err
	}
	from, err := now(d.spec.Dir)
	if err != nil {
		return err
	}
	d.phase.Store(measuring)
	if err = sleep(ctx, d.spec.Duration); err != nil {
		return err
	}
	d.phase.Store(over)
	to, err := now(d.spec.Dir)
	if err != nil {
		return err
	}
	clients.Wait()
	r.Ops, r.Latency = d.latencies.sum()
	r.Acknowledged = d.acknowledged.Load()
	r.Refusals, r.Failures = d.refusals.Load(), d.failures.Load()
	if failure := d.failure.Load(); failure != nil {
		r.Failure = (*failure).Error()
	}
	r.fill(from, to)
	return nil
}

// Pauses of a client.
const (
	afterRefusal = time.Millisecond
	afterFailure = 5 * time.Millisecond
)

// client begins an operation when its last one has ended. Clients go round the groups in
// steps of their number, so that at any time all are at different ones, if there are enough.
func (d *driver) client(ctx context.Context, id int) {
	command := noise(id, d.spec.Size)
	group := id % d.spec.Groups
	step := d.spec.Clients % d.spec.Groups
	for d.phase.Load() != over && ctx.Err() == nil {
		begin := time.Now()
		err := d.do(ctx, id, group, command)
		took := time.Since(begin)
		switch {
		case err == nil && d.phase.Load() == measuring:
			d.latencies.add(id, took)
		case errors.Is(err, system.ErrRefused):
			d.refusals.Add(1)
			_ = sleep(ctx, afterRefusal) // the loop looks at ctx
			continue
		case err != nil:
			d.failures.Add(1)
			d.failure.Store(&err)
			_ = sleep(ctx, afterFailure)
		}
		group = (group + step) % d.spec.Groups
	}
}

func (d *driver) do(ctx context.Context, id, group int, command []byte) error {
	if d.spec.Op == Read {
		_, err := d.sys.Read(ctx, id, group)
		return err
	}
	_, err := d.sys.Propose(ctx, id, group, command)
	if err == nil {
		d.acknowledged.Add(1)
	}
	return err
}

// find reads every group: what was acknowledged must be there. A read that fails is tried
// again: the system may have to come to itself after the load.
func (d *driver) find(ctx context.Context, r *Result) error {
	ctx, cancel := context.WithTimeout(ctx, finding)
	defer cancel()
	for g := range d.spec.Groups {
		n, err := d.sys.Read(ctx, 0, g)
		for err != nil {
			if ended := sleep(ctx, afterFailure); ended != nil {
				return fmt.Errorf("read group %d in the end: %w", g, errors.Join(ended, err))
			}
			n, err = d.sys.Read(ctx, 0, g)
		}
		r.Applied += n
	}
	if r.Applied < r.Acknowledged {
		return fmt.Errorf("%d commands were acknowledged and %d are there",
			r.Acknowledged, r.Applied)
	}
	return nil
}

// noise returns bytes that nothing on the way can make fewer, others for each client.
func noise(client, size int) []byte {
	state := uint64(client)*0x9e3779b97f4a7c15 + 1
	out := make([]byte, size)
	for i := range out {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		out[i] = byte(state >> 24)
	}
	return out
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
