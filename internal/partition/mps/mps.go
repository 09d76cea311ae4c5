// SPDX-License-Identifier: Apache-2.0

// Package mps is NVIDIA's Multi-Process Service on cards: one control daemon a
// card, with what each of its clients gets at most. A daemon's settings hold for
// servers that start later, so a change is a new daemon.
package mps

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	control "github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Actions on a daemon. Start has the daemon's value; stop has stopForced where
// clients lose what they run.
const (
	actionStart = "start"
	actionStop  = "stop"
	stopForced  = "force"
)

// Goal is whether a card should have a control daemon, and which.
type Goal struct {
	Enabled bool `yaml:"enabled" json:"enabled"`
	// Multiuser lets clients of several users connect at once, with nothing between
	// them.
	Multiuser bool `yaml:"multiuser,omitempty" json:"multiuser,omitempty"`
	// ActiveThreadPercentage is what each client gets of the card's processors at
	// most; absent: all.
	ActiveThreadPercentage int `yaml:"activeThreadPercentage,omitempty" json:"activeThreadPercentage,omitempty"`
	// PinnedMemoryMiB is what each client can allocate at most; absent: all.
	PinnedMemoryMiB uint64 `yaml:"pinnedMemoryMiB,omitempty" json:"pinnedMemoryMiB,omitempty"`
}

func (m *Goal) Validate() error {
	if !m.Enabled && *m != (Goal{}) {
		return errors.New("settings of a daemon that is not enabled")
	}
	return m.Daemon().Validate()
}

// Daemon is the daemon that is wanted.
func (m *Goal) Daemon() *Daemon {
	d := &Daemon{Running: m.Enabled, Multiuser: m.Multiuser, ActiveThreadPercentage: m.ActiveThreadPercentage, PinnedMemoryMiB: m.PinnedMemoryMiB}
	if m.Enabled && d.ActiveThreadPercentage == 0 {
		d.ActiveThreadPercentage = 100
	}
	return d
}

// Daemon is the MPS control daemon of a card, running or not.
type Daemon struct {
	Running                bool                `yaml:"running" json:"running"`
	Multiuser              bool                `yaml:"multiuser,omitempty" json:"multiuser,omitempty"`
	ActiveThreadPercentage int                 `yaml:"activeThreadPercentage,omitempty" json:"activeThreadPercentage,omitempty"`
	PinnedMemoryMiB        uint64              `yaml:"pinnedMemoryMiB,omitempty" json:"pinnedMemoryMiB,omitempty"` // 0: no limit
	Clients                []partition.Process `yaml:"clients,omitempty" json:"clients,omitempty"`
}

func (d *Daemon) Validate() error {
	if d.ActiveThreadPercentage < 0 || d.ActiveThreadPercentage > 100 {
		return fmt.Errorf("%d is no percentage of threads", d.ActiveThreadPercentage)
	}
	if d.PinnedMemoryMiB > 1<<40 {
		return fmt.Errorf("%d MiB are more than any GPU has", d.PinnedMemoryMiB)
	}
	return nil
}

// Layout is empty where none runs, as for a card whose driver is not there.
func (d *Daemon) Layout(partition.Card) string {
	if !d.Running {
		return ""
	}
	return "MPS on " + d.terms()
}

// terms is for whom a daemon is, and what it gives them.
func (d *Daemon) terms() string {
	users := "one user at a time"
	if d.Multiuser {
		users = "several users"
	}
	words := fmt.Sprintf("for %s, %d%% of the processors a client", users, d.ActiveThreadPercentage)
	if d.PinnedMemoryMiB > 0 {
		words += fmt.Sprintf(", %d MiB a client", d.PinnedMemoryMiB)
	}
	return words
}

func (d *Daemon) Lines() []string {
	line := d.Layout(partition.Card{})
	if !d.Running {
		line = "MPS off"
	}
	if len(d.Clients) > 0 {
		line += ", used by " + partition.Describe(d.Clients)
	}
	return []string{line}
}

// value is the daemon as the value of a step.
func (d *Daemon) value() string {
	return fmt.Sprintf("%t %d %d", d.Multiuser, d.ActiveThreadPercentage, d.PinnedMemoryMiB)
}

// parse reads what value has written.
func parse(value string) (Daemon, error) {
	d := Daemon{Running: true}
	words := strings.Fields(value)
	if len(words) != 3 {
		return d, fmt.Errorf("%q is no MPS daemon", value)
	}
	var errs [3]error
	d.Multiuser, errs[0] = strconv.ParseBool(words[0])
	d.ActiveThreadPercentage, errs[1] = strconv.Atoi(words[1])
	d.PinnedMemoryMiB, errs[2] = strconv.ParseUint(words[2], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return d, fmt.Errorf("%q is no MPS daemon: %w", value, err)
	}
	return d, d.Validate()
}

// longest is the most that a control daemon may take to start or stop.
const longest = 15 * time.Second

// Technique is MPS.
type Technique struct{ folder string }

// New returns MPS by daemons that have their directories in a folder; the zero
// Technique plans only.
func New(folder string) Technique { return Technique{folder: folder} }

func (Technique) Name() string { return partition.TechniqueMPS }

