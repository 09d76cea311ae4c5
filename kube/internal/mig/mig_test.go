// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/cdi"
)

// node has files of MIG devices and an agent that knows some.
type node struct {
	Devices
	told   []Device
	silent []string
	at     time.Time // zero: of now
	fails  error
	asked  int
}

func newNode(t *testing.T) (*node, func(id, needs string)) {
	t.Helper()
	folder := t.TempDir()
	n := &node{Devices: Devices{Folders: []cdi.Folder{cdi.Folder(folder), cdi.Folder(filepath.Join(folder, "none"))}}}
	n.Agent = func(context.Context) (Answer, error) {
		n.asked++
		at := n.at
		if at.IsZero() {
			at = time.Now()
		}
		return Answer{n.told, n.silent, at}, n.fails
	}
	return n, func(id, needs string) {
		t.Helper()
		text := `{"cdiVersion":"0.3.0","kind":"divvy.dev/mig","devices":[{"name":"` + id + `","containerEdits":{"env":["A=b"],"mounts":[{"hostPath":"` + needs +
			`","containerPath":"/x"}]}}],"containerEdits":{}}`
		if err := os.WriteFile(filepath.Join(folder, "divvy.dev-mig_"+id+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) ids(t *testing.T) (ids []string) {
	t.Helper()
	devices, err := n.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return ids
}

// A device is one that a file names and the agent knows; it is ready when the host has what it needs.
func TestList(t *testing.T) {
	n, write := newNode(t)
	if got := n.ids(t); got != nil || n.asked != 0 {
		t.Errorf("%v, asked %d times without a file", got, n.asked)
	}
	n.told = []Device{{ID: "MIG-b", Profile: "1g.5gb", CardUUID: "GPU-1"}, {ID: "MIG-a", Profile: "2g.10gb", CardUUID: "GPU-1"}, {ID: "MIG-c"}}
	write("MIG-a", "/")
	write("MIG-b", "/nowhere")
	write("MIG-strange", "/")
	devices, err := n.List(t.Context())
	if err != nil || len(devices) != 2 || devices[0].ID != "MIG-a" || !devices[0].Ready || devices[0].Profile != "2g.10gb" || devices[1].Ready {
		t.Errorf("%+v (%v)", devices, err)
	}
	n.Blind = true
	if devices, err := n.List(t.Context()); err != nil || len(devices) != 2 || !devices[1].Ready {
		t.Errorf("in a pod: %+v (%v)", devices, err)
	}
}

// The agent is asked when a file names a device that it has not told of, and not again and again.
func TestAsksSeldom(t *testing.T) {
	n, write := newNode(t)
	n.told = []Device{{ID: "MIG-a"}, {ID: "MIG-b"}}
	for _, step := range []struct {
		id    string
		asked int
	}{{"", 0}, {"MIG-a", 1}, {"", 1}, {"MIG-strange", 2}, {"", 2}, {"MIG-b", 2}} {
		if step.id != "" {
			write(step.id, "/")
		}
		if n.ids(t); n.asked != step.asked {
			t.Errorf("after %q: asked %d times, want %d", step.id, n.asked, step.asked)
		}
	}
}

// An agent whose driver takes its time tells what it knew before a device was made: it is asked
// again.
func TestOldAnswer(t *testing.T) {
	n, write := newNode(t)
	n.told, n.at = []Device{{ID: "MIG-a"}}, time.Now()
	write("MIG-a", "/")
	write("MIG-b", "/")
	for range 2 {
		if got := n.ids(t); !slices.Equal(got, []string{"MIG-a"}) {
			t.Fatalf("%v", got)
		}
	}
	n.told, n.at = append(n.told, Device{ID: "MIG-b"}), time.Time{}
	if got := n.ids(t); !slices.Equal(got, []string{"MIG-a", "MIG-b"}) {
		t.Errorf("%v", got)
	}
	if n.ids(t); n.asked != 3 {
		t.Errorf("asked %d times, want 3", n.asked)
	}
}

// An agent that has just begun knows less than the one before: what was known of a GPU that does
// not answer stays, and is asked for until it does.
func TestSilentGPU(t *testing.T) {
	n, write := newNode(t)
	n.told = []Device{{ID: "MIG-a", CardUUID: "GPU-1"}, {ID: "MIG-b", CardUUID: "GPU-2"}}
	write("MIG-a", "/")
	write("MIG-b", "/")
	if got := n.ids(t); len(got) != 2 {
		t.Fatalf("%v", got)
	}
	n.told, n.silent = nil, []string{"GPU-1"}
	write("MIG-new", "/")
	for range 2 {
		if got := n.ids(t); !slices.Equal(got, []string{"MIG-a"}) {
			t.Errorf("%v: GPU-2 says that it has none, GPU-1 nothing", got)
		}
	}
	n.silent = nil
	if got := n.ids(t); got != nil || n.asked != 4 {
		t.Errorf("%v, asked %d times", got, n.asked)
	}
	n.fails = errors.New("away")
	write("MIG-newer", "/")
	if got, err := n.List(t.Context()); err == nil {
		t.Errorf("%v", got)
	}
}
