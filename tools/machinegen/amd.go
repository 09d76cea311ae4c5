// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// kfd writes a KFD node; properties are pairs.
func (m *machine) kfd(index int, id uint64, properties ...any) string {
	folder := fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d", index)
	m.put(folder, attributes{"gpu_id": fmt.Sprint(id), "properties": lines(properties...)})
	return folder
}

func lines(pairs ...any) string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, fmt.Sprintf("%v %v", pairs[i], pairs[i+1]))
	}
	return strings.Join(out, "\n")
}

func (m *machine) kfdCPU(index int) {
	m.kfd(index, 0, "cpu_cores_count", 96, "simd_count", 0, "mem_banks_count", 1, "vendor_id", 0, "device_id", 0, "location_id", 0, "drm_render_minor", 0)
}

func (m *machine) kfdLink(folder string, number, kind, from, to, weight, bandwidth int) {
	m.put(fmt.Sprintf("%s/io_links/%d", folder, number), attributes{"properties": lines(
		"type", kind, "version_major", 0, "version_minor", 0, "node_from", from, "node_to", to, "weight", weight,
		"min_bandwidth", bandwidth, "max_bandwidth", bandwidth, "flags", 1)})
}

func sensors(junction, watts, cap int) attributes {
	return attributes{
		"hwmon/hwmon3/name": "amdgpu", "hwmon/hwmon3/temp1_input": fmt.Sprint(junction - 4000), "hwmon/hwmon3/temp1_label": "edge",
		"hwmon/hwmon3/temp2_input": fmt.Sprint(junction), "hwmon/hwmon3/temp2_label": "junction",
		"hwmon/hwmon3/power1_average": fmt.Sprint(watts * 1_000_000), "hwmon/hwmon3/power1_cap": fmt.Sprint(cap * 1_000_000),
	}
}

func with(a, b attributes) attributes {
	for name, value := range b {
		a[name] = value
	}
	return a
}

// mi300xCPX: eight MI300X, each as eight compute partitions. Places, unique ids
// and render minors are those of a published capture; of the links between
// partitions only those of each card's first are written.
func mi300xCPX(comment string) *machine {
	m := newMachine(comment)
	const vram = 206141652992
	buses := []int{0x05, 0x27, 0x47, 0x65, 0x85, 0xa7, 0xc7, 0xe5}
	unique := []uint64{
		16404946649897475633, 2472748907779728154, 15565237874008425757, 12035684874187068538,
		15304831566906821053, 13644590235195043050, 13326531576914550249, 15931900197903628278,
	}
	m.kfdCPU(0)
	m.kfdCPU(1)
	m.put("sys/module/amdgpu", attributes{"version": "6.12.12"})
	for i, bus := range buses {
		root := bus - 3
		at := fmt.Sprintf("pci0000:%02x/0000:%02x:01.1/0000:%02x:00.0/0000:%02x:00.0/0000:%02x:00.0", root, root, root+1, root+2, bus)
		m.add(card{
			at: at, vendor: 0x1002, device: 0x74a1, class: 0x120000, driver: "amdgpu", node: i / 4, group: 20 + i,
			drm: []string{fmt.Sprintf("card%d", 1+8*i), fmt.Sprintf("renderD%d", 128+8*i)}, link: "32.0 GT/s x16",
			more: with(sensors(41000+500*i, 140, 750), attributes{
				"unique_id": fmt.Sprintf("%016x", unique[i]), "product_name": "AMD Instinct MI300X OAM",
				"mem_info_vram_total": fmt.Sprint(vram), "mem_info_vram_used": fmt.Sprint(297<<20 + map[int]int{0: 12 << 30}[i]), "gpu_busy_percent": "0",
				"current_compute_partition": "CPX", "available_compute_partition": "SPX, DPX, QPX, CPX",
				"current_memory_partition": "NPS4", "available_memory_partition": "NPS1, NPS4",
				"pp_dpm_sclk":         "0: 132Mhz *\n1: 2100Mhz",
				"ras/umc_err_count":   fmt.Sprintf("ue: 0\nce: %d", map[int]int{2: 7}[i]),
				"ras/xgmi_wafl_count": "ue: 0\nce: 0",
			}),
		})
		for p := range 8 {
			index := 2 + 8*i + p
			folder := m.kfd(index, uint64(10000+8*i+p),
				"cpu_cores_count", 0, "simd_count", 152, "mem_banks_count", 1, "array_count", 4, "simd_arrays_per_engine", 1,
				"cu_per_simd_array", 10, "simd_per_cu", 4, "gfx_target_version", 90402, "vendor_id", 4098, "device_id", 29857,
				"location_id", bus<<8|p, "domain", 0, "drm_render_minor", 128+8*i+p, "hive_id", uint64(15188982192727901047),
				"unique_id", unique[i], "num_xcc", 1)
			m.put(folder+"/mem_banks/0", attributes{"properties": lines("heap_type", 1, "size_in_bytes", vram/8, "flags", 0, "width", 8192)})
			m.kfdLink(folder, 0, 2, index, i/4, 20, 64000)
			for other := range 8 {
				if p == 0 && other != i {
					m.kfdLink(folder, 1+other, 11, index, 2+8*other, 15, 64000)
				}
			}
			if p > 0 {
				m.kfdLink(folder, 1, 11, index, 2+8*i, 13, 819200)
			}
		}
	}
	// One process computes on two partitions of the first card.
	m.put("proc/4711", attributes{"comm": "python3"})
	m.put("sys/class/kfd/kfd/proc/4711", attributes{"pasid": "32770", "vram_10000": fmt.Sprint(8 << 30), "vram_10001": fmt.Sprint(4 << 30)})
	return m
}

