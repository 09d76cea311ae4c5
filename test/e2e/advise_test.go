// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

// advised is a script that divvy advise printed for a host's card.
type advised struct {
	host   *host
	env    []string
	divvy  string // with this host's folders
	script string
}

// can is what divvy devices says of one way of dividing a card.
type can struct {
	Name string `json:"name"`
	Can  string `json:"can"`
}

// advise asks for a script on the host's card, as divvy devices would show it with
// hardware below.
func (h *host) advise(t *testing.T, abilities []can, flags ...string) *advised {
	t.Helper()
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type hardware struct {
		Address      string   `json:"address"`
		Vendor       string   `json:"vendor"`
		Name         string   `json:"name"`
		UUID         string   `json:"uuid"`
		Capabilities []can    `json:"can"`
		Nodes        []string `json:"nodes"`
	}
	type listed struct {
		api.Card
		Managed  bool     `json:"managed"`
		Hardware hardware `json:"hardware"`
	}
	card := devices.Cards[0]
	raw, err := json.Marshal(struct {
		Schema string   `json:"schema"`
		Cards  []listed `json:"cards"`
	}{api.SchemaDevices, []listed{{card, true, hardware{"0000:01:00.0", "nvidia", card.Name, card.UUID, abilities, []string{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "devices.json")
	x := &advised{h, append(h.Bare(), "DIVVY_AGENT="+h.AgentSocket), filepath.Join(folder, "divvy"), filepath.Join(folder, "script")}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	printed := run(t, x.env, divvy(t), append([]string{"advise", "--devices", file, "--script"}, flags...)...)
	if printed.code != 0 {
		t.Fatalf("code %d\n%s%s", printed.code, printed.stdout, printed.stderr)
	}
	if err := os.WriteFile(x.script, []byte(printed.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	// On this host the driver, the daemons, the files for containers and the journal
	// are elsewhere.
	elsewhere := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = partition ]; then\n\tset -- \"$@\" --driver-dir %s --mps-dir %s --cdi-dir %s\n\t[ $2 = show ] || set -- \"$@\" --journal %s\nfi\nexec %s \"$@\"\n",
		h.DriverDirectory, filepath.Join(h.directory, "mps"), filepath.Join(h.directory, "cdi"), filepath.Join(folder, "journal"), divvy(t))
	if err := os.WriteFile(x.divvy, []byte(elsewhere), 0o755); err != nil {
		t.Fatal(err)
	}
	x.env = append(x.env, "PATH="+folder+":"+os.Getenv("PATH"), "DIVVY_SIMULATOR="+h.SimulatorSocket)
	return x
}

// do runs a command that has to succeed, and gives what it printed.
func (x *advised) do(t *testing.T, words ...string) string {
	t.Helper()
	did := run(t, x.env, words[0], words[1:]...)
	if did.code != 0 {
		t.Fatalf("%v: code %d\n%s%s", words, did.code, did.stdout, did.stderr)
	}
	return did.stdout
}

// shown is what divvy partition show says.
func (x *advised) shown(t *testing.T) string {
	t.Helper()
	return x.do(t, x.divvy, "partition", "show")
}

// TestAdviceOnMPSRuns: the script that divvy advise prints for MPS starts the (fake)
// daemon and declares shares that it holds; its undo leaves neither.
func TestAdviceOnMPSRuns(t *testing.T) {
	fakeMPS(t)
	h := newHost(t, hostOptions{})
	if err := os.Chmod(h.directory, 0o755); err != nil { // servers run as other users
		t.Fatal(err)
	}
	x := h.advise(t, []can{{"share", "yes"}, {"replicas", "yes"}, {"mps", "yes"}}, "--workload", "hpc", "--count", "3", "--mem", "4GiB")
	x.do(t, "/bin/sh", x.script)
	for n := range 3 {
		if s := h.look(t, fmt.Sprintf("rank-%d", n+1)); s.Enforcement != share.EnforcedMPS || s.MemoryBytes != 4096*mib || s.ThreadsPercent != 33 {
			t.Errorf("%+v", s)
		}
	}
	if shown := x.shown(t); !strings.Contains(shown, "MPS on ") || !strings.Contains(shown, "rank-3") {
		t.Errorf("no daemon:\n%s", shown)
	}
	x.do(t, "/bin/sh", x.script, "undo")
	shares, err := h.client.Shares(t.Context())
	if err != nil || len(shares.Shares) != 0 {
		t.Errorf("%+v are left, %v", shares, err)
	}
	if shown := x.shown(t); strings.Contains(shown, "MPS on ") || strings.Contains(shown, "rank-") {
		t.Errorf("a daemon is left:\n%s", shown)
	}
}

// TestAdviceOnReplicasRuns: the same of names for containers.
func TestAdviceOnReplicasRuns(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	x := h.advise(t, []can{{"share", "no"}, {"replicas", "yes"}}, "--workload", "ci", "--count", "3")
	names := func() int {
		return strings.Count(x.do(t, x.divvy, "cdi", "list", "--dir", filepath.Join(h.directory, "cdi")), "divvy.dev/replica=GPU-")
	}
	x.do(t, "/bin/sh", x.script)
	if got := names(); got != 3 {
		t.Errorf("%d names, not 3", got)
	}
	x.do(t, "/bin/sh", x.script, "undo")
	if got := names(); got != 0 {
		t.Errorf("%d names are left", got)
	}
}
