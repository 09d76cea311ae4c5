// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// nvidiaCard writes what the driver shows of a card in /proc.
func (m *machine) nvidiaCard(address, model, uuid string, minor int) {
	m.put("proc/driver/nvidia/gpus/"+address, attributes{"information": fmt.Sprintf(
		"Model: \t\t %s\nIRQ:   \t\t 148\nGPU UUID: \t %s\nVideo BIOS: \t 95.02.66.00.02\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No",
		model, uuid, address, minor)})
	m.files[fmt.Sprintf("dev/nvidia%d", minor)] = ""
	m.files["dev/nvidiactl"] = ""
}

// manager is the program that comes with the driver of vGPU hosts.
func (m *machine) manager() {
	m.put("usr/lib/nvidia", attributes{"sriov-manage": "#!/bin/sh\n# NVIDIA's program; tests play it.\nexit 1"})
}

func (m *machine) mdevType(folder, id, name, description, free string) {
	m.put(folder+"/mdev_supported_types/"+id, attributes{"name": name, "description": description, "available_instances": free, "device_api": "vfio-pci"})
}

// nvidiaMdev: a vGPU host of a kernel before 6.8: a T4 with mediated devices of
// its own, and an A40 with them on its virtual functions.
func nvidiaMdev(comment string) *machine {
	m := newMachine(comment)
	m.put("sys/module/nvidia", attributes{"version": "535.183.04"})
	m.manager()
	t4 := m.add(card{
		at: "pci0000:3a/0000:3a:00.0/0000:3b:00.0", vendor: 0x10de, device: 0x1eb8, class: 0x030200, driver: "nvidia", node: 0, group: 33,
		link: "8.0 GT/s x16",
	})
	m.nvidiaCard("0000:3b:00.0", "Tesla T4", "GPU-11111111-0e0e-4b4b-8c8c-000000000001", 0)
	m.mdevType(t4, "nvidia-230", "GRID T4-1Q", "num_heads=4, frl_config=60, framebuffer=1024M, max_resolution=5120x2880, max_instance=16", "0")
	m.mdevType(t4, "nvidia-231", "GRID T4-2Q", "num_heads=4, frl_config=60, framebuffer=2048M, max_resolution=7680x4320, max_instance=8", "7")
	m.mediated(t4, "nvidia-231", "0b6e1f0e-53a4-4a3a-9a1e-5d3f4a0f1c01", 90)
	m.process(5100, "qemu-system-x86", "/dev/vfio/90", "pos:\t0")

	a40 := m.add(card{
		at: "pci0000:5d/0000:5d:00.0/0000:5e:00.0", vendor: 0x10de, device: 0x2235, class: 0x030200, driver: "nvidia", node: 0, group: 34,
		link: "16.0 GT/s x16", more: attributes{"sriov_totalvfs": "32", "sriov_numvfs": "2"},
	})
	m.nvidiaCard("0000:5e:00.0", "NVIDIA A40", "GPU-22222222-0e0e-4b4b-8c8c-000000000002", 1)
	for n := range 2 {
		at := fmt.Sprintf("pci0000:5d/0000:5d:00.0/0000:5e:00.%d", 4+n)
		vf := m.add(card{at: at, vendor: 0x10de, device: 0x2235, class: 0x030200, driver: "nvidia", node: 0, group: 35 + n})
		m.links[vf+"/physfn"] = "../0000:5e:00.0"
		m.links[fmt.Sprintf("%s/virtfn%d", a40, n)] = fmt.Sprintf("../0000:5e:00.%d", 4+n)
		free := []string{"0", "1"}[n]
		m.mdevType(vf, "nvidia-558", "NVIDIA A40-2Q", "num_heads=4, frl_config=60, framebuffer=2048M, max_resolution=7680x4320, max_instance=24", free)
		m.mdevType(vf, "nvidia-563", "NVIDIA A40-12Q", "num_heads=4, frl_config=60, framebuffer=12288M, max_resolution=7680x4320, max_instance=4", "0")
		if n == 0 {
			m.mediated(vf, "nvidia-558", "7c9e6679-7425-40de-944b-e07fc1f90ae7", 91)
		}
	}
	return m
}

// nvidiaVFIO: a vGPU host of a newer kernel, where types are attributes of the
// virtual functions: an H200 with one vGPU made.
func nvidiaVFIO(comment string) *machine {
	m := newMachine(comment)
	m.put("sys/module/nvidia", attributes{"version": "570.133.10"})
	m.manager()
	const at = "pci0000:40/0000:40:01.1/0000:41:00.0"
	pf := m.add(card{
		at: at, vendor: 0x10de, device: 0x2335, class: 0x030200, driver: "nvidia", node: 1, group: 51, link: "32.0 GT/s x16",
		more: attributes{"sriov_totalvfs": "28", "sriov_numvfs": "4"},
	})
	m.nvidiaCard("0000:41:00.0", "NVIDIA H200", "GPU-33333333-0e0e-4b4b-8c8c-000000000003", 0)
	for n := range 4 {
		vf := m.add(card{
			at: fmt.Sprintf("pci0000:40/0000:40:01.1/0000:41:00.%d", 4+n), vendor: 0x10de, device: 0x2335, class: 0x030200, driver: "nvidia", node: 1, group: 52 + n,
		})
		m.links[vf+"/physfn"] = "../0000:41:00.0"
		m.links[fmt.Sprintf("%s/virtfn%d", pf, n)] = fmt.Sprintf("../0000:41:00.%d", 4+n)
		current, creatable := "0", "1428 : NVIDIA H200X-141C\n1414 : NVIDIA H200X-1-18C"
		if n == 1 {
			current, creatable = "1414", ""
		}
		m.put(vf+"/nvidia", attributes{"current_vgpu_type": current, "creatable_vgpu_types": creatable})
	}
	return m
}