// mi210XGMI: two MI210 joined by XGMI, as in a published capture of eight.
func mi210XGMI(comment string) *machine {
	m := newMachine(comment)
	const vram = 68702699520
	m.kfdCPU(0)
	m.put("sys/module/amdgpu", attributes{"version": "6.3.6"})
	for i, bus := range []int{0x43, 0x63} {
		m.add(card{
			at:     fmt.Sprintf("pci0000:%02x/0000:%02x:01.1/0000:%02x:00.0/0000:%02x:00.0/0000:%02x:00.0", bus-3, bus-3, bus-2, bus-1, bus),
			vendor: 0x1002, device: 0x740f, class: 0x038000, driver: "amdgpu", node: 0, group: 11 + i,
			drm: []string{fmt.Sprintf("card%d", i+1), fmt.Sprintf("renderD%d", 128+i)}, link: "16.0 GT/s x16",
			more: with(sensors(38000, 41, 300), attributes{
				"unique_id": []string{"51274bc5dc0a9f43", "1901f2d4b4b1ee06"}[i], "mem_info_vram_total": fmt.Sprint(vram),
				"mem_info_vram_used": fmt.Sprint([]int{21 << 30, 10 << 20}[i]), "gpu_busy_percent": fmt.Sprint([]int{97, 0}[i]),
				"ras/umc_err_count": "ue: 0\nce: 0",
			}),
		})
		folder := m.kfd(1+i, uint64(51000+i),
			"cpu_cores_count", 0, "simd_count", 416, "simd_per_cu", 4, "gfx_target_version", 90010, "vendor_id", 4098, "device_id", 29711,
			"location_id", bus<<8, "domain", 0, "drm_render_minor", 128+i, "hive_id", uint64(12609507387757274807), "num_xcc", 1)
		m.put(folder+"/mem_banks/0", attributes{"properties": lines("heap_type", 1, "size_in_bytes", vram, "flags", 0, "width", 4096)})
		m.kfdLink(folder, 0, 2, 1+i, 0, 20, 32000)
		m.kfdLink(folder, 1, 11, 1+i, 2-i, 15, 50000)
	}
	m.process(900, "rocm_train", "/dev/dri/renderD128", "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t33\ndrm-pdev:\t0000:43:00.0\ndrm-memory-vram:\t1024 KiB")
	m.put("sys/class/kfd/kfd/proc/900", attributes{"pasid": "32771", "vram_51000": fmt.Sprint(20 << 30)})
	return m
}
