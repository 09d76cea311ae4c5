// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
)

func h100(instances ...Instance) partition.Card {
	return on(partition.Card{UUID: "GPU-h100-0001", Name: "NVIDIA H100 80GB HBM3 (simulated)"}, instances...)
}

func want(pairs ...any) Goal {
	m := Goal{Enabled: true, Devices: map[string]int{}}
	for i := 0; i < len(pairs); i += 2 {
		m.Devices[pairs[i].(string)] = pairs[i+1].(int)
	}
	return m
}

func steps(p partition.CardPlan) string {
	var lines []string
	for _, s := range p.Steps {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "; ")
}

// TestPlans: what is wanted of a card, and the words in which it is refused.
func TestPlans(t *testing.T) {
	busy := Instance{ID: 5, Profile: "3g.40gb", Start: 4, Processes: []partition.Process{{PID: 77, Command: "serve"}}}
	l40s := partition.Card{UUID: "GPU-l40s", Name: "NVIDIA L40S", DeviceID: "0x26b9"}
	for _, c := range []struct {
		name    string
		card    partition.Card
		goal    Goal
		refused string
		text    string // of the reason, or the layout that is reached
	}{
		{"from empty", h100(), want("3g.40gb", 1, "2g.20gb", 1, "1g.10gb", 2), "", "MIG on 00:2g.20gb[2] 02:1g.10gb[1] 03:1g.10gb[1] 04:3g.40gb[3]"},
		{"three thirds", h100(), want("3g.40gb", 3), partition.RefusedImpossible, "3 of 3g.40gb are wanted, a GPU holds 2"},
		{"folklore's profile", h100(), want("7g.79gb", 1), partition.RefusedImpossible, "no profile 7g.79gb; it has 1g.10gb"},
		{"too many slices", h100(), want("4g.40gb", 1, "3g.40gb", 1, "1g.10gb", 1), partition.RefusedImpossible, "8 compute slices are wanted, a GPU has 7"},
		{"in the way", h100(busy), want("1g.10gb", 7), partition.RefusedInUse, "3g.40gb at 4 is used by 77 (serve)"},
		{"beside what is used", h100(busy), want("3g.40gb", 2), "", "MIG on 00:3g.40gb[3] 04:3g.40gb[3]"},
		{"off while used", h100(busy), Goal{}, partition.RefusedInUse, "77 (serve)"},
		{"no MIG", l40s, want("1g.10gb", 1), partition.RefusedImpossible, "NVIDIA L40S has no MIG"},
		{"no MIG, none wanted", l40s, Goal{}, "", "MIG off"},
		{"documented only", partition.Card{UUID: "GPU-pro", Name: "NVIDIA RTX PRO 5000 Blackwell", DeviceID: "0x2BB3"}, want("1g.24gb", 1), partition.RefusedImpossible, "only its driver knows"},
		{"mode while used", partition.Card{UUID: "GPU-h", Name: "NVIDIA H100 PCIe", Processes: []partition.Process{{PID: 9}}}, want("1g.10gb", 1), partition.RefusedInUse, "it is used by 9"},
		{"shares", partition.Card{UUID: "GPU-h", Name: "NVIDIA H100 PCIe", Shares: []string{"train", "infer"}}, want("1g.10gb", 1), partition.RefusedInUse, "shares of this GPU: train, infer"},
		{"shares, nothing to do", partition.Card{UUID: "GPU-h", Name: "NVIDIA H100 PCIe", Shares: []string{"train"}}, Goal{}, "", "MIG off"},
		{"compute instances", h100(), want("1c.3g.40gb", 4), "", "MIG on 00:3g.40gb[1 1 1] 04:3g.40gb[1]"},
		{"optical flow twice", h100(), want("1g.10gb+me", 2), partition.RefusedImpossible, "2 of 1g.10gb+me"},
		{"alias of the A100", on(partition.Card{UUID: "GPU-a", Name: "NVIDIA A100-SXM4-80GB"}), want("7g.79gb", 1), "", "MIG on 00:7g.80gb[7]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.card.Divided == nil {
				c.card = c.card.With(partition.TechniqueMIG, &State{}) // its driver was asked
			}
			p := planner(t).Card(c.card, rule(c.goal))
			text := p.Reason
			if p.Refused == "" {
				text = p.After.Layout()
			}
			if p.Refused != c.refused || !strings.Contains(text, c.text) {
				t.Errorf("%q: %s\n%s", p.Refused, text, steps(p))
			}
		})
	}
}

// TestNothingElseIsTouched: what fits the goal stays as it is.
func TestNothingElseIsTouched(t *testing.T) {
	card := h100(Instance{ID: 1, Profile: "3g.40gb", Start: 0}, Instance{ID: 2, Profile: "2g.20gb", Start: 4})
	p := planner(t).Card(card, rule(want("3g.40gb", 1, "2g.20gb", 1, "1g.10gb", 1)))
	if got := steps(p); got != "create 1g.10gb at 6; create a compute instance of 1 in 1g.10gb at 6" || p.Destroyed != 0 || p.Kept != 2 {
		t.Errorf("%s, %d destroyed, %d kept", got, p.Destroyed, p.Kept)
	}
	if p := planner(t).Card(p.After, rule(want("3g.40gb", 1, "2g.20gb", 1, "1g.10gb", 1))); len(p.Steps) != 0 {
		t.Errorf("again: %s", steps(p))
	}
	force := planner(t)
	force.Force = true
	card = h100(Instance{ID: 1, Profile: "3g.40gb", Start: 0, Processes: []partition.Process{{PID: 1}}}, Instance{ID: 2, Profile: "2g.20gb", Start: 4})
	if p := force.Card(card, rule(Goal{})); p.Refused != "" || steps(p) != "destroy 3g.40gb at 0; destroy 2g.20gb at 4; switch MIG mode off" {
		t.Errorf("forced: %q %s", p.Refused, steps(p))
	}
}

