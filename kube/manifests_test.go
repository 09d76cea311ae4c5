// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// manifest is a file of deploy/kubernetes without its comments and the agent's flags.
func manifest(t *testing.T, name string) []string {
	t.Helper()
	raw, err := os.ReadFile("../deploy/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(strings.TrimSpace(line), "args:") {
			lines = append(lines, line)
		}
	}
	return lines
}

// The agent over simulated GPUs is the one of hardware, but for its flags.
func TestSimulatedAgentIsTheAgent(t *testing.T) {
	agent, simulated := manifest(t, "agent.yaml"), manifest(t, "simulated.yaml")
	if len(agent) < 20 {
		t.Fatalf("agent.yaml has %d lines", len(agent))
	}
	end := slices.Index(simulated, "---\n")
	if end < 0 || !slices.Equal(agent, simulated[:end]) {
		t.Errorf("agent.yaml:\n%s\nsimulated.yaml:\n%s", strings.Join(agent, ""), strings.Join(simulated[:max(end, 0)], ""))
	}
}
