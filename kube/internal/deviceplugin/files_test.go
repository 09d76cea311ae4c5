// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/kube/internal/cri"
	"github.com/divvy-gpu/divvy/kube/internal/fakeagent"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// writeCDI writes files of devices and returns their folder.
func writeCDI(t *testing.T) (folder string, write func(class, id string)) {
	t.Helper()
	folder = t.TempDir()
	return folder, func(class, id string) {
		t.Helper()
		text := `{"cdiVersion":"0.3.0","kind":"divvy.dev/` + class + `","devices":[{"name":"` + id + `","containerEdits":{"env":["A=b"]}}],"containerEdits":{}}`
		if err := os.WriteFile(filepath.Join(folder, "divvy.dev-"+class+"_"+id+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Replicas are what CDI files say, of our class only; one that is gone is refused.
func TestReplicas(t *testing.T) {
	folder, write := writeCDI(t)
	write("replica", "b-2")
	write("replica", "a-1")
	write("card", "a")
	r := &Files{Folders: []cdi.Folder{cdi.Folder(folder), cdi.Folder(filepath.Join(folder, "none"))}, Class: cdi.ClassReplica}
	devices, err := r.devices()
	if err != nil || len(devices) != 2 || devices[0].ID != "a-1" || devices[0].Health != pluginapi.Healthy {
		t.Fatalf("%v %v", devices, err)
	}
	ask := func(ids ...string) (*pluginapi.AllocateResponse, error) {
		return r.Allocate(t.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	}
	answer, err := ask("b-2", "a-1")
	if err != nil || len(answer.ContainerResponses[0].CdiDevices) != 2 || answer.ContainerResponses[0].CdiDevices[0].Name != "divvy.dev/replica=b-2" {
		t.Errorf("%v %v", answer, err)
	}
	if answer, err := ask("c-1"); err == nil {
		t.Errorf("%v", answer)
	}
}

// A device that lacks something of the host is ill, where that is seen.
func TestIncompleteReplica(t *testing.T) {
	folder := t.TempDir()
	text := `{"cdiVersion":"0.3.0","kind":"divvy.dev/replica","devices":[{"name":"a-1","containerEdits":{"mounts":[{"hostPath":"/nowhere","containerPath":"/x"}]}}]}`
	if err := os.WriteFile(filepath.Join(folder, "divvy.dev-replica_a-1.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for blind, want := range map[bool]string{false: pluginapi.Unhealthy, true: pluginapi.Healthy} {
		f := &Files{Folders: []cdi.Folder{cdi.Folder(folder)}, Blind: blind, Class: cdi.ClassReplica}
		if devices, err := f.devices(); err != nil || len(devices) != 1 || devices[0].Health != want {
			t.Errorf("blind %v: %v %v", blind, devices, err)
		}
	}
}

// A MIG device is its profile's, as the agent says, and nobody's when the agent does not know it.
func TestMIG(t *testing.T) {
	folder, write := writeCDI(t)
	for _, id := range []string{"MIG-a", "MIG-b", "MIG-c", "MIG-gone"} {
		write("mig", id)
	}
	write("replica", "MIG-d")
	m := &MIG{Devices: &mig.Devices{Folders: []cdi.Folder{cdi.Folder(folder)}}}
	resources := m.learn([]mig.Device{
		{ID: "MIG-a", Profile: "1g.5gb"}, {ID: "MIG-b", Profile: "1g.5gb+me"}, {ID: "MIG-c", Profile: "1g.5gb"}, {ID: "MIG-d", Profile: "1g.5gb"},
		{ID: "MIG-e", Profile: "a b"},
	})
	if len(resources) != 2 || !resources["divvy.dev/mig-1g.5gb"] || !resources["divvy.dev/mig-1g.5gb.me"] {
		t.Errorf("%v", resources)
	}
	small := m.files("divvy.dev/mig-1g.5gb")
	devices, err := small.devices()
	if err != nil || len(devices) != 2 || devices[0].ID != "MIG-a" || devices[1].ID != "MIG-c" {
		t.Errorf("%v %v", devices, err)
	}
	ask := &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"MIG-c"}}}}
	answer, err := small.Allocate(t.Context(), ask)
	if err != nil || answer.ContainerResponses[0].CdiDevices[0].Name != "divvy.dev/mig=MIG-c" {
		t.Errorf("%v %v", answer, err)
	}
	m.learn([]mig.Device{{ID: "MIG-a", Profile: "1g.5gb"}})
	if answer, err := small.Allocate(t.Context(), ask); err == nil {
		t.Errorf("one that is gone: %v", answer)
	}
}

// A MIG device is on the agent's ledger from its container's start, by a second call too, until its pod
// has ended; and the next pod's after.
func TestMIGBooked(t *testing.T) {
	const resource, id = "divvy.dev/mig-1g.5gb", "MIG-5404041a-04cf-1ccf-9e70-f139a9b1e23c"
	agent := fakeagent.New(10*gib, gpu1)
	n, _ := newNode(t, agent)
	m := &MIG{Devices: &mig.Devices{}, Instances: agent, Runtime: n, Checkpoint: n.checkpoint, Log: slog.New(slog.DiscardHandler)}
	served := m.serve(resource)
	if options, err := served.GetDevicePluginOptions(t.Context(), nil); err != nil || !options.PreStartRequired {
		t.Errorf("%v %v", options, err)
	}
	start := func() error {
		_, err := served.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{id}})
		return err
	}
	n.holdsOf(t, resource, uid, "main", id)
	if err := start(); err == nil {
		t.Error("one that is not known was booked")
	}
	m.learn([]mig.Device{{ID: id, Profile: "1g.5gb", CardUUID: gpu1}})
	booked := func(pod string) {
		t.Helper()
		made := agent.Made()
		if len(made) != 1 || made[0].Device != id || made[0].GPU != gpu1 || made[0].Labels[names.LabelPod] != pod || made[0].Labels[names.LabelBy] != names.ByPlugin {
			t.Errorf("%+v", made)
		}
	}
	for range 2 {
		if err := errors.Join(start(), m.reap(t.Context())); err != nil {
			t.Fatal(err)
		}
		booked(uid)
	}
	const next = "0c9f7a6e-3c1b-4a58-9d0e-2b8a4f6c1d36"
	n.entries = nil
	n.holdsOf(t, resource, next, "main", id)
	n.sandboxes[next] = cri.Sandbox{ID: "t", UID: next, Ready: true}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	booked(next)
	if err := m.release(t.Context(), names.Booking(id), uid); err != nil { // decided before the next pod came
		t.Fatal(err)
	}
	booked(next)
	delete(n.sandboxes, next)
	m = &MIG{Devices: m.Devices, Instances: agent, Runtime: n, Checkpoint: n.checkpoint, Log: m.Log} // started anew
	if err := m.reap(t.Context()); err != nil || len(agent.Made()) > 0 {
		t.Errorf("%+v (%v)", agent.Made(), err)
	}
}
