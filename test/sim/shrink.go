package sim

import "slices"

// Shrink looks for a smaller run that breaks the same rule: fewer faults, fewer
// requests, a shorter first phase. It runs at most budget simulations. The result is
// r itself if there is none; the configuration is that of the result.
func Shrink(cfg Config, r *Result, budget int) (Config, *Result) {
	s := &shrinker{cfg: cfg, best: r, budget: budget}
	s.cfg.Live = nil
	s.cfg.Ops, s.cfg.Clients = r.Ops, r.Clients
	s.cfg.Schedule = slices.Clone(r.Schedule)
	if s.cfg.Schedule == nil {
		s.cfg.Schedule = Schedule{}
	}
	for s.round() {
	}
	return s.cfg, s.best
}

type shrinker struct {
	cfg    Config
	best   *Result
	budget int
}

// round tries everything once and reports whether something has helped.
func (s *shrinker) round() (better bool) {
	for size := (len(s.cfg.Schedule) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(s.cfg.Schedule); {
			c := s.cfg
			c.Schedule = slices.Delete(slices.Clone(c.Schedule), from,
				min(from+size, len(c.Schedule)))
			if s.try(c) {
				better = true
			} else {
				from += size
			}
		}
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Ops /= 2 },
		func(c *Config) { c.Clients /= 2 },
		func(c *Config) { c.Clients-- },
	} {
		c := s.cfg
		change(&c)
		if c.Ops > 0 && c.Clients > 0 && s.try(c) {
			better = true
		}
	}
	return better
}

// try runs a configuration, and keeps it if it breaks the same rule.
func (s *shrinker) try(c Config) bool {
	if s.budget == 0 {
		return false
	}
	s.budget--
	r, err := Run(c)
	if err != nil || r.Failure == nil || r.Failure.Rule != s.best.Failure.Rule {
		return false
	}
	s.cfg, s.best = c, r
	return true
}
