// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
)

func card(d *partition.Daemon) partition.Card {
	return partition.Card{UUID: "GPU-1", Name: "H100", Vendor: "nvidia", MPS: d}
}

func TestPlan(t *testing.T) {
	off := &partition.Daemon{}
	on := &partition.Daemon{Running: true, ActiveThreadPercentage: 100}
	half := &partition.Daemon{Running: true, ActiveThreadPercentage: 50, PinnedMemoryMiB: 1024}
	busy := &partition.Daemon{Running: true, ActiveThreadPercentage: 100, Clients: []partition.Process{{PID: 7, Command: "serve"}}}
	enabled := partition.MPS{Enabled: true}
	for _, c := range []struct {
		name    string
		is      *partition.Daemon
		want    partition.MPS
		force   bool
		steps   string
		refused string
	}{
		{"start", off, enabled, false, "start true", ""},
		{"it runs already", on, enabled, false, "", ""},
		{"off stays off", off, partition.MPS{}, false, "", ""},
		{"stop", on, partition.MPS{}, false, "stop", ""},
		{"other settings", half, enabled, false, "stop start", ""},
		{"for several users", on, partition.MPS{Enabled: true, Multiuser: true}, false, "stop start", ""},
		{"in use, and as it should be", busy, enabled, false, "", ""},
		{"in use", busy, partition.MPS{}, false, "", partition.RefusedInUse},
		{"in use, by force", busy, partition.MPS{}, true, "stop", ""},
		{"not installed", nil, enabled, false, "", partition.RefusedImpossible},
		{"not installed, not wanted", nil, partition.MPS{}, false, "", ""},
	} {
		p := partition.Planner{Techniques: partition.Techniques{Technique{}}, Force: c.force}
		plan := p.Card(card(c.is), partition.Rule{MPS: &c.want})
		var actions []string
		for _, s := range plan.Steps {
			actions = append(actions, s.Action)
			if s.Technique != partition.TechniqueMPS || s.Why == "" || s.String() == "" {
				t.Errorf("%s: %+v", c.name, s)
			}
		}
		if got := strings.Join(actions, " "); got != strings.TrimSuffix(c.steps, " true") || plan.Refused != c.refused {
			t.Errorf("%s: steps %q, refused %q: %s", c.name, got, plan.Refused, plan.Reason)
		}
	}
}

func TestExcludesMIG(t *testing.T) {
	c := card(&partition.Daemon{})
	c.MIG = true
	p := partition.Planner{Techniques: partition.Techniques{partition.MIGTechnique{}, Technique{}}}
	if plan := p.Card(c, partition.Rule{MPS: &partition.MPS{Enabled: true}}); plan.Refused != partition.RefusedImpossible {
		t.Errorf("%+v", plan)
	}
}

func TestValue(t *testing.T) {
	d := partition.Daemon{Running: true, Multiuser: true, ActiveThreadPercentage: 30, PinnedMemoryMiB: 5}
	got, err := partition.ParseDaemon(d.Value())
	if err != nil || !same(got, d) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "true 30", "true 130 0", "x 1 1", "true 1 -1"} {
		if _, err := partition.ParseDaemon(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzParseDaemon(f *testing.F) {
	f.Add("true 30 1024")
	f.Add("false 100 0")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := partition.ParseDaemon(text)
		if err != nil {
			return
		}
		if again, err := partition.ParseDaemon(d.Value()); err != nil || !same(again, d) || d.ActiveThreadPercentage > 100 {
			t.Errorf("%q is %+v, and then %+v: %v", text, d, again, err)
		}
	})
}
