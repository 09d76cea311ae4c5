// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hardwareReport is the JSON of scripts/hardware-check.
type hardwareReport struct {
	Schema    string `json:"schema"`
	Card      string `json:"card"`
	Driver    string `json:"driver"`
	Simulated bool   `json:"simulated"`
	Pass      bool   `json:"pass"`
	Rows      []struct {
		Check   string `json:"check"`
		Seen    string `json:"seen"`
		Control string `json:"control"`
		Target  string `json:"target"`
		Verdict string `json:"verdict"`
	} `json:"rows"`
}

// hardwareCheck runs the script of a build over a simulated card.
func hardwareCheck(t *testing.T, build string, args ...string) hardwareReport {
	t.Helper()
	command := exec.Command(filepath.Join(build, "scripts", "hardware-check"), append([]string{"--json", "--seconds", "1"}, args...)...)
	command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(root(t), "test", "e2e", "testdata", "torch"))
	command.Stderr = os.Stderr
	out, err := command.Output()
	var report hardwareReport
	if parseErr := json.Unmarshal(out, &report); parseErr != nil {
		t.Fatalf("%v, and its JSON: %v\n%s", err, parseErr, out)
	}
	var exit *exec.ExitError
	failed := errors.As(err, &exit) && exit.ExitCode() == 1
	if err != nil && !failed || failed == report.Pass {
		t.Errorf("pass is %v and it ended with %v", report.Pass, err)
	}
	for _, row := range report.Rows {
		if failed = failed && row.Verdict != "fail"; row.Verdict != "pass" && row.Verdict != "fail" && row.Verdict != "skipped" {
			t.Errorf("%s: verdict %q", row.Check, row.Verdict)
		}
		if row.Check == "" || row.Seen == "" {
			t.Errorf("a row says nothing: %+v", row)
		}
	}
	if failed {
		t.Error("it failed, and no row says why")
	}
	return report
}

func (r hardwareReport) verdict(check string) string {
	for _, row := range r.Rows {
		if row.Check == check {
			return row.Verdict
		}
	}
	return "not there"
}

// Rows whose figures depend on how busy this machine is: that they were
// measured is enough here.
func measuredOnly(check string) bool {
	for _, start := range []string{"calls ", "quota of time", "account of", "equal shares", "memory back", "PyTorch: from", "PyTorch: time", "PyTorch: equal", "events that"} {
		if strings.HasPrefix(check, start) {
			return true
		}
	}
	return false
}

// With the torch of testdata the rows of PyTorch run over the simulated card, too.
func TestHardwareCheck(t *testing.T) {
	t.Parallel()
	report := hardwareCheck(t, root(t), "--simulate", "--python", "python3")
	if report.Schema != "divvy.hardware-check/v1" || !report.Simulated || !strings.Contains(report.Card, "(simulated)") || report.Driver == "" {
		t.Errorf("it describes itself as %+v", report)
	}
	var checks []string
	for _, row := range report.Rows {
		checks = append(checks, row.Check)
		switch {
		case row.Verdict == "skipped":
			if !strings.HasPrefix(row.Check, "nvidia-smi") && !strings.Contains(row.Seen, "--clients") {
				t.Errorf("%s was skipped: %s", row.Check, row.Seen)
			}
		case measuredOnly(row.Check):
			if !strings.ContainsAny(row.Seen, "0123456789") && row.Seen != "none" || row.Target == "measured" {
				t.Errorf("%s was not measured: %s", row.Check, row.Seen)
			}
		case row.Verdict != "pass":
			t.Errorf("%s: seen %s, control %s, target %s", row.Check, row.Seen, row.Control, row.Target)
		}
	}
	for _, check := range []string{
		"divvy doctor", "same driver as without Divvy", "card's total is the share's", "allocation over the quota",
		"driver shows our processes", "a context costs", "nvidia-smi: total", "nvidia-smi: processes", "divvy run without an agent",
		"calls over the null driver", "calls over this driver", "heir refused beside a living victim", "memory back after kill -9",
		"quota of time, async, 10 %", "quota of time, async, 30 %", "quota of time, async, 60 %", "quota of time, sync, 30 %",
		"quota of time, graph, 30 %", "account of that time", "equal shares, one against three",
		"PyTorch: version and GPUs", "PyTorch: launches", "PyTorch: memory of the front", "PyTorch: the card's total",
		"PyTorch: out of memory at the limit", "PyTorch: from start to end", "PyTorch: time, mm, 10 %", "PyTorch: time, mm, 30 %", "PyTorch: time, mm, 60 %",
		"PyTorch: time, graph, 30 %", "PyTorch: equal shares", "symbols that the list lacks",
	} {
		if !slices.Contains(checks, check) {
			t.Errorf("there is no row %q", check)
		}
	}
}

