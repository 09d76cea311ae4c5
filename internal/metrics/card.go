// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"

	"github.com/divvy-gpu/divvy/internal/api"
)

// Sources of figures.
const (
	fromInventory = "inventory"
	fromDriver    = "driver"
	fromCore      = "ledger"
	fromPages     = "programs"
	fromArbiter   = "arbiter"
	fromSampler   = "sampler"
	fromEvents    = "events"
	fromHealth    = "health"
	fromAgent     = "agent"
)

// healths are the states of which each GPU has a series.
var healths = []string{"ok", "degraded", "unshareable", "needs-reset", "lost", "unresponsive"}

// ofCards is a metric with one series a GPU.
func ofCards(value func(api.SnapshotCard) float64) func(*reading, emit) {
	return func(r *reading, emit emit) {
		for _, c := range r.Cards {
			emit(value(c), c.UUID)
		}
	}
}

// ofInstruments is one that the driver may not tell.
func ofInstruments(value func(*api.Instruments) *float64, factor float64) func(*reading, emit) {
	return func(r *reading, emit emit) {
		r.instruments(func(c api.SnapshotCard, i *api.Instruments) {
			if v := value(i); v != nil {
				emit(*v*factor, c.UUID)
			}
		})
	}
}

// instruments calls f for each GPU whose driver has told something.
func (r *reading) instruments(f func(c api.SnapshotCard, i *api.Instruments)) {
	for _, c := range r.Cards {
		if c.Instruments != nil {
			f(c, c.Instruments)
		}
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }

func cardMetrics() []metric {
	return []metric{
		{"card_info", "Which GPU it is; always 1.", []string{"name", "pci_address", "driver", "vendor", "simulated", "managed"}, fromInventory,
			func(r *reading, emit emit) {
				for _, c := range r.Cards {
					emit(1, c.UUID, c.Name, c.PCIAddress, c.DriverVersion, c.Vendor, strconv.FormatBool(c.Simulated), strconv.FormatBool(c.Managed))
				}
			}},
		{"card_answers", "Whether its driver answers.", nil, fromDriver, ofCards(func(c api.SnapshotCard) float64 { return truth(c.Answers) })},
		{"card_state", "1 for the state that it is in, 0 for the others.", []string{"state"}, fromDriver, func(r *reading, emit emit) {
			for _, c := range r.Cards {
				for _, state := range healths {
					emit(truth(c.Health == state), c.UUID, state)
				}
			}
		}},
		{"card_memory_total_bytes", "Memory that programs can use.", nil, fromDriver, ofCards(func(c api.SnapshotCard) float64 { return float64(c.MemoryBytes) })},
		{"card_memory_used_bytes", "Memory in use, by the driver's account.", nil, fromDriver, ofCards(func(c api.SnapshotCard) float64 { return float64(c.UsedBytes) })},
		{"card_memory_booked_bytes", "Memory that shares were promised.", nil, fromCore, ofCards(func(c api.SnapshotCard) float64 { return float64(c.BookedBytes) })},
		{"card_memory_free_to_book_bytes", "Memory that a new share can be promised.", nil, fromCore,
			ofCards(func(c api.SnapshotCard) float64 { return float64(c.FreeToBookBytes) })},
		{"card_memory_unledgered_bytes", "Memory of processes that no ledger knows of.", nil, fromDriver,
			ofCards(func(c api.SnapshotCard) float64 { return float64(c.UnledgeredBytes) })},
		{"card_drift_bytes", "By how much the driver's figure of attached processes is above the ledger's.", nil, fromDriver,
			ofCards(func(c api.SnapshotCard) float64 { return float64(c.DriftBytes) })},
		{"card_cores_booked_ratio", "Part of its time that fixed shares were promised.", nil, fromCore,
			ofCards(func(c api.SnapshotCard) float64 { return float64(c.CoresBooked) / 100 })},
		{"card_shares", "Shares on it.", nil, fromCore, ofCards(func(c api.SnapshotCard) float64 { return float64(c.Shares) })},
		{"card_busy_ratio", "Part of the time in which some kernel ran, whoever's: no measure of what a share used.", nil, fromDriver,
			ofInstruments(func(i *api.Instruments) *float64 { return i.BusyPercent }, 0.01)},
		{"card_share_seconds_total", "GPU time of all its shares, those that are gone included.", nil, fromSampler,
			ofCards(func(c api.SnapshotCard) float64 { return seconds(c.ShareTimeNs) })},
		{"card_power_watts", "Power that it draws.", nil, fromDriver, ofInstruments(func(i *api.Instruments) *float64 { return i.PowerWatts }, 1)},
		{"card_power_limit_watts", "The most that it may draw.", nil, fromDriver, ofInstruments(func(i *api.Instruments) *float64 { return i.PowerLimitWatts }, 1)},
		{"card_energy_joules_total", "Energy since its driver was loaded.", nil, fromDriver, ofInstruments(func(i *api.Instruments) *float64 { return i.EnergyJoules }, 1)},
		{"card_temperature_celsius", "Temperature of the chip.", nil, fromDriver, ofInstruments(func(i *api.Instruments) *float64 { return i.TemperatureC }, 1)},
		{"card_memory_temperature_celsius", "Temperature of its memory.", nil, fromDriver,
			ofInstruments(func(i *api.Instruments) *float64 { return i.MemoryTemperatureC }, 1)},
		{"card_sm_clock_hertz", "Clock of its processors.", nil, fromDriver, ofInstruments(func(i *api.Instruments) *float64 { return i.SMClockMHz }, 1e6)},
		{"card_memory_clock_hertz", "Clock of its memory.", nil, fromDriver, ofInstruments(func(i *api.Instruments) *float64 { return i.MemoryClockMHz }, 1e6)},
		{"card_slowed_seconds_total", "For how long it was seen with its clocks held down: thermal, power, hardware.", []string{"reason"}, fromSampler,
			func(r *reading, emit emit) {
				r.instruments(func(c api.SnapshotCard, i *api.Instruments) {
					if s := i.SlowedFor; s != nil {
						emit(seconds(s.ThermalNs), c.UUID, "thermal")
						emit(seconds(s.PowerNs), c.UUID, "power")
						emit(seconds(s.HardwareNs), c.UUID, "hardware")
					}
				})
			}},
		{"card_ecc_errors_total", "Errors in its memory since its driver was loaded: corrected, uncorrected.", []string{"kind"}, fromDriver,
			func(r *reading, emit emit) {
				r.instruments(func(c api.SnapshotCard, i *api.Instruments) {
					if n := i.CorrectedErrors; n != nil {
						emit(float64(*n), c.UUID, "corrected")
					}
					if n := i.UncorrectedErrors; n != nil {
						emit(float64(*n), c.UUID, "uncorrected")
					}
				})
			}},
		{"card_remapped_rows", "Rows of its memory that were remapped, for corrected or uncorrected errors.", []string{"kind"}, fromDriver,
			func(r *reading, emit emit) {
				r.instruments(func(c api.SnapshotCard, i *api.Instruments) {
					if i.Rows != nil {
						emit(float64(i.Rows.Correctable), c.UUID, "corrected")
						emit(float64(i.Rows.Uncorrectable), c.UUID, "uncorrected")
					}
				})
			}},
		{"card_remap_pending", "Whether rows are remapped at the next reset.", nil, fromDriver, ofRows(func(rows api.Rows) bool { return rows.Pending })},
		{"card_remap_failed", "Whether rows could not be remapped.", nil, fromDriver, ofRows(func(rows api.Rows) bool { return rows.Failed })},
		{"card_cordoned", "Whether it takes no new share because somebody, or a fault, cordoned it.", nil, fromHealth,
			ofCards(func(c api.SnapshotCard) float64 { return truth(c.Cordon != nil) })},
		{"card_cordoned_by_fault", "Whether a fault of that class cordoned it, and that has not ended.", []string{"class"}, fromHealth, func(r *reading, emit emit) {
			for _, c := range r.Cards {
				for class := range inOrder(c.Faults) {
					emit(truth(c.Cordon != nil && c.Cordon.Automatic && c.Cordon.Class == class), c.UUID, class)
				}
			}
		}},
		{"card_faults_total", "XIDs that the driver reported, by what they mean.", []string{"class"}, fromHealth, func(r *reading, emit emit) {
			for _, c := range r.Cards {
				for class, n := range inOrder(c.Faults) {
					emit(float64(n), c.UUID, class)
				}
			}
		}},
		{"card_xid_errors_total", "XIDs that the driver reported.", []string{"xid"}, fromDriver, func(r *reading, emit emit) {
			for _, c := range r.Cards {
				for _, x := range c.XIDs {
					emit(float64(x.Count), c.UUID, strconv.FormatUint(x.XID, 10))
				}
			}
		}},
		{"card_sample_timestamp_seconds", "When the agent last asked the driver for what it measures; does not change while the driver does not answer.", nil, fromSampler,
			func(r *reading, emit emit) {
				for _, c := range r.Cards {
					if c.SampledAt != nil {
						emit(float64(c.SampledAt.UnixNano())/1e9, c.UUID)
					}
				}
			}},
		{"partition_memory_total_bytes", "Memory of a MIG device.", []string{"id", "profile"}, fromDriver, ofDevices(func(d api.Device) uint64 { return d.MemoryBytes })},
		{"partition_memory_used_bytes", "Memory in use of a MIG device.", []string{"id", "profile"}, fromDriver, ofDevices(func(d api.Device) uint64 { return d.UsedBytes })},
	}
}

func ofRows(is func(api.Rows) bool) func(*reading, emit) {
	return func(r *reading, emit emit) {
		r.instruments(func(c api.SnapshotCard, i *api.Instruments) {
			if i.Rows != nil {
				emit(truth(is(*i.Rows)), c.UUID)
			}
		})
	}
}

func ofDevices(bytes func(api.Device) uint64) func(*reading, emit) {
	return func(r *reading, emit emit) {
		r.instruments(func(c api.SnapshotCard, i *api.Instruments) {
			for _, d := range i.Devices {
				emit(float64(bytes(d)), c.UUID, d.ID, d.Profile)
			}
		})
	}
}