func (Technique) About() partition.About {
	return partition.About{
		Yields: true, Want: func() partition.Want { return &Goal{} }, Division: func() partition.Division { return &Daemon{} },
		Explanation: partition.Explanation{
			Title: "NVIDIA MPS", Vendors: "nvidia",
			Goal: "mps: {enabled: true}",
			Isolation: []string{
				"memory: own address spaces (Volta on); a limit that a client is asked to keep", "compute: at the same time, a part of the processors each", "faults: one client's fault ends all clients of the server",
				"side channels: not closed",
			},
			Cost:     "a daemon for one user; concurrency, not time-slicing",
			Needs:    "clients of one user, or a daemon started for all; 48 or 60 clients at most",
			Excludes: "a second user at the same time (docs/mps.md)",
		},
	}
}

// Of is a card's daemon; nil: it can have none, or nobody was asked.
func Of(c partition.Card) *Daemon { return partition.DivisionOf[*Daemon](c, partition.TechniqueMPS) }

// On says whether a daemon runs.
func (Technique) On(c partition.Card) bool { return Of(c) != nil && Of(c).Running }

func (t Technique) daemon(c partition.Card, multiuser bool) (*control.Daemon, error) {
	return control.New(control.Config{UUID: c.UUID, Directory: filepath.Join(t.folder, c.UUID), Multiuser: multiuser})
}

// Observe notes the daemon of a card whose driver is here.
func (t Technique) Observe(ctx context.Context, c *partition.Card) error {
	if t.folder == "" || !c.NVIDIA() || mig.Of(*c).Unknown {
		return nil
	}
	d, err := t.daemon(*c, false)
	if err != nil {
		return err
	}
	status, err := d.Status(ctx)
	switch {
	case errors.Is(err, control.ErrNotRunning):
		if d.Installed() {
			*c = c.With(t.Name(), &Daemon{})
		}
		return nil
	case err != nil:
		return err
	}
	seen := &Daemon{Running: true, Multiuser: status.Multiuser, ActiveThreadPercentage: status.ActiveThreadPercentage, PinnedMemoryMiB: status.PinnedBytes >> 20}
	for _, pid := range status.Clients() {
		seen.Clients = append(seen.Clients, partition.Process{PID: pid, Command: process.New("/proc").Command(pid)})
	}
	*c = c.With(t.Name(), seen)
	return nil
}

// Aim sets the daemon. With force its clients are given up.
func (t Technique) Aim(c partition.Card, r partition.Rule, force bool) (partition.Card, error) {
	want, has := r.Wants[t.Name()].(*Goal).Daemon(), Of(c)
	if has == nil {
		if !want.Running {
			return c, nil
		}
		return c, fmt.Errorf("%w: nvidia-cuda-mps-control is not installed, or cannot serve %s", partition.ErrImpossible, c.Name)
	}
	if same(*has, *want) {
		return c, nil
	}
	if len(has.Clients) > 0 && !force {
		return c, fmt.Errorf("%w: the clients of the GPU's daemon would end: %s", partition.ErrInUse, partition.Describe(has.Clients))
	}
	return c.With(t.Name(), want), nil
}

// same says whether two daemons are alike for those who come.
func same(a, b Daemon) bool {
	a.Clients, b.Clients = nil, nil
	return !a.Running && !b.Running ||
		a.Running == b.Running && a.Multiuser == b.Multiuser && a.ActiveThreadPercentage == b.ActiveThreadPercentage && a.PinnedMemoryMiB == b.PinnedMemoryMiB
}

// Steps stops a daemon and starts another.
func (t Technique) Steps(from, to partition.Card) []partition.Step {
	has, want := Of(from), Of(to)
	if has == nil || want == nil || same(*has, *want) {
		return nil
	}
	var steps []partition.Step
	if has.Running {
		stop := partition.Step{Action: actionStop, Why: "no daemon is wanted", Words: "stop the MPS control daemon"}
		if want.Running {
			stop.Why = "its settings hold for servers that start later"
		}
		if len(has.Clients) > 0 {
			stop.Value = stopForced
			stop.Words += " " + stopForced
		}
		steps = append(steps, stop)
	}
	if want.Running {
		steps = append(steps, partition.Step{
			Action: actionStart, Value: want.value(), Words: "start the MPS control daemon " + want.terms(),
			Why: "in compute mode EXCLUSIVE_PROCESS, which nvidia-smi sets, programs cannot miss it",
		})
	}
	return steps
}

// Busy words the daemon's clients.
func (Technique) Busy(c partition.Card, _ []partition.Step) string {
	if Of(c) == nil {
		return ""
	}
	return partition.Describe(Of(c).Clients)
}

func (t Technique) Do(ctx context.Context, c partition.Card, s partition.Step) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if s.Action == actionStop {
		d, err := t.daemon(c, false)
		if err != nil {
			return err
		}
		return d.Stop(ctx, s.Value == stopForced)
	}
	want, err := parse(s.Value)
	if err != nil {
		return err
	}
	d, err := t.daemon(c, want.Multiuser)
	if err != nil {
		return err
	}
	if err := d.Start(ctx); err != nil {
		return err
	}
	limits := control.Limits{ActiveThreadPercentage: want.ActiveThreadPercentage, PinnedBytes: want.PinnedMemoryMiB << 20}
	if err := d.SetDefaults(ctx, limits); err != nil {
		return fmt.Errorf("%s: %w", c.ID(), err)
	}
	return nil
}
