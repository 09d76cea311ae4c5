// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// TechniqueMPS is a control daemon of NVIDIA's MPS on a card.
const TechniqueMPS = "mps"

// Actions on a daemon. Start has the daemon's Value; stop has StopForced where
// clients lose what they run.
const (
	ActionStart = "start"
	ActionStop  = "stop"
	StopForced  = "force"
)

// MPS is whether a card should have a control daemon, and which.
type MPS struct {
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

func (m *MPS) validate() error {
	if !m.Enabled && *m != (MPS{}) {
		return errors.New("settings of a daemon that is not enabled")
	}
	return m.Daemon().validate()
}

// Daemon is the daemon that is wanted.
func (m *MPS) Daemon() *Daemon {
	d := &Daemon{Running: m.Enabled, Multiuser: m.Multiuser, ActiveThreadPercentage: m.ActiveThreadPercentage, PinnedMemoryMiB: m.PinnedMemoryMiB}
	if m.Enabled && d.ActiveThreadPercentage == 0 {
		d.ActiveThreadPercentage = 100
	}
	return d
}

// Daemon is the MPS control daemon of a card, running or not.
type Daemon struct {
	Running                bool      `yaml:"running" json:"running"`
	Multiuser              bool      `yaml:"multiuser,omitempty" json:"multiuser,omitempty"`
	ActiveThreadPercentage int       `yaml:"activeThreadPercentage,omitempty" json:"activeThreadPercentage,omitempty"`
	PinnedMemoryMiB        uint64    `yaml:"pinnedMemoryMiB,omitempty" json:"pinnedMemoryMiB,omitempty"` // 0: no limit
	Clients                []Process `yaml:"clients,omitempty" json:"clients,omitempty"`
}

func (d *Daemon) validate() error {
	if d.ActiveThreadPercentage < 0 || d.ActiveThreadPercentage > 100 {
		return fmt.Errorf("%d is no percentage of threads", d.ActiveThreadPercentage)
	}
	if d.PinnedMemoryMiB > 1<<40 {
		return fmt.Errorf("%d MiB are more than any card has", d.PinnedMemoryMiB)
	}
	return nil
}

// layout is empty where none runs, as for a card whose driver is not there.
func (d *Daemon) layout() string {
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

func (d *Daemon) parts() []string { return nil }

func (d *Daemon) lines() []string {
	line := d.layout()
	if !d.Running {
		line = "MPS off"
	}
	if len(d.Clients) > 0 {
		line += ", used by " + Describe(d.Clients)
	}
	return []string{line}
}

// Value is the daemon as the value of a step.
func (d *Daemon) Value() string {
	return fmt.Sprintf("%t %d %d", d.Multiuser, d.ActiveThreadPercentage, d.PinnedMemoryMiB)
}

// ParseDaemon reads what Value has written.
func ParseDaemon(value string) (Daemon, error) {
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
	return d, d.validate()
}
