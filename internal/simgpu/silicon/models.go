// SPDX-License-Identifier: Apache-2.0

package silicon

// MiB is the unit in which drivers report the size of a card.
const MiB = 1 << 20

// Architecture is a generation of cards, by its NVML number.
type Architecture uint32

// The numbers are those of NVML_DEVICE_ARCH_*.
const (
	Pascal    Architecture = 4
	Volta     Architecture = 5
	Turing    Architecture = 6
	Ampere    Architecture = 7
	Ada       Architecture = 8
	Hopper    Architecture = 9
	Blackwell Architecture = 10
)

// Brand is a product line, by its NVML number.
type Brand uint32

// The numbers are those of NVML_BRAND_*.
const (
	BrandTesla   Brand = 2
	BrandGeForce Brand = 5
	BrandRTX     Brand = 13
	BrandNVIDIA  Brand = 14
)

// Multiprocessor holds what follows from a compute capability.
type Multiprocessor struct {
	Cores           uint32
	Threads         uint32
	Blocks          uint32
	Registers       uint32
	SharedBytes     uint32 // of a multiprocessor
	SharedBlockMost uint32 // bytes one block can ask for
}

// Model is a product: what all its cards have in common.
type Model struct {
	Key             string   // in a SPEC
	Aliases         []string // accepted in a SPEC besides
	Name            string   // as the driver reports it
	Brand           Brand
	Architecture    Architecture
	Major, Minor    uint32 // compute capability
	Multiprocessors uint32
	TotalMiB        uint64 // as NVML reports it
	ReservedMiB     uint64 // the driver's own part of it, about
	BAR1MiB         uint64
	L2KiB           uint64
	BusWidthBits    uint32
	MaxClockMHz     uint32
	IdleClockMHz    uint32
	MemoryClockMHz  uint32
	PCIDevice       uint32
	PCISubsystem    uint32
	PCIeGeneration  uint32
	PowerLimitWatts uint32
	IdleWatts       uint32
	ECC             bool
	MIG             bool // can be partitioned
	Unified         bool // its memory is the host's, and the driver's NVML tells nothing of it
	CopyEngines     uint32
}

