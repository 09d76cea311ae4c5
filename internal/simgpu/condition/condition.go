// SPDX-License-Identifier: Apache-2.0

// Package condition is how simulated cards are: temperature, power, clocks, the
// counters of errors, and the faults that were injected. It is pure: time and
// what a card has done are arguments. Who is hit by a fault is told (Effect),
// not carried out. docs/simulated-faults.md is its table for people.
//
//	reading := cards.Observe(0, now, busyNS, percent)
//	effect, err := cards.Inject(now, condition.Fault{Card: 0, Kind: condition.XID, XID: 31})
package condition

import (
	"errors"
	"fmt"
	"math"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
)

var (
	// ErrInvalid says that there is no such fault, or not on this card.
	ErrInvalid = errors.New("no such fault")
	// ErrNotFound says that there is no such card.
	ErrNotFound = errors.New("no such GPU")
)

// The model of heat and power. A card at rest has the idle temperature; one that
// is always busy comes to full, with the time constant of heating. Power is that
// of rest plus the busy part of what is left to powerAtFull of the limit.
const (
	IdleCelsius     = 32
	fullCelsius     = 78
	SlowdownCelsius = 90 // the hardware slows down
	ShutdownCelsius = 95
	hotterMemory    = 6 // degrees that memory is above the chip
	heatingNS       = 20e9
	powerAtFull     = 0.92 // of the limit
	brakedPower     = 0.60 // of the limit, while the power brake is on
)

// How long kernels take under a slowdown, in percent.
const (
	thermalSlowPercent = 200
	powerSlowPercent   = 150
)

// Reasons why clocks are not at their highest, by their NVML numbers.
const (
	ReasonIdle       uint64 = 0x1
	ReasonHWSlowdown uint64 = 0x8
	ReasonHWThermal  uint64 = 0x40
	ReasonPowerBrake uint64 = 0x80
)

// memory that is stacked on the chip keeps its clock, and its card P0, at rest.
const stackedMemoryBits = 1024

const idleMemoryMHz = 405

// Counters of errors.
type Counters struct {
	CorrectedVolatile, CorrectedAggregate     uint64
	UncorrectedVolatile, UncorrectedAggregate uint64
	RetiredSingle, RetiredDouble              uint32 // pages
	RetiredPending                            bool
	RemappedCorrectable, RemappedUncorrected  uint32 // rows
	RemapPending, RemapFailed                 bool
	PCIeReplays                               uint32
}

// Reading is how a card is at a moment.
type Reading struct {
	Counters
	Lost, NeedsReset bool
	Percent          int // of the last half second
	MemoryPercent    int
	Celsius          int
	MemoryCelsius    int
	PowerMW          uint32
	EnergyMJ         uint64
	SMClockMHz       uint32
	MemoryClockMHz   uint32
	Performance      int // P-state
	FanPercent       int
	Reasons          uint64
	SlowPercent      int
	LastIncident     uint64
}

// state is one card.
type state struct {
	model   silicon.Model
	atNS    int64
	busyNS  int64
	celsius float64
	energy  float64 // mJ
	percent int
	active  bool // as last told in an incident

	counters         Counters
	lost, needsReset bool
	thermal, power   bool
}

// Cards is the condition of all cards of one machine. One goroutine owns it.
type Cards struct {
	cards     []state
	faults    []Record
	incidents []Incident
	lastFault uint64
	last      uint64 // incident
	room      int
}

// New returns healthy cards at rest; room bounds what is remembered of faults
// and of incidents, each.
func New(cards []silicon.Card, now int64, room int) *Cards {
	c := &Cards{room: room}
	for _, card := range cards {
		c.cards = append(c.cards, state{model: card.Model, atNS: now, celsius: IdleCelsius})
	}
	return c
}

func (c *Cards) find(card int) (*state, error) {
	if card < 0 || card >= len(c.cards) {
		return nil, fmt.Errorf("GPU %d: %w", card, ErrNotFound)
	}
	return &c.cards[card], nil
}

