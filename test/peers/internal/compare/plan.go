// Package compare has systems do the same things in turns, and says how they stand to each
// other.
package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/raftyard/raftyard/test/peers/internal/system"
	"github.com/raftyard/raftyard/test/peers/internal/trial"
)

// A Contestant is a system in one configuration.
type Contestant struct {
	System  string         `json:"system"`
	Options system.Options `json:"options,omitempty"`
}

// ParseContestant reads a contestant, such as dragonboat:shards=1,quiesce=1.
func ParseContestant(text string) (Contestant, error) {
	name, options, _ := strings.Cut(text, ":")
	c := Contestant{System: name}
	for option := range strings.SplitSeq(options, ",") {
		if option == "" {
			continue
		}
		key, value, ok := strings.Cut(option, "=")
		if !ok {
			return c, fmt.Errorf("option %q of %s, want name=value", option, name)
		}
		if c.Options == nil {
			c.Options = make(system.Options)
		}
		c.Options[key] = value
	}
	return c, nil
}

// String returns the contestant as it is read.
func (c Contestant) String() string {
	if len(c.Options) == 0 {
		return c.System
	}
	var options []string
	for _, key := range slices.Sorted(maps.Keys(c.Options)) {
		options = append(options, key+"="+c.Options[key])
	}
	return c.System + ":" + strings.Join(options, ",")
}

// A Cell is one load that all contestants get.
type Cell struct {
	Op      string `json:"op"`
	Groups  int    `json:"groups"`
	Clients int    `json:"clients,omitempty"`
	Size    int    `json:"size,omitempty"`
}

// ParsePair reads groups and clients, such as 48x512.
func ParsePair(text string) (groups, clients int, err error) {
	left, right, _ := strings.Cut(text, "x")
	groups, err = strconv.Atoi(left)
	clients, other := strconv.Atoi(right)
	if err != nil || other != nil || groups < 1 || clients < 1 {
		return 0, 0, fmt.Errorf("cell %q, want groups and clients, such as 48x512", text)
	}
	return groups, clients, nil
}

// String returns the cell in words.
func (c Cell) String() string {
	switch c.Op {
	case trial.Idle:
		return fmt.Sprintf("idle, groups %d", c.Groups)
	case trial.Read:
		return fmt.Sprintf("read, groups x clients %dx%d", c.Groups, c.Clients)
	default:
		return fmt.Sprintf("%s %d B, groups x clients %dx%d", c.Op, c.Size, c.Groups, c.Clients)
	}
}

// A Plan says what is compared.
type Plan struct {
	Contestants []Contestant
	Cells       []Cell
	Rounds      int
	Base        trial.Spec // what is the same for all
	// MaxGroups is how many groups a system can have; one that is missing can have any.
	MaxGroups map[string]int
}

// A Run is one trial of a plan.
type Run struct {
	Contestant string        `json:"contestant"`
	Cell       Cell          `json:"cell"`
	Round      int           `json:"round"`
	Result     *trial.Result `json:"result,omitempty"`
	Error      string        `json:"error,omitempty"` // why there is no result
}

// Steps returns how many trials there are.
func (p *Plan) Steps() int {
	n := 0
	for _, cell := range p.Cells {
		for _, c := range p.Contestants {
			if p.fits(c, cell) {
				n += p.Rounds
			}
		}
	}
	return n
}

func (p *Plan) fits(c Contestant, cell Cell) bool {
	most, bounded := p.MaxGroups[c.System]
	return !bounded || cell.Groups <= most
}

// Do does all trials of a cell with do, and returns them. In each round every contestant
// has its turn, so that a disk or a neighbour that changes in the course of time changes
// for all of them. What fails is a run with an error; only the end of ctx ends it.
func (p *Plan) Do(
	ctx context.Context, cell Cell,
	do func(ctx context.Context, what string, spec *trial.Spec) (*trial.Result, error),
) ([]Run, error) {
	var runs []Run
	for round := range p.Rounds {
		for _, c := range p.Contestants {
			if !p.fits(c, cell) {
				continue
			}
			spec := p.Base
			spec.System, spec.Options = c.System, c.Options
			spec.Op, spec.Groups, spec.Clients, spec.Size =
				cell.Op, cell.Groups, cell.Clients, cell.Size
			what := fmt.Sprintf("%s: %s, round %d of %d", cell, c, round+1, p.Rounds)
			result, err := do(ctx, what, &spec)
			if ctx.Err() != nil {
				return runs, errors.Join(ctx.Err(), err)
			}
			run := Run{Contestant: c.String(), Cell: cell, Round: round, Result: result}
			if err != nil {
				run.Result, run.Error = nil, err.Error()
			}
			runs = append(runs, run)
		}
	}
	return runs, nil
}
