package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
)

// A stock is a program's own state machine, on disk, with bugs if one is asked for.
type stock struct {
	files FS
	dir   string
	bug   string

	mu    sync.Mutex
	state struct {
		Index uint64
		Owned map[string]int
	}
	saved uint64
}

// newStock returns a kind of stocks that have a bug, or none.
func newStock(bug string) Kind {
	return func(files FS) group.Factory {
		return func(env group.Env) (group.StateMachine, error) {
			s := &stock{files: files, dir: env.Dir, bug: bug}
			s.state.Owned = make(map[string]int)
			b, err := files.ReadFile(filepath.Join(env.Dir, "stock"))
			if errors.Is(err, fs.ErrNotExist) {
				return s, nil
			}
			if err == nil {
				err = json.Unmarshal(b, &s.state)
			}
			s.saved = s.state.Index
			return s, err
		}
	}
}

func (s *stock) Apply(batch []group.Command) ([]group.Result, error) {
	s.mu.Lock()
	out := make([]group.Result, len(batch))
	for i := range batch {
		s.state.Index = batch[i].Index
		out[i].Data = s.one(string(batch[i].Data))
	}
	s.mu.Unlock() // before it waits for the disk
	return out, s.save()
}

// one gives somebody one more, from another's stock if it says so.
func (s *stock) one(command string) []byte {
	who, share := strings.CutSuffix(command, " shares")
	if !share {
		s.state.Owned[who]++
		return fmt.Append(nil, s.state.Owned[who])
	}
	names := make([]string, 0, len(s.state.Owned))
	for name := range s.state.Owned {
		names = append(names, name)
	}
	if s.bug != "order of a map" {
		slices.Sort(names)
	}
	for _, name := range names {
		if name != who && s.state.Owned[name] > 0 {
			if s.state.Owned[name]--; s.state.Owned[name] == 0 {
				delete(s.state.Owned, name)
			}
			s.state.Owned[who]++
			return []byte(name)
		}
	}
	return nil
}

func (s *stock) save() error {
	s.mu.Lock()
	kept := s.state
	if s.bug == "index is not kept" {
		kept.Index = 0
	}
	b, err := json.Marshal(kept)
	index := s.state.Index
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.write(b); err != nil {
		return err
	}
	s.saved = index
	return nil
}

func (s *stock) write(b []byte) error {
	if err := s.files.MkdirAll(s.dir); err != nil {
		return err
	}
	next := filepath.Join(s.dir, "next")
	f, err := s.files.Create(next)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return err
	}
	if s.bug != "no sync" {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := s.files.Rename(next, filepath.Join(s.dir, "stock")); err != nil {
		return err
	}
	return s.files.SyncDir(s.dir)
}

func (s *stock) Applied() (uint64, error) { return s.saved, nil }

func (s *stock) Snapshot() (group.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := json.Marshal(s.state)
	return stockImage(b), err
}

func (s *stock) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.bug != "restore adds" {
		s.state.Owned = make(map[string]int)
	}
	err = json.Unmarshal(b, &s.state)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.save()
}

func (s *stock) Hash() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(s.state.Owned)
}

func (s *stock) Close() error { return nil }

// total is what all own together.
func (s *stock) total() (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.state.Owned {
		sum += n
	}
	return sum
}

type stockImage []byte

func (b stockImage) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b)
	return int64(n), err
}

func (b stockImage) Close() error { return nil }