// nvidiaOff: the same kind of host after it was started: an L40S whose functions
// are off, and another that a program of the host has open.
func nvidiaOff(comment string) *machine {
	m := newMachine(comment)
	m.put("sys/module/nvidia", attributes{"version": "570.133.10"})
	m.manager()
	for n, bus := range []string{"21", "31"} {
		m.add(card{
			at: fmt.Sprintf("pci0000:20/0000:20:0%d.1/0000:%s:00.0", n+1, bus), vendor: 0x10de, device: 0x26b9, class: 0x030200, driver: "nvidia", node: 0, group: 20 + n,
			link: "16.0 GT/s x16", more: attributes{"sriov_totalvfs": "32", "sriov_numvfs": "0"},
		})
		m.nvidiaCard("0000:"+bus+":00.0", "NVIDIA L40S", fmt.Sprintf("GPU-55555555-0e0e-4b4b-8c8c-00000000000%d", n+5), n)
	}
	m.process(2200, "dcgm", "/dev/nvidia1", "pos:\t0")
	return m
}

// mixed: an H100 PCIe for sharing, one handed to VFIO whose group also holds a
// network card, an MI210, and the board's own graphics, which is no GPU to share.
func mixed(comment string) *machine {
	m := newMachine(comment)
	m.put("proc/driver/nvidia", attributes{"version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"})
	m.put("usr/share/misc", attributes{"pci.ids": "10de  NVIDIA Corporation\n\t2331  GH100 [H100 PCIe]\n1a03  ASPEED Technology, Inc.\n\t2000  ASPEED Graphics Family"})
	m.add(card{
		at: "pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0", vendor: 0x10de, device: 0x2331, class: 0x030200,
		driver: "nvidia", node: 0, group: 40, link: "32.0 GT/s x16",
	})
	m.nvidiaCard("0000:1a:00.0", "NVIDIA H100 PCIe", "GPU-44444444-0e0e-4b4b-8c8c-000000000004", 0)
	m.process(3100, "vllm", "/dev/nvidia0", "pos:\t0\nflags:\t0100002")
	m.add(card{
		at: "pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:01.0/0000:1b:00.0", vendor: 0x10de, device: 0x2331, class: 0x030200,
		driver: "vfio-pci", node: 0, group: 41, link: "32.0 GT/s x16",
	})
	m.add(card{at: "pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:02.0/0000:1c:00.0", vendor: 0x15b3, device: 0x1021, class: 0x020000, driver: "mlx5_core", node: 0, group: 41})
	m.add(card{
		at: "pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:00.0/0000:9a:00.0", vendor: 0x1002, device: 0x740f, class: 0x038000,
		driver: "amdgpu", node: 1, group: 70, drm: []string{"card1", "renderD128"}, link: "16.0 GT/s x16",
		more: with(sensors(35000, 40, 300), attributes{"mem_info_vram_total": "68702699520", "mem_info_vram_used": "10485760", "gpu_busy_percent": "0"}),
	})
	m.add(card{at: "pci0000:00/0000:00:1c.0/0000:02:00.0/0000:03:00.0", vendor: 0x1a03, device: 0x2000, class: 0x030000, driver: "ast", node: 0, group: 2, drm: []string{"card0"}})
	return m
}

// others: cards that only descriptors know.
func others(comment string) *machine {
	m := newMachine(comment)
	for i := range 2 {
		m.add(card{
			at: fmt.Sprintf("pci0000:30/0000:30:0%d.0/0000:3%d:00.0", 1+i, 1+i), vendor: 0x1ed5, device: 0x0222, class: 0x030000,
			driver: "mtgpu", node: 0, group: 10 + i, link: "32.0 GT/s x16",
		})
		m.add(card{at: fmt.Sprintf("pci0000:30/0000:30:0%d.0/0000:3%d:00.1", 1+i, 1+i), vendor: 0x1ed5, device: 0x02ff, class: 0x040300, node: 0, group: 10 + i})
		m.files[fmt.Sprintf("dev/mtgpu.%d", i)] = ""
	}
	m.process(77, "musa_app", "/dev/mtgpu.1", "pos:\t0")
	m.add(card{at: "pci0000:50/0000:50:01.0/0000:51:00.0", vendor: 0x1d94, device: 0x54b7, class: 0x038000, driver: "hycu", node: 1, group: 20, drm: []string{"card1", "renderD129"}})
	m.add(card{at: "pci0000:50/0000:50:07.1/0000:52:00.3", vendor: 0x1d94, device: 0x145c, class: 0x0c0330, driver: "xhci_hcd", node: 1, group: 21})
	m.files["dev/kfd"], m.files["dev/mkfd"] = "", ""
	m.add(card{at: "pci0000:60/0000:60:01.0/0000:61:00.0", vendor: 0x1e3e, device: 0x0001, class: 0x120000, node: 1, group: 22})
	return m
}

// noGPU: a server with the board's own graphics and a network card.
func noGPU(comment string) *machine {
	m := newMachine(comment)
	m.add(card{at: "pci0000:00/0000:00:1c.0/0000:02:00.0/0000:03:00.0", vendor: 0x1a03, device: 0x2000, class: 0x030000, driver: "ast", node: 0, group: -1, drm: []string{"card0"}})
	m.add(card{at: "pci0000:00/0000:00:02.0/0000:01:00.0", vendor: 0x8086, device: 0x1521, class: 0x020000, driver: "igb", node: 0, group: -1})
	return m
}
