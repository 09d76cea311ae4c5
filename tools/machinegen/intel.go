// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// flex170: a Flex 170 under the i915 driver of Intel's data-centre packages,
// with two of its 31 virtual functions on, which nobody uses.
func flex170(comment string) *machine {
	m := newMachine(comment)
	const at = "pci0000:4a/0000:4a:02.0/0000:4b:00.0/0000:4c:01.0/0000:4d:00.0"
	folder := m.add(card{
		at: at, vendor: 0x8086, device: 0x56c0, class: 0x038000, driver: "i915", node: 0, group: 60,
		drm: []string{"card1", "renderD128"}, link: "16.0 GT/s x16",
		more: attributes{
			"sriov_totalvfs": "31", "sriov_numvfs": "2", "sriov_drivers_autoprobe": "1", "hwmon/hwmon4/name": "i915", "hwmon/hwmon4/energy1_input": "88142000000",
			"hwmon/hwmon4/power1_max": "150000000", "hwmon/hwmon4/temp1_input": "52000",
		},
	})
	m.put(folder+"/drm/card1", attributes{
		"lmem_total_bytes": "17179869184", "lmem_avail_bytes": "13958643712", "gt_act_freq_mhz": "2050",
		"gt/gt0/rps_act_freq_mhz": "2050", "gt/gt0/throttle_reason_status": "1", "gt/gt0/throttle_reason_pl1": "1",
		"gt/gt0/throttle_reason_thermal": "0",
	})
	for n := 1; n <= 31; n++ {
		m.put(fmt.Sprintf("%s/drm/card1/prelim_iov/vf%d/gt", folder, n), attributes{
			"lmem_quota": fmt.Sprint(map[bool]int{true: 4 << 30}[n <= 2]), "ggtt_quota": "1073741824", "contexts_quota": "1024", "doorbells_quota": "64",
			"exec_quantum_ms": "20", "preempt_timeout_us": "40000",
		})
	}
	for n := 1; n <= 2; n++ {
		vf := fmt.Sprintf("pci0000:4a/0000:4a:02.0/0000:4b:00.0/0000:4c:01.0/0000:4d:00.%d", n)
		vfFolder := m.add(card{at: vf, vendor: 0x8086, device: 0x56c0, class: 0x038000, driver: []string{"vfio-pci", "i915"}[n-1], node: 0, group: 60 + n})
		m.links[vfFolder+"/physfn"] = "../0000:4d:00.0"
		m.links[fmt.Sprintf("%s/virtfn%d", folder, n-1)] = fmt.Sprintf("../0000:4d:00.%d", n)
	}
	return m
}

// battlemage: an Arc Pro B60 under xe of Linux 7.0, with three of its virtual
// functions on and provisioned, and an older Arc card without any.
func battlemage(comment string) *machine {
	m := newMachine(comment)
	const at = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:03:00.0"
	folder := m.add(card{
		at: at, vendor: 0x8086, device: 0xe211, class: 0x030000, driver: "xe", node: -1, group: 18,
		drm: []string{"card0", "renderD128"}, link: "32.0 GT/s x8",
		more: attributes{
			"sriov_totalvfs": "7", "sriov_numvfs": "3", "sriov_drivers_autoprobe": "0", "tile0/physical_vram_size_bytes": "25669140480",
			"tile0/gt0/freq0/act_freq": "1200", "tile0/gt0/freq0/throttle/status": "0", "tile0/gt0/freq0/throttle/reason_pl1": "0",
			"tile0/gt0/freq0/throttle/reason_thermal": "0", "hwmon/hwmon2/name": "xe", "hwmon/hwmon2/temp2_input": "47000",
			"hwmon/hwmon2/power1_cap": "200000000",
		},
	})
	m.links[folder+"/sriov_admin/pf/device"] = "../../../0000:03:00.0"
	m.put(folder+"/sriov_admin/pf/profile", attributes{"exec_quantum_ms": "10", "preempt_timeout_us": "20000", "sched_priority": "low [normal] high"})
	for n := 1; n <= 7; n++ {
		quota := "0"
		if n <= 3 {
			vf := fmt.Sprintf("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:03:00.%d", n)
			vfFolder := m.add(card{at: vf, vendor: 0x8086, device: 0xe211, class: 0x030000, driver: []string{"vfio-pci", "vfio-pci", ""}[n-1], node: -1, group: 18 + n})
			m.links[vfFolder+"/physfn"] = "../0000:03:00.0"
			m.links[fmt.Sprintf("%s/virtfn%d", folder, n-1)] = fmt.Sprintf("../0000:03:00.%d", n)
			quota = fmt.Sprint(6 << 30)
		}
		m.put(fmt.Sprintf("%s/sriov_admin/vf%d/profile", folder, n), attributes{
			"exec_quantum_ms": "20", "preempt_timeout_us": "40000", "sched_priority": "[low] normal high", "vram_quota": quota,
		})
	}
	m.add(card{
		at: "pci0000:00/0000:00:06.0/0000:08:00.0", vendor: 0x8086, device: 0x56a0, class: 0x030000, driver: "xe", node: -1, group: 30,
		drm: []string{"card1", "renderD129"}, link: "16.0 GT/s x16",
		more: attributes{"tile0/physical_vram_size_bytes": "17179869184", "survivability_mode": "Capability Info: 0x0"},
	})
	m.process(3300, "qemu-system-x86", "/dev/vfio/19", "pos:\t0") // has the first function
	m.process(2200, "ollama", "/dev/dri/renderD128", "pos:\t0\ndrm-driver:\txe\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t9 GiB\ndrm-resident-vram0:\t8 GiB\ndrm-resident-gtt:\t64 MiB")
	return m
}

// gvtgLaptop: a UHD Graphics 620 whose i915 offers GVT-g, one virtual card made.
func gvtgLaptop(comment string) *machine {
	m := newMachine(comment)
	folder := m.add(card{
		at: "pci0000:00/0000:00:02.0", vendor: 0x8086, device: 0x5917, class: 0x030000, driver: "i915", node: -1, group: 0,
		drm: []string{"card0", "renderD128"}, more: attributes{"boot_vga": "1"},
	})
	m.put("proc", attributes{"meminfo": "MemTotal:       16303428 kB\nMemFree:         1204312 kB"})
	m.put(folder+"/drm/card0", attributes{"gt_act_freq_mhz": "300"})
	for _, t := range []struct{ id, free, low, high, resolution, weight string }{
		{"i915-GVTg_V5_4", "0", "128MB", "512MB", "1920x1200", "4"}, {"i915-GVTg_V5_8", "1", "64MB", "384MB", "1024x768", "2"},
	} {
		m.put(folder+"/mdev_supported_types/"+t.id, attributes{
			"available_instances": t.free, "device_api": "vfio-pci",
			"description": "low_gm_size: " + t.low + "\nhigh_gm_size: " + t.high + "\nfence: 4\nresolution: " + t.resolution + "\nweight: " + t.weight,
		})
	}
	const uuid = "a297db4a-f4c2-11e6-90f6-d3b88d6c9525"
	m.mediated(folder, "i915-GVTg_V5_4", uuid, 3)
	return m
}