// With the programs of the registries their rows run over the simulated GPU, too.
func TestClientHardwareCheck(t *testing.T) {
	folder := clientsFolder(t, "python")
	report := hardwareCheck(t, root(t), "--simulate=A100-40GB", "--driver", "13.0", "--clients", folder, "--only", "programs")
	for _, p := range clientPrograms {
		for _, check := range []string{p.name + ": its result", p.name + ": out of memory at the limit"} {
			if got := report.verdict(check); got != "pass" && got != "skipped" {
				t.Errorf("%s: %s", check, got)
			}
		}
	}
	if !report.Pass {
		t.Errorf("%+v", report)
	}
}

// A divvy whose `run` holds nothing must be found out by every row that is
// about holding something.
func TestHardwareCheckFindsWhatHoldsNothing(t *testing.T) {
	t.Parallel()
	build := t.TempDir()
	for _, folder := range []string{"bin", "scripts"} {
		if err := os.Mkdir(filepath.Join(build, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(built(t, "lib"), filepath.Join(build, "lib")); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root(t), "scripts", "hardware-check"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(build, "scripts", "hardware-check"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	idle := fmt.Sprintf(`#!/bin/bash
if [ "$1" = run ] && [ -n "${DIVVY_AGENT:-}" ]; then
	while [ "$1" != -- ]; do shift; done
	shift
	export DIVVY_SIMULATOR=${DIVVY_AGENT%%/agent/agent.sock}/simulator.sock LD_LIBRARY_PATH=%q
	exec "$@"
fi
exec %q "$@"
`, built(t, "lib", "divvy", "standin"), divvy(t))
	if err := os.WriteFile(filepath.Join(build, "bin", "divvy"), []byte(idle), 0o755); err != nil {
		t.Fatal(err)
	}
	only, checks := "memory,kill", []string{"card's total is the share's", "allocation over the quota", "heir refused beside a living victim"}
	if !testing.Short() {
		only += ",time,torch"
		checks = append(checks, "quota of time, async, 10 %", "quota of time, async, 30 %", "quota of time, async, 60 %", "quota of time, sync, 30 %",
			"quota of time, graph, 30 %", "equal shares, one against three", "PyTorch: launches", "PyTorch: the card's total",
			"PyTorch: out of memory at the limit", "PyTorch: time, mm, 10 %", "PyTorch: time, graph, 30 %", "PyTorch: equal shares")
	}
	report := hardwareCheck(t, build, "--simulate", "--python", "python3", "--only", only)
	if report.Pass {
		t.Error("it passes")
	}
	for _, check := range checks {
		if got := report.verdict(check); got != "fail" {
			t.Errorf("%s: %s", check, got)
		}
	}
}

// Without a driver the check fails and says so, whatever else there is.
func TestHardwareCheckWithoutADriver(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("this machine has a driver")
	}
	report := hardwareCheck(t, root(t))
	if report.Pass || report.verdict("driver") != "fail" {
		t.Errorf("it says %+v", report)
	}
}
