// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

func card(d *Daemon) partition.Card {
	c := partition.Card{UUID: "GPU-1", Name: "H100", Vendor: "nvidia"}
	if d == nil {
		return c
	}
	return c.With(partition.TechniqueMPS, d)
}

func TestPlan(t *testing.T) {
	off := &Daemon{}
	on := &Daemon{Running: true, ActiveThreadPercentage: 100}
	half := &Daemon{Running: true, ActiveThreadPercentage: 50, PinnedMemoryMiB: 1024}
	busy := &Daemon{Running: true, ActiveThreadPercentage: 100, Clients: []partition.Process{{PID: 7, Command: "serve"}}}
	enabled := Goal{Enabled: true}
	for _, c := range []struct {
		name    string
		is      *Daemon
		want    Goal
		force   bool
		steps   string
		refused string
	}{
		{"start", off, enabled, false, "start true", ""},
		{"it runs already", on, enabled, false, "", ""},
		{"off stays off", off, Goal{}, false, "", ""},
		{"stop", on, Goal{}, false, "stop", ""},
		{"other settings", half, enabled, false, "stop start", ""},
		{"for several users", on, Goal{Enabled: true, Multiuser: true}, false, "stop start", ""},
		{"in use, and as it should be", busy, enabled, false, "", ""},
		{"in use", busy, Goal{}, false, "", partition.RefusedInUse},
		{"in use, by force", busy, Goal{}, true, "stop", ""},
		{"not installed", nil, enabled, false, "", partition.RefusedImpossible},
		{"not installed, not wanted", nil, Goal{}, false, "", ""},
	} {
		p := partition.Planner{Techniques: partition.Techniques{Technique{}}, Force: c.force}
		plan := p.Card(card(c.is), partition.Rule{Wants: partition.Wants{partition.TechniqueMPS: &c.want}})
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
	c := card(&Daemon{}).With(partition.TechniqueMIG, &mig.State{On: true})
	p := partition.Planner{Techniques: partition.Techniques{mig.Technique{}, Technique{}}}
	if plan := p.Card(c, partition.Rule{Wants: partition.Wants{partition.TechniqueMPS: &Goal{Enabled: true}}}); plan.Refused != partition.RefusedImpossible {
		t.Errorf("%+v", plan)
	}
}

func TestValue(t *testing.T) {
	d := Daemon{Running: true, Multiuser: true, ActiveThreadPercentage: 30, PinnedMemoryMiB: 5}
	got, err := parse(d.value())
	if err != nil || !same(got, d) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "true 30", "true 130 0", "x 1 1", "true 1 -1"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzParseDaemon(f *testing.F) {
	f.Add("true 30 1024")
	f.Add("false 100 0")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parse(text)
		if err != nil {
			return
		}
		if again, err := parse(d.value()); err != nil || !same(again, d) || d.ActiveThreadPercentage > 100 {
			t.Errorf("%q is %+v, and then %+v: %v", text, d, again, err)
		}
	})
}
