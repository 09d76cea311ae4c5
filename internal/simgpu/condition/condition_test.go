// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"errors"
	"math"
	"testing"

	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
)

const second = int64(1e9)

func cards(t *testing.T, spec string) *Cards {
	t.Helper()
	list, err := silicon.ParseSpec(spec, 0)
	if err != nil {
		t.Fatal(err)
	}
	return New(list, 0, 100)
}

func observe(t *testing.T, c *Cards, card int, now, busyNS int64, percent int) Reading {
	t.Helper()
	r, err := c.Observe(card, now, busyNS, percent)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Heat and power follow the work, and the same work gives the same heat however
// often somebody looks.
func TestHeat(t *testing.T) {
	c := cards(t, "2xH100-80GB")
	r := observe(t, c, 0, second, 0, 0)
	if r.Celsius != IdleCelsius || r.PowerMW != 70_000 || r.EnergyMJ != 70_000 || r.Reasons != ReasonIdle || r.SMClockMHz != 345 || r.Performance != 0 {
		t.Errorf("at rest: %+v", r)
	}
	for now := 2 * second; now <= 21*second; now += second {
		r = observe(t, c, 0, now, now-second, 100)
	}
	want := fullCelsius - (fullCelsius-IdleCelsius)*math.Exp(-1)
	if math.Abs(float64(r.Celsius)-want) > 1 || r.PowerMW != 644_000 || r.Reasons != 0 || r.SMClockMHz != 1980 || r.MemoryCelsius != r.Celsius+hotterMemory {
		t.Errorf("after 20 s of work, %.1f degrees expected: %+v", want, r)
	}
	if energy := uint64(70_000 + 20*644_000); r.EnergyMJ < energy-5 || r.EnergyMJ > energy+5 {
		t.Errorf("%d mJ, not %d", r.EnergyMJ, energy)
	}
	observe(t, c, 1, second, 0, 0)
	if once := observe(t, c, 1, 21*second, 20*second, 100); once.Celsius != r.Celsius || once.EnergyMJ/10 != r.EnergyMJ/10 {
		t.Errorf("looked at once: %+v, every second: %+v", once, r)
	}
	if r = observe(t, c, 0, 600*second, 20*second, 0); r.Celsius != IdleCelsius {
		t.Errorf("ten minutes later: %+v", r)
	}
	if again := observe(t, c, 0, 500*second, 0, 0); again.Celsius != IdleCelsius || again.EnergyMJ != r.EnergyMJ {
		t.Errorf("a look back in time changes something: %+v", again)
	}
}

// A card without stacked memory rests deeper, and tells of it.
func TestRest(t *testing.T) {
	c := cards(t, "T4")
	if r := observe(t, c, 0, second, 0, 0); r.Performance != 8 || r.MemoryClockMHz != idleMemoryMHz {
		t.Errorf("at rest: %+v", r)
	}
	if r := observe(t, c, 0, 2*second, second, 90); r.Performance != 0 || r.MemoryClockMHz != 5001 {
		t.Errorf("at work: %+v", r)
	}
	list, last := c.Incidents(0, 10)
	if len(list) != 2 || last != 2 || list[0].Type != IncidentClock || list[1].Type != IncidentPState {
		t.Errorf("incidents: %+v", list)
	}
}

func inject(t *testing.T, c *Cards, f Fault) Record {
	t.Helper()
	r, err := c.Inject(second, f, Party{Process: 7, PID: 70}, 1)
	if err != nil {
		t.Fatalf("%+v: %v", f, err)
	}
	return r
}

// xids lists the numbers that incidents after cursor tell of.
func xids(c *Cards, cursor uint64) []uint64 {
	var numbers []uint64
	list, _ := c.Incidents(cursor, 100)
	for _, i := range list {
		if i.Type == IncidentXID {
			numbers = append(numbers, i.Data)
		}
	}
	return numbers
}

func TestECC(t *testing.T) {
	for _, c := range []struct {
		spec  string
		scope Scope
		xids  string
		want  Counters
		reset bool
	}{
		{"A100-40GB", Victim, "[48 63 94]", Counters{RemappedUncorrected: 2, RemapPending: true}, false},
		{"A10", OnCard, "[48 63 95]", Counters{RemappedUncorrected: 2, RemapPending: true}, true},
		{"T4", OnCard, "[48 63]", Counters{RetiredDouble: 2, RetiredPending: true}, false},
	} {
		cards := cards(t, c.spec)
		inject(t, cards, Fault{Kind: ECCSingle, Count: 5})
		effect, err := cards.Look(Fault{Kind: ECCDouble})
		if err != nil || effect != (Effect{c.scope, errorECCUncorrectable}) {
			t.Errorf("%s: effect %+v, %v", c.spec, effect, err)
		}
		r := inject(t, cards, Fault{Kind: ECCDouble, Count: 2})
		if r.XID != 48 || !r.Active || r.Error != errorECCUncorrectable {
			t.Errorf("%s: record %+v", c.spec, r)
		}
		if got := sprint(xids(cards, 0)); got != c.xids {
			t.Errorf("%s: XIDs %s, not %s", c.spec, got, c.xids)
		}
		c.want.CorrectedVolatile, c.want.CorrectedAggregate, c.want.UncorrectedVolatile, c.want.UncorrectedAggregate = 5, 5, 2, 2
		reading := observe(t, cards, 0, 2*second, 0, 0)
		if reading.Counters != c.want || reading.NeedsReset != c.reset {
			t.Errorf("%s: %+v", c.spec, reading)
		}
		if n, err := cards.Clear(3*second, -1); err != nil || n != 1 {
			t.Errorf("%s: cleared %d, %v", c.spec, n, err)
		}
		c.want.CorrectedVolatile, c.want.UncorrectedVolatile, c.want.RemapPending, c.want.RetiredPending = 0, 0, false, false
		if reading = observe(t, cards, 0, 4*second, 0, 0); reading.Counters != c.want || reading.NeedsReset {
			t.Errorf("%s: after a reset %+v", c.spec, reading)
		}
	}
}

func sprint(list []uint64) string {
	text := "["
	for i, n := range list {
		if i > 0 {
			text += " "
		}
		text += string(rune('0'+n/10%10)) + string(rune('0'+n%10))
	}
	return text + "]"
}

func TestSlowdown(t *testing.T) {
	c := cards(t, "H100-80GB")
	inject(t, c, Fault{Kind: Thermal})
	if c.Slow(0) != 200 {
		t.Errorf("slow: %d", c.Slow(0))
	}
	r := observe(t, c, 0, 2*second, second, 100)
	if r.Reasons != ReasonHWSlowdown|ReasonHWThermal || r.SMClockMHz != 990 || r.Celsius <= SlowdownCelsius || r.SlowPercent != 200 {
		t.Errorf("hot: %+v", r)
	}
	inject(t, c, Fault{Kind: Power})
	r = observe(t, c, 0, 3*second, second, 100)
	if r.Reasons != ReasonHWSlowdown|ReasonHWThermal|ReasonPowerBrake || r.PowerMW >= 644_000 || c.Slow(0) != 200 {
		t.Errorf("hot and braked: %+v", r)
	}
	if n, err := c.Clear(4*second, 0); err != nil || n != 2 || c.Slow(0) != 100 {
		t.Errorf("cleared %d, %v; slow %d", n, err, c.Slow(0))
	}
}

func TestLost(t *testing.T) {
	for _, f := range []Fault{{Kind: CardLost}, {Kind: XID, XID: 79}} {
		c := cards(t, "2xL4")
		inject(t, c, f)
		if lost, _ := c.State(0); !lost || sprint(xids(c, 0)) != "[79]" {
			t.Errorf("%+v: lost %v, incidents %v", f, lost, xids(c, 0))
		}
		if lost, _ := c.State(1); lost {
			t.Error("the other GPU is lost, too")
		}
		if r := observe(t, c, 0, 2*second, 0, 0); r.PowerMW != 0 || !r.Lost {
			t.Errorf("lost: %+v", r)
		}
		if _, err := c.Look(Fault{Kind: Thermal}); !errors.Is(err, ErrInvalid) {
			t.Errorf("a fault on a lost GPU: %v", err)
		}
		if n, err := c.Clear(3*second, 1); n != 0 || err != nil {
			t.Errorf("the other GPU is cleared of %d, %v", n, err)
		}
		if n, err := c.Clear(3*second, 0); n != 1 || err != nil {
			t.Errorf("cleared %d, %v", n, err)
		}
		if lost, _ := c.State(0); lost {
			t.Error("still lost")
		}
	}
}

// Every number of the table can be injected, tells of itself first, and does
// what the table says.
func TestXids(t *testing.T) {
	before := uint32(0)
	for _, x := range Xids() {
		c := cards(t, "H100-80GB")
		effect, err := c.Look(Fault{Kind: XID, XID: x.Number})
		if err != nil || effect != (Effect{x.Scope, x.Error}) {
			t.Errorf("%+v: effect %+v, %v", x, effect, err)
		}
		r := inject(t, c, Fault{Kind: XID, XID: x.Number})
		if numbers := xids(c, 0); len(numbers) != 1 || numbers[0] != uint64(x.Number) || r.XID != x.Number {
			t.Errorf("%+v: incidents %v, record %+v", x, numbers, r)
		}
		if lost, reset := c.State(0); lost != x.Lost || reset != x.Reset {
			t.Errorf("%+v: lost %v, needs a reset %v", x, lost, reset)
		}
		if x.Number <= before || (x.Scope == Nobody) != (x.Error == 0) {
			t.Errorf("the table has %+v after %d", x, before)
		}
		before = x.Number
	}
}

func TestNonsense(t *testing.T) {
	c := cards(t, "RTX4090")
	for _, f := range []Fault{
		{}, {Kind: 99}, {Kind: XID}, {Kind: XID, XID: 1 << 30}, {Kind: ECCSingle}, {Kind: ECCDouble},
		{Kind: XID, XID: 94}, {Kind: Thermal, Count: maxCount + 1},
	} {
		if _, err := c.Inject(0, f, Party{}, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, card := range []int{-1, 1} {
		if _, err := c.Inject(0, Fault{Card: card, Kind: Thermal}, Party{}, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("GPU %d: %v", card, err)
		}
		if _, err := c.Observe(card, 0, 0, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("look at GPU %d: %v", card, err)
		}
	}
	if _, err := c.Clear(0, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("clear GPU 1: %v", err)
	}
	for _, name := range Kinds() {
		if k, err := ParseKind(name); err != nil || k.String() != name {
			t.Errorf("kind %q: %v, %v", name, k, err)
		}
	}
	if _, err := ParseKind("flood"); !errors.Is(err, ErrInvalid) || Kind(99).String() != "kind 99" {
		t.Errorf("no kind: %v", err)
	}
}

// What is remembered is bounded, and numbers go on.
func TestHistory(t *testing.T) {
	c := cards(t, "A100-40GB")
	for range 1000 {
		inject(t, c, Fault{Kind: ECCSingle})
	}
	if len(c.faults) > 201 || len(c.incidents) > 201 {
		t.Errorf("%d faults, %d incidents are kept", len(c.faults), len(c.incidents))
	}
	faults, last := c.Faults(0, 10)
	if len(faults) != 10 || last != faults[9].Number || faults[0].Number+9 != last {
		t.Errorf("first page: %+v, %d", faults, last)
	}
	if faults, last = c.Faults(999, 10); len(faults) != 1 || last != 1000 {
		t.Errorf("last: %+v, %d", faults, last)
	}
	if list, last := c.Incidents(5000, 10); len(list) != 0 || last != 5000 {
		t.Errorf("after the last: %+v, %d", list, last)
	}
}