// partedExamples are the published forms of mig-parted's files: all and lists of
// cards, filters of one and of several, by PCI ids and by name, JSON, a
// ConfigMap.
func partedExamples() map[string]string {
	return map[string]string{
		"all": "version: v1\nmig-configs:\n  c:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n        \"3g.40gb\": 2\n",
		"list": "version: v1\nmig-configs:\n  c:\n    - devices: [0,1]\n      mig-enabled: false\n" +
			"    - devices: [2]\n      mig-enabled: true\n      mig-devices:\n        \"3g.40gb\": 2\n",
		"one filter": "version: v1\nmig-configs:\n  c:\n    - device-filter: \"0x233010DE\"\n      devices: all\n      mig-enabled: true\n      mig-devices:\n        \"3g.40gb\": 2\n",
		"filters": "version: v1\nmig-configs:\n  c:\n    - device-filter: [\"0x20B010DE\", \"0x20B110DE\"]\n      devices: all\n      mig-enabled: true\n      mig-devices:\n        \"3g.20gb\": 2\n" +
			"    - device-filter: [ \"0x233110DE\", \"0x233010DE\" ]\n      devices: all\n      mig-enabled: true\n      mig-devices:\n        \"3g.40gb\": 2\n",
		"by name":   "version: v1\nmig-configs:\n  c:\n    - device-filter: [\"H100 80GB\", A100]\n      devices: [2]\n      mig-enabled: true\n      mig-devices: {\"3g.40gb\": 2}\n",
		"JSON":      "{\n\t\"version\": \"v1\",\n\t\"mig-configs\": {\"c\": [{\"devices\": \"all\", \"mig-enabled\": true, \"mig-devices\": {\"3g.40gb\": 2}}]}\n}",
		"several":   "version: v1\nmig-configs:\n  b:\n    - devices: all\n      mig-enabled: false\n  c:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n        \"3g.40gb\": 2\n",
		"ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  config.yaml: |\n    version: v1\n    mig-configs:\n      c:\n        - devices: all\n          mig-enabled: true\n          mig-devices:\n            \"3g.40gb\": 2\n",
	}
}

// wanted is what a goal says of MIG on a card; nil: nothing.
func wanted(g partition.Goal, c partition.Card) *Goal {
	r, _ := g.For(c)
	m, _ := r.Wants[partition.TechniqueMIG].(*Goal)
	return m
}

func TestPartedFiles(t *testing.T) {
	techniques := planner(t).Techniques
	card := h100()
	card.Index, card.DeviceID = 2, "0x2330"
	for name, text := range partedExamples() {
		g, err := ParseGoal([]byte(text), "c", techniques)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m := wanted(g, card); m == nil || !m.Enabled || m.Devices["3g.40gb"] != 2 {
			t.Errorf("%s: %+v", name, g)
		}
		if other := (partition.Card{Index: 9, Name: "NVIDIA L4", DeviceID: "0x27b8"}); strings.Contains(name, "filter") {
			if _, ok := g.For(other); ok {
				t.Errorf("%s: matches another model", name)
			}
		}
		// There and back again.
		own, err := g.YAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseGoal(own, "", techniques)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, own)
		}
		parted, err := PartedYAML(back, "c")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseGoal(parted, "", techniques); err != nil {
			t.Errorf("%s: %v\n%s", name, err, parted)
		} else if m := wanted(again, card); m == nil || m.Devices["3g.40gb"] != 2 {
			t.Errorf("%s: %s", name, parted)
		}
	}
	all := partedExamples()
	if _, err := ParseGoal([]byte(all["several"]), "", techniques); err == nil || !strings.Contains(err.Error(), "b, c") {
		t.Errorf("none of several selected: %v", err)
	}
	if _, err := ParseGoal([]byte(all["several"]), "d", techniques); err == nil {
		t.Error("selected what is not there")
	}
	if got := Selections([]byte(all["several"])); len(got) != 2 {
		t.Errorf("selections %v", got)
	}
	for _, text := range []string{
		"version: v2\nmig-configs: {a: [{devices: all, mig-enabled: false}]}", "version: v1", "version: v1\nmig-configs: {}", "version: v1\nmig-configs: {a: []}",
		"mig-configs: {a: [{devices: all, mig-enabled: false}]}", "version: v1\nbogus: 1\nmig-configs: {a: [{devices: all, mig-enabled: false}]}",
		"version: v1\nmig-configs: {a: [{mig-enabled: false}]}", "version: v1\nmig-configs: {a: [{devices: all}]}", "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true}]}",
		"version: v1\nmig-configs: {a: [{devices: some, mig-enabled: false}]}", "version: v1\nmig-configs: {a: [{devices: {}, mig-enabled: false}]}",
		"version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {bogus: 2}}]}",
		"version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 2}}]}", "schema: other\ncards: []",
	} {
		if g, err := ParseGoal([]byte(text), "", techniques); err == nil {
			t.Errorf("accepted %q as %+v", text, g)
		}
	}
}

func TestRoom(t *testing.T) {
	room, err := New(products(t), nil).Room(h100(Instance{Profile: "4g.40gb", Start: 0}))
	if err != nil || strings.Join(room, ", ") != "3 x 1g.10gb, 1 x 1g.10gb+me, 2 x 1g.20gb, 1 x 2g.20gb, 1 x 3g.40gb" {
		t.Errorf("%v, %v", room, err)
	}
}
