// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/cri"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

const uuid = "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"

// fit are the facts of a node on which nothing is wrong.
func fit() Facts {
	n := &corev1.Node{}
	n.Name = "n"
	n.Status.NodeInfo.KubeletVersion = "v1.37.2"
	n.Status.Allocatable = corev1.ResourceList{}
	yes := true
	slice := resourceapi.ResourceSlice{}
	slice.Spec.Driver = names.Driver
	slice.Spec.Devices = []resourceapi.Device{{AllowMultipleAllocations: &yes}}
	s := api.Share{}
	s.Name, s.Labels = "k8s-x-0", share.Labels{names.LabelClaim: "x"}
	return Facts{
		Agent: api.Version{Version: "1.0"}, Devices: []api.Card{{UUID: uuid, Name: "NVIDIA A100 (40 GB)", DriverVersion: "535", Health: "ok", Enforcement: share.EnforcedFront, MemoryBytes: 40 << 30}},
		Runtime: cri.Version{Name: "containerd", Version: "v2.4.2"}, CDI: cri.CDI{Known: true, Enabled: true, Folders: []string{"/etc/cdi", "/var/run/cdi"}},
		Node: n, Slices: []resourceapi.ResourceSlice{slice}, Shares: []api.Share{s}, Exists: map[string]bool{"x": true},
	}
}

func TestExamine(t *testing.T) {
	other := "n"
	theirs := uuid
	for name, c := range map[string]struct {
		change func(*Facts)
		check  string
		status string
		want   string
	}{
		"fit":             {func(*Facts) {}, "leftovers", OK, "each of 1 shares"},
		"no agent":        {func(f *Facts) { f.AgentError = errors.New("nobody listens") }, "agent", Fail, "nobody listens"},
		"no GPU":          {func(f *Facts) { f.Devices = nil }, "driver", Fail, "no GPU"},
		"a lost GPU":      {func(f *Facts) { f.Devices[0].Health = "lost" }, "driver", Fail, "is lost"},
		"simulated":       {func(f *Facts) { f.Agent.Simulated = true }, "driver", Note, "simulated"},
		"no front":        {func(f *Facts) { f.Devices[0].Enforcement = share.Booked }, "front", Fail, "nothing would hold"},
		"containerd 1.6":  {func(f *Facts) { f.Runtime.Version = "1.6.20~ds1" }, "runtime", Fail, "1.7 is the least"},
		"CRI-O":           {func(f *Facts) { f.Runtime, f.CDI = cri.Version{Name: "cri-o", Version: "1.36.0"}, cri.CDI{} }, "cdi", OK, "CRI-O"},
		"an old CRI-O":    {func(f *Facts) { f.Runtime = cri.Version{Name: "cri-o", Version: "1.20.1"} }, "runtime", Fail, "1.24"},
		"no runtime":      {func(f *Facts) { f.RuntimeError = errors.New("no socket") }, "runtime", Fail, "no socket"},
		"an odd runtime":  {func(f *Facts) { f.Runtime.Version = "main" }, "runtime", Note, "not known"},
		"CDI off":         {func(f *Facts) { f.CDI.Enabled = false }, "cdi", Fail, "off"},
		"CDI elsewhere":   {func(f *Facts) { f.CDI.Folders = []string{"/x"} }, "cdi", Fail, "/x"},
		"CDI unknown":     {func(f *Facts) { f.CDI = cri.CDI{} }, "cdi", Note, "does not say"},
		"Kubernetes 1.28": {func(f *Facts) { f.Node.Status.NodeInfo.KubeletVersion = "v1.28.1" }, "kubelet", Fail, "1.29"},
		"Kubernetes 1.31": {func(f *Facts) { f.Node.Status.NodeInfo.KubeletVersion = "v1.31.4-eks" }, "kubelet", Note, "--device-plugin"},
		"Kubernetes 1.35": {func(f *Facts) { f.Node.Status.NodeInfo.KubeletVersion = "v1.35.0" }, "kubelet", Note, "DRAConsumableCapacity"},
		"no node":         {func(f *Facts) { f.NodeError = errors.New("forbidden") }, "kubelet", Fail, "forbidden"},
		"no folder":       {func(f *Facts) { f.KubeletDir = errors.New("no such folder") }, "kubelet", Fail, "no such folder"},
		"gate off":        {func(f *Facts) { f.Slices[0].Spec.Devices[0].AllowMultipleAllocations = nil }, "gates", Fail, "dropped"},
		"nothing yet":     {func(f *Facts) { f.Slices = nil }, "gates", Note, "nothing yet"},
		"slots": {func(f *Facts) {
			f.Slices = nil
			f.Node.Status.Allocatable[names.ResourceGPU] = resource.MustParse("128")
		}, "gates", OK, "128 slots"},
		"NVIDIA's plugin": {func(f *Facts) { f.Node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("2") }, "others", Fail, "nvidia.com/gpu"},
		"an empty plugin": {func(f *Facts) { f.Node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0") }, "others", OK, ""},
		"NVIDIA's driver": {func(f *Facts) {
			s := resourceapi.ResourceSlice{}
			s.Spec.Driver, s.Spec.NodeName = "gpu.nvidia.com", &other
			s.Spec.Devices = []resourceapi.Device{{Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"uuid": {StringValue: &theirs}}}}
			f.Slices = append(f.Slices, s)
		}, "others", Fail, "gpu.nvidia.com"},
		"a leftover": {func(f *Facts) { f.Exists = nil }, "leftovers", Fail, "k8s-x-0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fit()
			c.change(&f)
			checks := Examine(f)
			for _, got := range checks {
				if got.Name == c.check {
					if got.Status != c.status || !strings.Contains(got.Detail, c.want) {
						t.Errorf("%+v", got)
					}
				} else if got.Status != OK && name != "no GPU" {
					t.Errorf("another one: %+v", got)
				}
			}
			if Fit(checks) != (c.status != Fail) {
				t.Errorf("fit: %v", Fit(checks))
			}
		})
	}
}

func TestLabels(t *testing.T) {
	f := fit()
	labels := Labels(f, Examine(f))
	for key, want := range map[string]string{
		names.LabelNodeFit: "true", names.LabelNodeGPUs: "1", names.LabelNodeProduct: "NVIDIA-A100--40-GB", names.LabelNodeMemory: "40960",
		names.LabelNodeEnforcement: "front", names.LabelNodeSimulated: "false",
	} {
		if labels[key] != want {
			t.Errorf("%s is %q, want %q", key, labels[key], want)
		}
	}
}

func FuzzVersion(f *testing.F) {
	f.Add("v1.37.2")
	f.Add("2.")
	f.Fuzz(func(t *testing.T, text string) {
		if major, minor, ok := version(text); ok && minor < 0 {
			t.Errorf("%q is %d.%d", text, major, minor)
		}
	})
}
