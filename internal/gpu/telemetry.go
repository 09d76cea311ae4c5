// SPDX-License-Identifier: Apache-2.0

package gpu

// Telemetry is what the instruments of a card say. What the driver does not tell is not
// known; no figure is made up of others.
type Telemetry struct {
	BusyPercent        Fact[float64] // of the time some kernel ran
	MemoryBusyPercent  Fact[float64] // of the time memory was read or written
	EncoderPercent     Fact[float64]
	DecoderPercent     Fact[float64]
	PCIeReplays        Fact[float64] // since the driver was loaded
	PowerWatts         Fact[float64]
	PowerLimitWatts    Fact[float64]
	EnergyJoules       Fact[float64] // since the driver was loaded
	TemperatureC       Fact[float64]
	MemoryTemperatureC Fact[float64]
	SMClockMHz         Fact[float64]
	MemoryClockMHz     Fact[float64]
	Slowed             Fact[Slowed]
	// Errors in memory since the driver was loaded, or the card was reset.
	CorrectedErrors, UncorrectedErrors Fact[uint64]
	Rows                               Fact[Rows]
	Devices                            []DeviceUse // MIG devices
}

// Slowed says what holds the clocks of a card down now.
type Slowed struct{ Thermal, Power, Hardware bool }

// Rows are the rows of memory that were remapped.
type Rows struct {
	Correctable, Uncorrectable uint64
	Pending, Failed            bool
}

// DeviceUse is the memory of a MIG device.
type DeviceUse struct {
	ID, Profile           string
	Instance              int // GPU instance, by the driver's number
	TotalBytes, UsedBytes uint64
}