// Observe takes a card to now, until when it was busy for busyNS in all and for
// percent of the last half second, and reads its instruments.
func (c *Cards) Observe(card int, now, busyNS int64, percent int) (Reading, error) {
	s, err := c.find(card)
	if err != nil {
		return Reading{}, err
	}
	s.heat(now, busyNS)
	s.percent = percent
	if active := percent > 0; active != s.active {
		s.active = active
		if !s.lost {
			c.happened(now, card, 0, IncidentClock, 0)
			if s.deepIdle() {
				c.happened(now, card, 0, IncidentPState, 0)
			}
		}
	}
	r := s.read()
	r.LastIncident = c.last
	return r, nil
}

// heat integrates power and temperature since the last look. Between two looks
// only the sum of busy time is known, and it is taken as even.
func (s *state) heat(now, busyNS int64) {
	elapsed := float64(now - s.atNS)
	if elapsed <= 0 {
		return
	}
	part := min(max(float64(busyNS-s.busyNS)/elapsed, 0), 1)
	s.energy += s.powerMW(part) * elapsed / 1e9
	target := IdleCelsius + (fullCelsius-IdleCelsius)*part
	s.celsius = target + (s.celsius-target)*math.Exp(-elapsed/heatingNS)
	s.atNS, s.busyNS = now, max(busyNS, s.busyNS)
}

// powerMW is what the card takes when it is busy for a part of the time.
func (s *state) powerMW(part float64) float64 {
	if s.lost {
		return 0
	}
	idle, limit := float64(s.model.IdleWatts)*1000, float64(s.model.PowerLimitWatts)*1000
	if s.power {
		limit *= brakedPower
	}
	return idle + part*max(powerAtFull*limit-idle, 0)
}

// deepIdle says whether the card lowers its memory clock and P-state at rest.
func (s *state) deepIdle() bool { return s.model.BusWidthBits < stackedMemoryBits }

// slowPercent is how long kernels take.
func (s *state) slowPercent() int {
	slow := 100
	if s.thermal {
		slow = thermalSlowPercent
	}
	if s.power {
		slow = max(slow, powerSlowPercent)
	}
	return slow
}

func (s *state) read() Reading {
	r := Reading{
		Counters: s.counters, Lost: s.lost, NeedsReset: s.needsReset, Percent: s.percent, MemoryPercent: s.percent / 2,
		Celsius: int(math.Round(s.celsius)), PowerMW: uint32(s.powerMW(float64(s.percent) / 100)), EnergyMJ: uint64(s.energy),
		SMClockMHz: s.model.IdleClockMHz, MemoryClockMHz: s.model.MemoryClockMHz, SlowPercent: s.slowPercent(),
	}
	switch {
	case s.percent > 0:
		r.SMClockMHz = s.model.MaxClockMHz * 100 / uint32(r.SlowPercent)
	default:
		r.Reasons |= ReasonIdle
		if s.deepIdle() {
			r.MemoryClockMHz, r.Performance = idleMemoryMHz, 8
		}
	}
	if s.thermal {
		r.Reasons |= ReasonHWSlowdown | ReasonHWThermal
		r.Celsius = max(r.Celsius, SlowdownCelsius+1)
	}
	if s.power {
		r.Reasons |= ReasonHWSlowdown | ReasonPowerBrake
	}
	r.MemoryCelsius = r.Celsius + hotterMemory
	r.FanPercent = min(max(30+2*(r.Celsius-40), 30), 100)
	return r
}

// Slow is how long kernels take on a card, in percent of what they should.
func (c *Cards) Slow(card int) int { return c.cards[card].slowPercent() }

// State says whether a card has fallen off the bus, and whether it needs a reset
// before anything can use it.
func (c *Cards) State(card int) (lost, needsReset bool) {
	return c.cards[card].lost, c.cards[card].needsReset
}
