// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
)

// Kind says what a fault is.
type Kind uint32

// Kinds of faults.
const (
	XID Kind = iota + 1
	ECCSingle
	ECCDouble
	Thermal
	Power
	CardLost
)

var kindNames = [...]string{XID: "xid", ECCSingle: "ecc-single", ECCDouble: "ecc-double", Thermal: "thermal", Power: "power", CardLost: "card-lost"}

func (k Kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// Kinds lists the names of all kinds.
func Kinds() []string { return append([]string(nil), kindNames[1:]...) }

// ParseKind reads the name of a kind.
func ParseKind(name string) (Kind, error) {
	for k := XID; int(k) < len(kindNames); k++ {
		if kindNames[k] == name {
			return k, nil
		}
	}
	return 0, fmt.Errorf("%q: known are %s: %w", name, strings.Join(Kinds(), ", "), ErrInvalid)
}

// Scope says whose contexts a fault ends.
type Scope int

// Scopes.
const (
	Nobody Scope = iota
	Victim       // one process's
	OnCard       // all on the card
)

// What a context answers after a fault: CUresult numbers.
const (
	errorDeviceUnavailable = 46
	errorECCUncorrectable  = 214
	errorIllegalAddress    = 700
	errorLaunchTimeout     = 702
	errorLaunchFailed      = 719
	errorUnknown           = 999
)

// Xid is an error number of the driver, and what it means to programs.
type Xid struct {
	Number uint32
	Name   string
	Scope  Scope
	Error  uint32 // CUresult, unless Nobody
	Reset  bool   // the card needs one afterwards
	Lost   bool   // it has fallen off the bus
}

// Xids lists the numbers that can be injected, rising. What they mean follows
// NVIDIA's public catalog (docs.nvidia.com/deploy/xid-errors); which error a
// program sees is that of the CUDA documentation where it says so.
func Xids() []Xid {
	return []Xid{
		{Number: 13, Name: "graphics engine exception", Scope: Victim, Error: errorLaunchFailed},
		{Number: 31, Name: "memory page fault", Scope: Victim, Error: errorIllegalAddress},
		{Number: 32, Name: "invalid or corrupted push buffer", Scope: Victim, Error: errorLaunchFailed},
		{Number: 43, Name: "channel reset", Scope: Victim, Error: errorLaunchFailed},
		{Number: 45, Name: "channels preempted, after other errors", Scope: Victim, Error: errorLaunchFailed},
		{Number: 48, Name: "double-bit ECC error", Scope: Nobody},
		{Number: 62, Name: "internal micro-controller halt", Scope: OnCard, Error: errorUnknown, Reset: true},
		{Number: 63, Name: "row remap or page retirement recorded", Scope: Nobody},
		{Number: 64, Name: "row remap or page retirement failed", Scope: Nobody},
		{Number: 79, Name: "fallen off the bus", Scope: OnCard, Error: errorDeviceUnavailable, Lost: true},
		{Number: 92, Name: "high rate of single-bit ECC errors", Scope: Nobody},
		{Number: 94, Name: "contained ECC error", Scope: Victim, Error: errorECCUncorrectable},
		{Number: 95, Name: "uncontained ECC error", Scope: OnCard, Error: errorECCUncorrectable, Reset: true},
		{Number: 109, Name: "context switch timeout", Scope: Victim, Error: errorLaunchTimeout},
		{Number: 119, Name: "GSP timeout", Scope: OnCard, Error: errorUnknown, Reset: true},
		{Number: 120, Name: "GSP error", Scope: OnCard, Error: errorUnknown, Reset: true},
	}
}

func findXid(number uint32) (Xid, error) {
	var known []string
	for _, x := range Xids() {
		if x.Number == number {
			return x, nil
		}
		known = append(known, fmt.Sprint(x.Number))
	}
	return Xid{}, fmt.Errorf("XID %d: known are %s: %w", number, strings.Join(known, ", "), ErrInvalid)
}

// eccXids need memory with ECC.
func (x Xid) ecc() bool {
	switch x.Number {
	case 48, 63, 64, 92, 94, 95:
		return true
	}
	return false
}

// Fault is what is asked for.
type Fault struct {
	Card  int
	Kind  Kind
	XID   uint32 // of kind XID
	Count uint64 // of errors; 0 is 1
}

// Effect is what a fault does to programs.
type Effect struct {
	Scope Scope
	Error uint32 // CUresult that the contexts answer from now on
}

// maxCount bounds how many errors one fault counts.
const maxCount = 1 << 32

// Look says what a fault would do, without doing it.
func (c *Cards) Look(f Fault) (Effect, error) {
	s, err := c.find(f.Card)
	if err != nil {
		return Effect{}, err
	}
	if s.lost {
		return Effect{}, fmt.Errorf("GPU %d has fallen off the bus: %w", f.Card, ErrInvalid)
	}
	if f.Count > maxCount {
		return Effect{}, fmt.Errorf("%d errors at once: %w", f.Count, ErrInvalid)
	}
	needsECC := f.Kind == ECCSingle || f.Kind == ECCDouble
	var effect Effect
	switch f.Kind {
	case XID:
		x, err := findXid(f.XID)
		if err != nil {
			return Effect{}, err
		}
		needsECC = x.ecc()
		effect = Effect{x.Scope, x.Error}
	case ECCDouble:
		effect = Effect{OnCard, errorECCUncorrectable}
		if s.contains() {
			effect.Scope = Victim
		}
	case CardLost:
		effect = Effect{OnCard, errorDeviceUnavailable}
	case ECCSingle, Thermal, Power:
	default:
		return Effect{}, fmt.Errorf("%v: %w", f.Kind, ErrInvalid)
	}
	if needsECC && !s.model.ECC {
		return Effect{}, fmt.Errorf("GPU %d has no ECC: %w", f.Card, ErrInvalid)
	}
	return effect, nil
}

// contains says whether an uncorrectable error ends only the process that met
// it: cards with stacked memory, from Ampere on.
func (s *state) contains() bool {
	return s.model.Architecture >= silicon.Ampere && s.model.BusWidthBits >= stackedMemoryBits
}

// Inject carries a fault out on the card: counters, state and incidents. victim
// and hit say whom it ended, for the record.
func (c *Cards) Inject(now int64, f Fault, victim Party, hit int) (Record, error) {
	effect, err := c.Look(f)
	if err != nil {
		return Record{}, err
	}
	s := &c.cards[f.Card]
	count := max(f.Count, 1)
	r := Record{TimeNS: now, Card: f.Card, Kind: f.Kind, Party: victim, Hit: hit, Error: effect.Error}
	if effect.Scope == Nobody {
		r.Error = 0
	}
	raise := func(xid uint32) {
		if r.XID == 0 {
			r.XID = xid
		}
		c.happened(now, f.Card, victim.PID, IncidentXID, uint64(xid))
	}
	switch f.Kind {
	case ECCSingle:
		s.corrected(count)
		c.happened(now, f.Card, 0, IncidentSingleBit, 0)
	case ECCDouble:
		c.doubleBit(now, s, f.Card, victim, count, raise)
		r.Active = true // the repair is pending
	case Thermal:
		s.thermal, r.Active = true, true
		c.happened(now, f.Card, 0, IncidentClock, 0)
	case Power:
		s.power, r.Active = true, true
		c.happened(now, f.Card, 0, IncidentClock, 0)
	case CardLost:
		s.lost, r.Active = true, true
		raise(79)
	case XID:
		r.Active = c.xid(now, s, f, count, raise)
	}
	c.lastFault++
	r.Number = c.lastFault
	c.faults = bounded(append(c.faults, r), c.room)
	return r, nil
}

// Report notes a fault that a program's own kernel has caused; only XIDs that end
// one process can be.
func (c *Cards) Report(now int64, card int, xid uint32, victim Party, cudaError uint32) error {
	s, err := c.find(card)
	if err != nil {
		return err
	}
	x, err := findXid(xid)
	if err != nil {
		return err
	}
	if x.Scope != Victim || x.ecc() || s.lost {
		return fmt.Errorf("XID %d is no program's fault: %w", xid, ErrInvalid)
	}
	c.happened(now, card, victim.PID, IncidentXID, uint64(xid))
	c.lastFault++
	c.faults = bounded(append(c.faults, Record{Number: c.lastFault, TimeNS: now, Card: card, Kind: XID, XID: xid, Party: victim, Hit: 1,
		Error: cudaError, Reported: true}), c.room)
	return nil
}

func (s *state) corrected(count uint64) {
	s.counters.CorrectedVolatile += count
	s.counters.CorrectedAggregate += count
}

func (s *state) uncorrected(count uint64) {
	s.counters.UncorrectedVolatile += count
	s.counters.UncorrectedAggregate += count
}

// doubleBit is an uncorrectable error in memory, as the driver tells of it.
func (c *Cards) doubleBit(now int64, s *state, card int, victim Party, count uint64, raise func(uint32)) {
	s.uncorrected(count)
	c.happened(now, card, victim.PID, IncidentDoubleBit, 0)
	raise(48)
	s.repair(uint32(min(count, 1<<16)))
	raise(63)
	switch {
	case s.contains():
		raise(94)
	case s.model.Architecture >= silicon.Ampere:
		raise(95)
		s.needsReset = true
	}
}

// repair records that memory is to be replaced at the next reset.
func (s *state) repair(count uint32) {
	if s.model.Architecture >= silicon.Ampere {
		s.counters.RemappedUncorrected += count
		s.counters.RemapPending = true
		return
	}
	s.counters.RetiredDouble += count
	s.counters.RetiredPending = true
}

// xid raises one number; it returns whether something stays until it is cleared.
func (c *Cards) xid(now int64, s *state, f Fault, count uint64, raise func(uint32)) bool {
	x, _ := findXid(f.XID) // Look has found it
	raise(x.Number)
	switch x.Number {
	case 48, 94, 95:
		s.uncorrected(count)
		c.happened(now, f.Card, 0, IncidentDoubleBit, 0)
	case 63:
		s.repair(uint32(min(count, 1<<16)))
	case 64:
		if s.model.Architecture >= silicon.Ampere {
			s.counters.RemapFailed = true
		} else {
			s.counters.RetiredPending = true
		}
	case 92:
		s.corrected(count)
		c.happened(now, f.Card, 0, IncidentSingleBit, 0)
	}
	s.lost = s.lost || x.Lost
	s.needsReset = s.needsReset || x.Reset
	return x.Lost || x.Reset || x.Number == 63 || x.Number == 64
}

// Clear is a reset of a card (-1: of all): it is back, cool and fast, volatile
// counters are 0, and repairs of its memory are done, those that had failed, too.
// It returns how many faults were in force.
func (c *Cards) Clear(now int64, card int) (int, error) {
	if card >= 0 {
		if _, err := c.find(card); err != nil {
			return 0, err
		}
	}
	for i := range c.cards {
		if card >= 0 && i != card {
			continue
		}
		s := &c.cards[i]
		if s.thermal || s.power {
			c.happened(now, i, 0, IncidentClock, 0)
		}
		if s.lost {
			s.celsius = IdleCelsius
		}
		s.lost, s.needsReset, s.thermal, s.power = false, false, false, false
		s.counters.CorrectedVolatile, s.counters.UncorrectedVolatile = 0, 0
		s.counters.RetiredPending, s.counters.RemapPending, s.counters.RemapFailed = false, false, false
	}
	cleared := 0
	for i := range c.faults {
		if f := &c.faults[i]; f.Active && (card < 0 || f.Card == card) {
			f.Active = false
			cleared++
		}
	}
	return cleared, nil
}
