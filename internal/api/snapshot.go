// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/share"
)

// SchemaSnapshot names the document of GET /v1/snapshot.
const SchemaSnapshot = "divvy.snapshot/v1"

// Snapshot is all that was measured at one moment; everything that shows figures reads it.
// Snapshots of one life are numbered. What is not known is null.
type Snapshot struct {
	Schema      string    `json:"schema"`
	Number      uint64    `json:"number"`
	Life        string    `json:"life"` // as in Version
	Time        time.Time `json:"time"`
	MonotonicNs uint64    `json:"monotonicNs"` // CLOCK_MONOTONIC of the host
	Simulated   bool      `json:"simulated"`

	Cards  []SnapshotCard  `json:"cards"`
	Shares []SnapshotShare `json:"shares"`
	Gone   []SnapshotGone  `json:"gone"`
	Agent  SnapshotAgent   `json:"agent"`
}

// SnapshotCard is one GPU.
type SnapshotCard struct {
	UUID          string `json:"uuid"`
	Name          string `json:"name"`
	PCIAddress    string `json:"pciAddress"`
	DriverVersion string `json:"driverVersion"`
	Vendor        string `json:"vendor"` // nvidia
	Simulated     bool   `json:"simulated"`
	Managed       bool   `json:"managed"` // the agent looks after it
	Answers       bool   `json:"answers"` // its driver does
	Health        string `json:"health"`  // as in Card
	HealthDetail  string `json:"healthDetail"`
	// SampledAt is when the driver was asked for what instruments say, and Instruments what it
	// answered; null: it never has.
	SampledAt   *time.Time   `json:"sampledAt"`
	Instruments *Instruments `json:"instruments"`

	MemoryBytes     uint64 `json:"memoryBytes"`
	UsedBytes       uint64 `json:"usedBytes"`
	BookedBytes     uint64 `json:"bookedBytes"`
	FreeToBookBytes uint64 `json:"freeToBookBytes"`
	UnledgeredBytes uint64 `json:"unledgeredBytes"`
	DriftBytes      int64  `json:"driftBytes"`
	CoresBooked     int    `json:"coresBooked"`
	Shares          int    `json:"shares"`
	// ShareTimeNs is the card time of all shares, those that are gone included, since this
	// agent began or they were made.
	ShareTimeNs uint64     `json:"shareTimeNs"`
	Time        *CardTime  `json:"time"`
	XIDs        []XIDCount `json:"xids"`
	// LastXID is the number of the one that was told last, 0: none was; null: not known, of one told to an older agent.
	LastXID *uint64 `json:"lastXid"`
	// Faults are XIDs that were told, by class, and Cordon what keeps new shares off the card.
	Faults      map[string]uint64 `json:"faults"`
	Cordon      *Cordon           `json:"cordon"`
	Unaccounted []CardUnaccounted `json:"strangers"`
}

// Instruments are what a driver measures of a card.
type Instruments struct {
	BusyPercent        *float64   `json:"busyPercent"`       // of the time some kernel ran, whoever's
	MemoryBusyPercent  *float64   `json:"memoryBusyPercent"` // of the time memory was read or written
	EncoderPercent     *float64   `json:"encoderPercent"`
	DecoderPercent     *float64   `json:"decoderPercent"`
	PCIeReplays        *float64   `json:"pcieReplays"` // since the driver was loaded
	PowerWatts         *float64   `json:"powerWatts"`
	PowerLimitWatts    *float64   `json:"powerLimitWatts"`
	EnergyJoules       *float64   `json:"energyJoules"`
	TemperatureC       *float64   `json:"temperatureC"`
	MemoryTemperatureC *float64   `json:"memoryTemperatureC"`
	SMClockMHz         *float64   `json:"smClockMHz"`
	MemoryClockMHz     *float64   `json:"memoryClockMHz"`
	Slowed             *Slowed    `json:"slowed"`
	SlowedFor          *SlowedFor `json:"slowedFor"`
	CorrectedErrors    *uint64    `json:"correctedErrors"` // of memory, since the driver was loaded
	UncorrectedErrors  *uint64    `json:"uncorrectedErrors"`
	Rows               *Rows      `json:"rows"`
	Devices            []Device   `json:"devices"` // MIG devices
}

// Slowed says what holds a card's clocks down.
type Slowed struct {
	Thermal  bool `json:"thermal"`
	Power    bool `json:"power"`
	Hardware bool `json:"hardware"`
}

// SlowedFor is for how long it was seen to, since this agent began.
type SlowedFor struct {
	ThermalNs  uint64 `json:"thermalNs"`
	PowerNs    uint64 `json:"powerNs"`
	HardwareNs uint64 `json:"hardwareNs"`
}

// Rows are the rows of a card's memory that were remapped.
type Rows struct {
	Correctable   uint64 `json:"correctable"`
	Uncorrectable uint64 `json:"uncorrectable"`
	Pending       bool   `json:"pending"`
	Failed        bool   `json:"failed"`
}

// Device is a MIG device.
type Device struct {
	ID          string `json:"id"`
	Profile     string `json:"profile"`
	Instance    int    `json:"instance"` // GPU instance, by the driver's number
	MemoryBytes uint64 `json:"memoryBytes"`
	UsedBytes   uint64 `json:"usedBytes"`
}

// XIDCount is how often the driver told of an XID.
type XIDCount struct {
	XID   uint64 `json:"xid"`
	Count uint64 `json:"count"`
}