// Models returns the table of known products. Memory sizes, clocks and ids are
// those that drivers of the 535 branch and later report; the driver's own part
// varies a little with its version.
func Models() []Model {
	return []Model{
		{Key: "B200", Name: "NVIDIA B200", Brand: BrandNVIDIA, Architecture: Blackwell, Major: 10,
			Multiprocessors: 148, TotalMiB: 183359, ReservedMiB: 720, BAR1MiB: 262144, L2KiB: 129024, BusWidthBits: 8192,
			MaxClockMHz: 1965, IdleClockMHz: 120, MemoryClockMHz: 3996, PCIDevice: 0x2901, PCISubsystem: 0x1999,
			PCIeGeneration: 5, PowerLimitWatts: 1000, IdleWatts: 140, ECC: true, MIG: true, CopyEngines: 4},
		{Key: "H200", Aliases: []string{"H200-141GB"}, Name: "NVIDIA H200", Brand: BrandNVIDIA, Architecture: Hopper, Major: 9,
			Multiprocessors: 132, TotalMiB: 143771, ReservedMiB: 613, BAR1MiB: 262144, L2KiB: 51200, BusWidthBits: 6144,
			MaxClockMHz: 1980, IdleClockMHz: 345, MemoryClockMHz: 3201, PCIDevice: 0x2335, PCISubsystem: 0x18be,
			PCIeGeneration: 5, PowerLimitWatts: 700, IdleWatts: 75, ECC: true, MIG: true, CopyEngines: 3},
		{Key: "H100-80GB", Aliases: []string{"H100", "H100-SXM"}, Name: "NVIDIA H100 80GB HBM3", Brand: BrandNVIDIA, Architecture: Hopper, Major: 9,
			Multiprocessors: 132, TotalMiB: 81559, ReservedMiB: 470, BAR1MiB: 131072, L2KiB: 51200, BusWidthBits: 5120,
			MaxClockMHz: 1980, IdleClockMHz: 345, MemoryClockMHz: 2619, PCIDevice: 0x2330, PCISubsystem: 0x16c1,
			PCIeGeneration: 5, PowerLimitWatts: 700, IdleWatts: 70, ECC: true, MIG: true, CopyEngines: 3},
		{Key: "H100-PCIE", Name: "NVIDIA H100 PCIe", Brand: BrandNVIDIA, Architecture: Hopper, Major: 9,
			Multiprocessors: 114, TotalMiB: 81559, ReservedMiB: 470, BAR1MiB: 131072, L2KiB: 51200, BusWidthBits: 5120,
			MaxClockMHz: 1755, IdleClockMHz: 345, MemoryClockMHz: 1593, PCIDevice: 0x2331, PCISubsystem: 0x1626,
			PCIeGeneration: 5, PowerLimitWatts: 350, IdleWatts: 46, ECC: true, MIG: true, CopyEngines: 3},
		{Key: "A100-80GB", Aliases: []string{"A100-SXM4-80GB"}, Name: "NVIDIA A100-SXM4-80GB", Brand: BrandNVIDIA, Architecture: Ampere, Major: 8,
			Multiprocessors: 108, TotalMiB: 81920, ReservedMiB: 669, BAR1MiB: 131072, L2KiB: 40960, BusWidthBits: 5120,
			MaxClockMHz: 1410, IdleClockMHz: 210, MemoryClockMHz: 1593, PCIDevice: 0x20b2, PCISubsystem: 0x147f,
			PCIeGeneration: 4, PowerLimitWatts: 400, IdleWatts: 60, ECC: true, MIG: true, CopyEngines: 3},
		{Key: "A100-40GB", Aliases: []string{"A100", "A100-SXM4-40GB"}, Name: "NVIDIA A100-SXM4-40GB", Brand: BrandNVIDIA, Architecture: Ampere, Major: 8,
			Multiprocessors: 108, TotalMiB: 40960, ReservedMiB: 424, BAR1MiB: 65536, L2KiB: 40960, BusWidthBits: 5120,
			MaxClockMHz: 1410, IdleClockMHz: 210, MemoryClockMHz: 1215, PCIDevice: 0x20b0, PCISubsystem: 0x134f,
			PCIeGeneration: 4, PowerLimitWatts: 400, IdleWatts: 52, ECC: true, MIG: true, CopyEngines: 3},
		{Key: "L40S", Aliases: []string{"L40S-48GB"}, Name: "NVIDIA L40S", Brand: BrandNVIDIA, Architecture: Ada, Major: 8, Minor: 9,
			Multiprocessors: 142, TotalMiB: 46068, ReservedMiB: 597, BAR1MiB: 65536, L2KiB: 98304, BusWidthBits: 384,
			MaxClockMHz: 2520, IdleClockMHz: 210, MemoryClockMHz: 9001, PCIDevice: 0x26b9, PCISubsystem: 0x1851,
			PCIeGeneration: 4, PowerLimitWatts: 350, IdleWatts: 33, ECC: true, CopyEngines: 2},
		{Key: "L4", Aliases: []string{"L4-24GB"}, Name: "NVIDIA L4", Brand: BrandNVIDIA, Architecture: Ada, Major: 8, Minor: 9,
			Multiprocessors: 58, TotalMiB: 23034, ReservedMiB: 518, BAR1MiB: 32768, L2KiB: 49152, BusWidthBits: 192,
			MaxClockMHz: 2040, IdleClockMHz: 210, MemoryClockMHz: 6251, PCIDevice: 0x27b8, PCISubsystem: 0x16ca,
			PCIeGeneration: 4, PowerLimitWatts: 72, IdleWatts: 12, ECC: true, CopyEngines: 2},
		{Key: "A10", Aliases: []string{"A10-24GB"}, Name: "NVIDIA A10", Brand: BrandNVIDIA, Architecture: Ampere, Major: 8, Minor: 6,
			Multiprocessors: 72, TotalMiB: 23028, ReservedMiB: 512, BAR1MiB: 32768, L2KiB: 6144, BusWidthBits: 384,
			MaxClockMHz: 1695, IdleClockMHz: 210, MemoryClockMHz: 6251, PCIDevice: 0x2236, PCISubsystem: 0x1482,
			PCIeGeneration: 4, PowerLimitWatts: 150, IdleWatts: 16, ECC: true, CopyEngines: 2},
		{Key: "T4", Aliases: []string{"T4-16GB"}, Name: "Tesla T4", Brand: BrandTesla, Architecture: Turing, Major: 7, Minor: 5,
			Multiprocessors: 40, TotalMiB: 15360, ReservedMiB: 258, BAR1MiB: 256, L2KiB: 4096, BusWidthBits: 256,
			MaxClockMHz: 1590, IdleClockMHz: 300, MemoryClockMHz: 5001, PCIDevice: 0x1eb8, PCISubsystem: 0x12a2,
			PCIeGeneration: 3, PowerLimitWatts: 70, IdleWatts: 9, ECC: true, CopyEngines: 3},
		{Key: "V100-32GB", Aliases: []string{"V100-SXM2-32GB"}, Name: "Tesla V100-SXM2-32GB", Brand: BrandTesla, Architecture: Volta, Major: 7,
			Multiprocessors: 80, TotalMiB: 32768, ReservedMiB: 269, BAR1MiB: 32768, L2KiB: 6144, BusWidthBits: 4096,
			MaxClockMHz: 1530, IdleClockMHz: 135, MemoryClockMHz: 877, PCIDevice: 0x1db5, PCISubsystem: 0x1249,
			PCIeGeneration: 3, PowerLimitWatts: 300, IdleWatts: 41, ECC: true, CopyEngines: 5},
		{Key: "V100-16GB", Aliases: []string{"V100", "V100-SXM2-16GB"}, Name: "Tesla V100-SXM2-16GB", Brand: BrandTesla, Architecture: Volta, Major: 7,
			Multiprocessors: 80, TotalMiB: 16384, ReservedMiB: 224, BAR1MiB: 16384, L2KiB: 6144, BusWidthBits: 4096,
			MaxClockMHz: 1530, IdleClockMHz: 135, MemoryClockMHz: 877, PCIDevice: 0x1db1, PCISubsystem: 0x1212,
			PCIeGeneration: 3, PowerLimitWatts: 300, IdleWatts: 40, ECC: true, CopyEngines: 5},
		{Key: "RTX4090", Aliases: []string{"RTX4090-24GB"}, Name: "NVIDIA GeForce RTX 4090", Brand: BrandGeForce, Architecture: Ada, Major: 8, Minor: 9,
			Multiprocessors: 128, TotalMiB: 24564, ReservedMiB: 367, BAR1MiB: 32768, L2KiB: 73728, BusWidthBits: 384,
			MaxClockMHz: 3105, IdleClockMHz: 210, MemoryClockMHz: 10501, PCIDevice: 0x2684, PCISubsystem: 0x16f3,
			PCIeGeneration: 4, PowerLimitWatts: 450, IdleWatts: 20, CopyEngines: 2},
		// The two that follow are the only ones for which wheels of PyTorch, CuPy and JAX have PTX.
		{Key: "RTXPRO6000", Aliases: []string{"RTXPRO6000-96GB"}, Name: "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", Brand: BrandRTX, Architecture: Blackwell, Major: 12,
			Multiprocessors: 188, TotalMiB: 97887, ReservedMiB: 640, BAR1MiB: 131072, L2KiB: 131072, BusWidthBits: 512,
			MaxClockMHz: 3090, IdleClockMHz: 180, MemoryClockMHz: 14001, PCIDevice: 0x2bb1, PCISubsystem: 0x204b,
			PCIeGeneration: 5, PowerLimitWatts: 600, IdleWatts: 15, CopyEngines: 2},
		{Key: "RTX5090", Aliases: []string{"RTX5090-32GB"}, Name: "NVIDIA GeForce RTX 5090", Brand: BrandGeForce, Architecture: Blackwell, Major: 12,
			Multiprocessors: 170, TotalMiB: 32607, ReservedMiB: 492, BAR1MiB: 32768, L2KiB: 98304, BusWidthBits: 512,
			MaxClockMHz: 3090, IdleClockMHz: 180, MemoryClockMHz: 14001, PCIDevice: 0x2b85, PCISubsystem: 0x2057,
			PCIeGeneration: 5, PowerLimitWatts: 575, IdleWatts: 20, CopyEngines: 2},
		// Of a machine whose memory is one; the total is that of such a machine, none of which was here.
		{Key: "GB10", Name: "NVIDIA GB10", Brand: BrandNVIDIA, Architecture: Blackwell, Major: 12, Minor: 1,
			Multiprocessors: 48, TotalMiB: 124610, ReservedMiB: 640, BAR1MiB: 256, L2KiB: 24576, BusWidthBits: 256,
			MaxClockMHz: 2418, IdleClockMHz: 208, MemoryClockMHz: 8533, PCIDevice: 0x2e12, PCISubsystem: 0x21ec,
			PCIeGeneration: 5, PowerLimitWatts: 140, IdleWatts: 10, Unified: true, CopyEngines: 2},
		// Without tensor cores: the kernels that builds of llama.cpp have for PTX 6.1 use none.
		{Key: "P40", Aliases: []string{"P40-24GB"}, Name: "Tesla P40", Brand: BrandTesla, Architecture: Pascal, Major: 6, Minor: 1,
			Multiprocessors: 30, TotalMiB: 23040, ReservedMiB: 121, BAR1MiB: 32768, L2KiB: 3072, BusWidthBits: 384,
			MaxClockMHz: 1531, IdleClockMHz: 544, MemoryClockMHz: 3615, PCIDevice: 0x1b38, PCISubsystem: 0x11d9,
			PCIeGeneration: 3, PowerLimitWatts: 250, IdleWatts: 10, ECC: true, CopyEngines: 2},
	}
}

