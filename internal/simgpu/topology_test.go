// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func devices(t *testing.T, n nvml.Interface) []nvml.Device {
	t.Helper()
	var list []nvml.Device
	for i := range must[int](t, "count")(n.DeviceGetCount()) {
		list = append(list, must[nvml.Device](t, "card")(n.DeviceGetHandleByIndex(i)))
	}
	return list
}

// TestTopologyDGX: what NVML says of eight cards behind NVLink switches.
func TestTopologyDGX(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "8xH100-80GB", Topology: "dgx"})
	d := devices(t, startNVML(t, "standin", socket))
	for i, want := range []nvml.GpuTopologyLevel{0, nvml.TOPOLOGY_SINGLE, nvml.TOPOLOGY_NODE, nvml.TOPOLOGY_NODE, nvml.TOPOLOGY_SYSTEM,
		nvml.TOPOLOGY_SYSTEM, nvml.TOPOLOGY_SYSTEM, nvml.TOPOLOGY_SYSTEM} {
		if i == 0 {
			continue
		}
		if level := must[nvml.GpuTopologyLevel](t, "ancestor")(d[0].GetTopologyCommonAncestor(d[i])); level != want {
			t.Errorf("GPU 0 and %d: %d, want %d", i, level, want)
		}
		for _, index := range []nvml.GpuP2PCapsIndex{nvml.P2P_CAPS_INDEX_READ, nvml.P2P_CAPS_INDEX_NVLINK, nvml.P2P_CAPS_INDEX_ATOMICS} {
			if status := must[nvml.GpuP2PStatus](t, "P2P")(d[0].GetP2PStatus(d[i], index)); status != nvml.P2P_STATUS_OK {
				t.Errorf("GPU 0 and %d: P2P %d is %d", i, index, status)
			}
		}
	}
	if near := must[[]nvml.Device](t, "nearest")(d[5].GetTopologyNearestGpus(nvml.TOPOLOGY_SINGLE)); len(near) != 1 || near[0] != d[4] {
		t.Errorf("nearest to GPU 5: %v", near)
	}
	for link := range 18 {
		if state := must[nvml.EnableState](t, "state")(d[7].GetNvLinkState(link)); state != nvml.FEATURE_ENABLED {
			t.Errorf("link %d: state %d", link, state)
		}
		kind := must[nvml.IntNvLinkDeviceType](t, "remote")(d[7].GetNvLinkRemoteDeviceType(link))
		if version := must[uint32](t, "version")(d[7].GetNvLinkVersion(link)); version != 6 || kind != nvml.NVLINK_DEVICE_TYPE_SWITCH {
			t.Errorf("link %d: version %d to %d", link, version, kind)
		}
		must[nvml.PciInfo](t, "remote address")(d[7].GetNvLinkRemotePciInfo(link))
	}
	_, r := d[7].GetNvLinkState(18)
	wantReturn(t, "a link too many", r, nvml.ERROR_INVALID_ARGUMENT)
	for card, first := range map[int]uint{0: 0, 3: 0, 4: 56, 7: 56} {
		set := must[[]uint](t, "affinity")(d[card].GetCpuAffinity(128))
		var cpus []int
		for i := range 128 {
			if set[i/64]>>(i%64)&1 == 1 {
				cpus = append(cpus, i)
			}
		}
		if len(cpus) != 56 || cpus[0] != int(first) || cpus[55] != int(first)+55 {
			t.Errorf("GPU %d: processors %v", card, cpus)
		}
	}
}

// TestTopologyBridges: pairs with NVLink bridges; links name the other card.
func TestTopologyBridges(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "4xH100-PCIE", Topology: "bridges"})
	d := devices(t, startNVML(t, "standin", socket))
	address := must[nvml.PciInfo](t, "address")(d[3].GetPciInfo())
	if remote := must[nvml.PciInfo](t, "remote")(d[2].GetNvLinkRemotePciInfo(11)); remote.BusId != address.BusId {
		t.Errorf("the other end of GPU 2's link: %s", cText(remote.BusId[:]))
	}
	for i, want := range []nvml.GpuP2PStatus{nvml.P2P_STATUS_NOT_SUPPORTED, nvml.P2P_STATUS_NOT_SUPPORTED, 255, nvml.P2P_STATUS_OK} {
		if i == 2 {
			continue
		}
		if status := must[nvml.GpuP2PStatus](t, "P2P")(d[2].GetP2PStatus(d[i], nvml.P2P_CAPS_INDEX_NVLINK)); status != want {
			t.Errorf("GPU 2 and %d: NVLink %d", i, status)
		}
	}
}

// Without a topology nothing is linked; one that cannot be is said so at the start.
func TestTopologyPlain(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "2xH100-80GB"})
	d := devices(t, startNVML(t, "standin", socket))
	_, r := d[0].GetNvLinkState(0)
	wantReturn(t, "a link that is not connected", r, nvml.ERROR_NOT_SUPPORTED)
	if level := must[nvml.GpuTopologyLevel](t, "ancestor")(d[0].GetTopologyCommonAncestor(d[1])); level != nvml.TOPOLOGY_NODE {
		t.Errorf("ancestor %d", level)
	}
	for _, topology := range []string{"dgx", "torus"} {
		err := Config{Cards: "2xL4", Topology: topology, Socket: "s"}.Validate()
		if err == nil || !strings.Contains(err.Error(), topology) {
			t.Errorf("%s of L4: %v", topology, err)
		}
	}
}
