// SPDX-License-Identifier: Apache-2.0

package gpu

// Reader is one vendor's way of telling about its cards. Cards go by PCI
// address. What cannot be read is an unknown Fact, not an error; the only
// error is ErrNoCard.
type Reader interface {
	// Inventory lists the cards with what does not change while they run.
	Inventory() []Device
	// Topology lists the fabric between cards (NVLink, XGMI); PCIe is not told
	// here, it follows from the devices' places.
	Topology() []Link
	// Use says what is in use now.
	Use(address string) (Use, error)
	// Health says how the card is now.
	Health(address string) (Condition, error)
	// Capabilities says what the card can do: sharing, partitions, passthrough.
	Capabilities(address string) ([]Capability, error)
	// Events tells what has happened since a state, and the state now. The first
	// call, with a zero Snapshot, tells nothing.
	Events(since Snapshot) ([]Event, Snapshot)
}

// Vendors that have a reader of their own; descriptors name others.
const (
	VendorNVIDIA = "nvidia"
	VendorAMD    = "amd"
	VendorIntel  = "intel"
)

// Device is one card, as the kernel and its driver describe it.
type Device struct {
	Address       string       `json:"address"` // 0000:c1:00.0
	Vendor        string       `json:"vendor"`
	VendorID      string       `json:"vendorId"` // 0x1002
	DeviceID      string       `json:"deviceId"`
	Name          string       `json:"name"`
	UUID          Fact[string] `json:"uuid"` // the vendor's own lasting name
	Serial        Fact[string] `json:"serial"`
	Architecture  Fact[string] `json:"architecture"`
	Driver        Fact[string] `json:"driver"`
	DriverVersion Fact[string] `json:"driverVersion"`
	// MemoryBytes is what programs can get.
	MemoryBytes Fact[uint64] `json:"memoryBytes"`
	// MemoryShared says that it is the host's, whose programs use it too.
	MemoryShared bool `json:"memoryShared,omitempty"`
	// Virtual says that this is a virtual function whose physical one is not
	// here: a card as a guest sees it.
	Virtual    Fact[bool]   `json:"virtual"`
	NUMANode   Fact[int]    `json:"numaNode"`
	IOMMUGroup Fact[int]    `json:"iommuGroup"`
	Root       Fact[string] `json:"root"` // of the PCIe tree: pci0000:c0
	// Bridges leads from the root port to the card, addresses.
	Bridges  []string `json:"bridges"`
	PCIe     PCIe     `json:"pcie"`
	Nodes    []string `json:"nodes"`    // device files a program needs
	Resource string   `json:"resource"` // the name Kubernetes plugins use

	Partitions   []Partition  `json:"partitions"`
	Capabilities []Capability `json:"can"`
	Use          Use          `json:"use"`
	Health       Condition    `json:"health"`
}

// PCIe is the state of a card's link to its host.
type PCIe struct {
	Speed    Fact[string] `json:"speed"` // "16.0 GT/s"
	Width    Fact[int]    `json:"width"`
	MaxSpeed Fact[string] `json:"maxSpeed"`
	MaxWidth Fact[int]    `json:"maxWidth"`
}

// Kinds of Partition.
const (
	PartitionCompute = "compute" // an AMD compute partition
	PartitionVF      = "vf"      // an SR-IOV virtual function
	PartitionMdev    = "mdev"    // a mediated device: vGPU, GVT-g
	PartitionMIG     = "mig"
)

// Partition is a part of a card that hardware or its driver has made.
type Partition struct {
	Kind        string       `json:"kind"`
	ID          string       `json:"id"`   // address, UUID or number: what it goes by
	Name        string       `json:"name"` // its type or profile
	Driver      Fact[string] `json:"driver"`
	MemoryBytes Fact[uint64] `json:"memoryBytes"`
	Units       Fact[int]    `json:"units"` // compute units, where they are told
	Nodes       []string     `json:"nodes"`
	// Settings are attributes that can be set, by the kernel's own names.
	Settings map[string]string `json:"settings,omitempty"`
	MIG      *MIGPlace         `json:"mig,omitempty"` // of a MIG device
}

// MIGPlace is where a MIG device is on its card, by the driver's numbers.
type MIGPlace struct {
	GPU     int `json:"gpuInstance"`
	Compute int `json:"computeInstance"`
}

// Answers to "can it".
const (
	Yes     = "yes"
	No      = "no"
	Unknown = "unknown"
)

// Names of capabilities.
const (
	CanShare             = "share"
	CanReplicas          = "replicas"
	CanMPS               = "mps"
	CanMIG               = "mig"
	CanVGPU              = "vgpu"
	CanGVTg              = "gvt-g"
	CanSRIOV             = "sriov"
	CanPassthrough       = "passthrough"
	CanComputePartitions = "compute-partition"
	CanMemoryPartitions  = "memory-partition"
)

// Capability is one way of dividing or handing on a card.
type Capability struct {
	Name    string   `json:"name"`
	Can     string   `json:"can"` // yes, no, unknown
	Current string   `json:"current,omitempty"`
	Options []string `json:"options,omitempty"`
	Reason  string   `json:"reason,omitempty"` // why not, or what it takes
}

// Use is what is in use on a card.
type Use struct {
	MemoryUsedBytes Fact[uint64]  `json:"memoryUsedBytes"`
	BusyPercent     Fact[float64] `json:"busyPercent"` // of the time something ran
	PowerWatts      Fact[float64] `json:"powerWatts"`
	PowerLimitWatts Fact[float64] `json:"powerLimitWatts"`
	TemperatureC    Fact[float64] `json:"temperatureC"`
	ClockMHz        Fact[float64] `json:"clockMHz"`
	Holders         []Holder      `json:"holders"` // processes that have it open
}

// Holder is a process that has a card open.
type Holder struct {
	PID         int          `json:"pid"`
	Command     string       `json:"command"`
	MemoryBytes Fact[uint64] `json:"memoryBytes"`
}

// Condition is what may be wrong with a card.
type Condition struct {
	CorrectedErrors   Fact[uint64] `json:"correctedErrors"`
	UncorrectedErrors Fact[uint64] `json:"uncorrectedErrors"`
	Throttled         Fact[string] `json:"throttled"` // reasons, empty: none
	// Troubles are plain sentences; none means that nothing is known to be wrong.
	Troubles []string `json:"troubles"`
}

// Link is fabric between two cards.
type Link struct {
	A         string       `json:"a"` // addresses
	B         string       `json:"b"`
	Kind      string       `json:"kind"` // xgmi, nvlink, xelink
	Lanes     Fact[int]    `json:"lanes"`
	Bandwidth Fact[uint64] `json:"bandwidthMBps"`
}