// Multiprocessor gives the resources of one multiprocessor of the model.
func (m Model) Multiprocessor() Multiprocessor {
	p := Multiprocessor{Cores: 64, Threads: 2048, Blocks: 32, Registers: 65536}
	switch {
	case m.Major == 12:
		p.Cores, p.Threads, p.Blocks, p.SharedBytes, p.SharedBlockMost = 128, 1536, 24, 102400, 101376
	case m.Major >= 9:
		p.Cores, p.SharedBytes, p.SharedBlockMost = 128, 233472, 232448
	case m.Major == 8 && m.Minor == 0:
		p.SharedBytes, p.SharedBlockMost = 167936, 166912
	case m.Major == 8 && m.Minor == 9:
		p.Cores, p.Threads, p.Blocks, p.SharedBytes, p.SharedBlockMost = 128, 1536, 24, 102400, 101376
	case m.Major == 8:
		p.Cores, p.Threads, p.Blocks, p.SharedBytes, p.SharedBlockMost = 128, 1536, 16, 102400, 101376
	case m.Major == 6:
		p.Cores, p.SharedBytes, p.SharedBlockMost = 128, 98304, 49152
	case m.Minor == 5:
		p.Threads, p.Blocks, p.SharedBytes, p.SharedBlockMost = 1024, 16, 65536, 65536
	default:
		p.SharedBytes, p.SharedBlockMost = 98304, 98304
	}
	return p
}
