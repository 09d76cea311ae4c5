// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

// asked lets somebody answer.
func asked(t *testing.T, inv advise.Inventory, f *adviseFlags, answers string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := &app{stdin: strings.NewReader(answers), stdout: &out, stderr: &out, getenv: func(string) string { return "" }}
	err := a.ask(f, inv)
	return out.String(), err
}

// TestAsk: a screen of questions at most, with defaults from the machine; what is
// given by flags is not asked.
func TestAsk(t *testing.T) {
	inv := advise.Inventory{Cards: []advise.Card{{MemoryBytes: 24 << 30}}}
	var f adviseFlags
	out, err := asked(t, inv, &f, "\n\n\n\n\n\n")
	if err != nil || f.facts.Workload != "notebook" || f.facts.Tenants != "one" || f.in != "container" || f.model != "" || f.p99 != "" || f.facts.Count != 1 {
		t.Errorf("%v: %+v", err, f)
	}
	lines := strings.Split(strings.ReplaceAll(out, "] ", "]\n"), "\n") // Enter
	if len(lines) > 24 {
		t.Errorf("%d lines are more than a screen", len(lines))
	}
	for _, line := range lines {
		if len(line) > screen {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	f = adviseFlags{facts: advise.Facts{Tenants: "strangers"}}
	out, err = asked(t, advise.Inventory{Cards: make([]advise.Card, 8)}, &f, "games\nlarge-serve\nllama-3-70b\nvm\n20ms\n3\n")
	if err != nil || f.facts.Workload != "large-serve" || f.model != "llama-3-70b" || f.facts.Tenants != "strangers" || f.in != "vm" || f.p99 != "20ms" || f.facts.Count != 3 {
		t.Errorf("%v: %+v", err, f)
	}
	if !strings.Contains(out, `"games" is none of these`) || strings.Contains(out, "Who shares") {
		t.Errorf("%s", out)
	}
	for _, answers := range []string{"", strings.Repeat("x", 2*maxAnswersBytes), "x\nx\nx\n", "\n\n\n\n\nmany\n", "\n\n\n\n\n0\n"} {
		if _, err := asked(t, inv, &adviseFlags{}, answers); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%q: %v", answers, err)
		}
	}
}

// FuzzParseDevices: a file of another machine is refused or advised on; no command
// has a word of it that a shell would take for more.
func FuzzParseDevices(f *testing.F) {
	f.Add([]byte(`{"schema": "divvy.devices/v1", "cards": [{"uuid": "GPU-1", "name": "NVIDIA L4", "memoryBytes": 5, "freeToBookBytes": 4, "managed": true}]}`))
	f.Add([]byte(`{"schema": "divvy.devices/v1", "cards": [{"name": "x", "hardware": {"address": "0000:41:00.0", "vendor": "amd", "name": "MI300X", "memoryBytes": 206158430208,
		"can": [{"name": "compute-partition", "can": "yes", "current": "CPX", "options": ["SPX", "CPX"]}, {"name": "replicas", "can": "yes"}, {"name": "sriov", "can": "yes", "current": "1 of 8"}],
		"partitions": [{"kind": "vf", "id": "1", "name": "vf1"}, {"kind": "mig", "name": "1g.5gb"}, {"kind": "mdev", "name": "T4-1Q"}]}}], "links": [{"a": "x", "b": "y"}]}`))
	f.Add([]byte(`{"schema": "divvy.devices/v1", "simulated": true, "cards": [{"uuid": "GPU-1", "name": "NVIDIA L4 (simulated)"}]}`))
	file, err := reference.Default()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := parseDevices(raw)
		if err != nil {
			return
		}
		a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(string) string { return "" }}
		inv, err := a.adviseInventory(list, file)
		if err != nil {
			if exitCode(err) != exitUsage {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
			return
		}
		for _, workload := range []string{"notebook", "edge", "large-serve", "vdi"} {
			advice, err := advise.Advise(advise.Facts{Workload: workload, Count: 2, In: map[bool]string{true: "vm"}[workload == "vdi"]}, inv, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range advice.Choices {
				for _, command := range append(advice.Choices[i].Commands, advice.Choices[i].Undo...) {
					if inv.Simulated == "" && strings.ContainsAny(strings.TrimSuffix(command, "_*.json"), "`$\\;&|>*?") {
						t.Errorf("%s", command)
					}
				}
			}
		}
	})
}