// stockConfig has clients who use stocks, and an audit at the end.
func stockConfig(bug string) Config {
	return Config{
		Kinds: map[string]Kind{"stock": newStock(bug)},
		Prepare: func(cfg *Config) {
			var done, maybe int
			cfg.Groups = 1
			cfg.Workload = func(c *Client) {
				for i := 0; i < c.Ops() && c.Running(); i++ {
					c.Sleep(time.Duration(c.Rand().IntN(100)) * time.Millisecond)
					if len(c.Groups()) == 0 {
						continue
					}
					// The names come and go, so that what a snapshot lacks can be told.
					who := fmt.Sprintf("%d.%d", c.ID(), i)
					if c.Rand().IntN(2) == 0 {
						who += " shares"
					}
					_, err := c.Propose(1, []byte(who))
					switch {
					case strings.HasSuffix(who, " shares"): // the sum stays
					case err == nil:
						done++
					case !node.NotApplied(err):
						maybe++
					}
				}
			}
			cfg.Audit = func(c *Client) {
				sum := -1
				for sum < 0 {
					err := c.Do("audit", func(ctx context.Context, n *node.Node) error {
						return View(ctx, n, 1, node.Linearizable, func(s *stock) error {
							sum = s.total()
							return nil
						})
					})
					if err != nil && !errors.Is(err, node.ErrNoReplica) {
						c.Failf("the audit reads: %w", err)
						return
					}
				}
				if sum < done || sum > done+maybe {
					c.Failf("%d are there, %d are sure and %d unknown", sum, done, maybe)
				}
			}
		},
	}
}

// TestOwnMachine simulates a machine on disk that has no bug.
func TestOwnMachine(t *testing.T) { Seeds(t, 30, stockConfig("")) }

// TestBugsOfMachines plants bugs in it, each of which must be found.
func TestBugsOfMachines(t *testing.T) {
	for bug, want := range map[string][]string{
		"order of a map":    {"rule 11 (same state)", "rule 9 (acknowledged survives)"},
		"index is not kept": {"rule 5 (no regress)", "rule 14 (quarantine)"},
		"no sync":           {"rule 5 (no regress)", "rule 14 (quarantine)"},
		"restore adds":      {"rule 11 (same state)"},
	} {
		t.Run(bug, func(t *testing.T) {
			for seed := range uint64(100) {
				cfg := stockConfig(bug)
				cfg.Seed = seed
				r, err := Run(cfg)
				if err != nil {
					t.Fatal(err)
				}
				if r.Failure == nil {
					continue
				}
				if !slices.Contains(want, r.Failure.Rule) {
					t.Errorf("seed %d: %v, want one of %q", seed, r.Failure, want)
				}
				return
			}
			t.Error("it is not found")
		})
	}
}

// TestViewOfWatched tells whoever uses node.View what to do instead.
func TestViewOfWatched(t *testing.T) {
	cfg := stockConfig("")
	cfg.Prepare = nil
	cfg.Schedule = Schedule{}
	seen := 0
	cfg.Workload = func(c *Client) {
		for c.Running() {
			c.Sleep(10 * time.Millisecond)
			err := c.Do("view", func(ctx context.Context, n *node.Node) error {
				return node.View(ctx, n, 1, node.Stale, func(*stock) error { return nil })
			})
			if err == nil {
				seen++
			}
		}
	}
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure == nil || !strings.Contains(r.Failure.Error(), "use sim.View or Config.Bare") {
		t.Errorf("the failure is %v", r.Failure)
	}
	cfg.Bare = true
	if r, err = Run(cfg); err != nil || r.Failure != nil || seen == 0 {
		t.Errorf("bare: %v, %v, %d views", err, r.Failure, seen)
	}
}

// TestAuditAndWorkloadFail: what a program finds is a failure of the run.
func TestAuditAndWorkloadFail(t *testing.T) {
	cfg := stockConfig("")
	cfg.Prepare = nil
	cfg.Chaos = time.Second
	cfg.Workload = func(*Client) {}
	cfg.Audit = func(c *Client) { c.Failf("%w", errSync) }
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure == nil || r.Failure.Rule != "workload" || !errors.Is(r.Failure, errSync) {
		t.Errorf("the failure is %v", r.Failure)
	}
	cfg.Workload = nil
	if r, err = Run(cfg); err != nil || !errors.Is(r.Failure, errWorkload) {
		t.Errorf("without a workload: %v, %v", err, r.Failure)
	}
}