// CardUnaccounted is a process that holds memory of a card which no ledger knows.
type CardUnaccounted struct {
	PID       int    `json:"pid"`
	Command   string `json:"command"` // the program's name alone
	UID       *int   `json:"uid"`
	Container string `json:"container"` // its control group; empty: not known
	Bytes     uint64 `json:"bytes"`
}

// SnapshotShare is a share, and what became of it on each of its cards.
type SnapshotShare struct {
	Name         string            `json:"name"`
	Unnamed      bool              `json:"unnamed"` // ephemeral, and its name was made up
	Tenant       string            `json:"tenant"`  // as given, else the owner's name
	OwnerUID     int               `json:"ownerUid"`
	Labels       share.Labels      `json:"labels"`
	Promised     bool              `json:"promised"` // it has a quota of memory
	Policy       share.Policy      `json:"policy"`
	CoresPercent int               `json:"coresPercent"`
	Weight       int               `json:"weight"`
	Priority     int               `json:"priority"`
	State        string            `json:"state"`
	Enforcement  share.Enforcement `json:"enforcement"`
	// EnforcementWhy says why no stronger level is in force; empty: nothing is in its way.
	EnforcementWhy string            `json:"enforcementWhy"`
	Created        time.Time         `json:"created"`
	Clients        int               `json:"clients"`
	Cards          []SnapshotSlot    `json:"cards"` // by number
	Processes      []SnapshotProcess `json:"processes"`
}

// SnapshotSlot is a share on one of its cards.
type SnapshotSlot struct {
	CardUUID     string            `json:"cardUuid"`
	LimitBytes   uint64            `json:"limitBytes"`
	UsedBytes    uint64            `json:"usedBytes"`
	PeakBytes    uint64            `json:"peakBytes"`
	ContextBytes uint64            `json:"contextBytes"`
	CardTimeNs   *uint64           `json:"cardTimeNs"` // null: nothing of ours measures it
	WaitNs       *uint64           `json:"waitNs"`
	Launches     *uint64           `json:"launches"`
	Denials      map[string]uint64 `json:"denials"` // by reason
	Overruns     uint64            `json:"overruns"`
	Gated        bool              `json:"gated"`     // its launches need a lease
	WaitingNs    *uint64           `json:"waitingNs"` // for how long the first that waits for one has; null: none does
	KernelNs     *uint64           `json:"kernelNs"`  // the longest that its processes launch lately, by their estimate
}

// SnapshotProcess is a process of a share.
type SnapshotProcess struct {
	PID     int       `json:"pid"`
	UID     int       `json:"uid"`
	Command string    `json:"command"` // the program's name alone
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	Denials uint64    `json:"denials"`
	// Enforcement is what holds it, which may be weaker than what holds its share.
	Enforcement share.Enforcement `json:"enforcement"`
	Cards       []ProcessSlot     `json:"cards"` // by number
}

// ProcessSlot is a process on one card of its share. What it says of its time is not
// corrected by what all turns add up to, as its share's is.
type ProcessSlot struct {
	UsedBytes    uint64  `json:"usedBytes"`
	PeakBytes    uint64  `json:"peakBytes"`
	ContextBytes uint64  `json:"contextBytes"`
	DriverBytes  *uint64 `json:"driverBytes"`
	CardTimeNs   uint64  `json:"cardTimeNs"`
	WaitNs       uint64  `json:"waitNs"`
	Launches     uint64  `json:"launches"`
	KernelNs     *uint64 `json:"kernelNs"` // as of SnapshotSlot
	// StuckNs is for how long nothing that it launched has ended, where the agent told of it
	// (client-stuck); null: it did not.
	StuckNs *uint64 `json:"stuckNs"`
}

// SnapshotGone is what shares did that are gone, since this agent began: a sum for each card,
// tenant, and whether their names were made up.
type SnapshotGone struct {
	CardUUID   string            `json:"cardUuid"`
	Tenant     string            `json:"tenant"`
	Unnamed    bool              `json:"unnamed"`
	CardTimeNs uint64            `json:"cardTimeNs"`
	WaitNs     uint64            `json:"waitNs"`
	Launches   uint64            `json:"launches"`
	Denials    map[string]uint64 `json:"denials"`
	Overruns   uint64            `json:"overruns"`
}

// SnapshotAgent is the agent itself.
type SnapshotAgent struct {
	Version       string            `json:"version"`
	PID           int               `json:"pid"`
	Clients       int               `json:"clients"`
	Events        map[string]uint64 `json:"events"` // by kind, as far as they are kept
	JournalFailed bool              `json:"journalFailed"`
	EventsFailed  bool              `json:"eventsFailed"`
	UsageFailed   bool              `json:"usageFailed"`
	UsageWritten  *time.Time        `json:"usageWritten"` // null: never
	HistoryFailed bool              `json:"historyFailed"`
	HistoryBytes  *uint64           `json:"historyBytes"` // of its files; null: there are none
	AuditFailed   bool              `json:"auditFailed"`
	AuditSequence *uint64           `json:"auditSequence"` // of the last line; null: there is none
	Requests      map[string]uint64 `json:"requests"`      // that were answered, by HTTP status
	QuantumNs     uint64            `json:"quantumNs"`     // the longest time for which a lease is given at once
	Turns         Turns             `json:"turns"`
}

// Turns are those of the agent's loop since it began: while one takes, all who ask the agent for something wait.
type Turns struct {
	Count     uint64 `json:"count"`
	Long      uint64 `json:"long"` // that took longer than a millisecond
	P99Ns     uint64 `json:"p99Ns"`
	LongestNs uint64 `json:"longestNs"`
}
