// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

var hour = time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)

const ms = 3_600_000

func card() Card { return Card{Hour: hour, UUID: "GPU-a", Model: "A100", MemoryKiB: 40 << 20, Ms: ms} }

func prices(t testing.TB, text string) Prices {
	t.Helper()
	p, err := ParsePrices([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func quarter(name string, percent int64) Row {
	return Row{Hour: hour, Share: name, Tenant: name, Card: "GPU-a", Quantities: Quantities{
		Ms: ms, BookedKiBMs: (40 << 20) * ms * percent / 100, BookedPercentMs: percent * ms, UsedKiBMs: (40 << 20) * ms * percent / 100, CardTimeNs: percent * ms * 1e4,
	}}
}

// Four shares of a quarter for an hour cost an hour of the GPU, to the last unit.
func TestFourQuarters(t *testing.T) {
	for _, price := range []string{"2.10", "1", "0.000001", "3.333333", "999.999999", "0"} {
		p := prices(t, "currency: EUR\ncards: [{model: A100, price: "+price+"}]")
		rows := []Row{quarter("a", 25), quarter("b", 25), quarter("c", 25), quarter("d", 25)}
		for _, basis := range Bases() {
			bill, err := Rate(rows, []Card{card()}, p, basis)
			if err != nil {
				t.Fatal(err)
			}
			sum := int64(0)
			for _, c := range bill.Charges {
				sum += c.Micros
			}
			if sum != p.Models["A100"] || bill.Cards[0].Idle != 0 || bill.Cards[0].Micros != sum {
				t.Errorf("%s: %d of %d are charged, %d idle", price, sum, p.Models["A100"], bill.Cards[0].Idle)
			}
		}
	}
}

// What is charged and what is idle add up to the price of the GPU's time, for any mix; the same
// mix in another order costs the same; nobody gets money.
func TestAddsUp(t *testing.T) {
	mixes := 100_000
	if testing.Short() {
		mixes = 5_000
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range mixes {
		c := card()
		c.Ms = 1 + random.Int64N(ms)
		c.MemoryKiB = 1 + random.Int64N(200<<20)
		p := Prices{Currency: "EUR", MemoryWeight: random.Int64N(micros + 1), Models: map[string]int64{"A100": random.Int64N(100 * micros)}}
		p.CoresWeight = micros - p.MemoryWeight
		rows := make([]Row, random.IntN(8))
		for i := range rows {
			rows[i] = Row{Hour: hour, Share: string(rune('a' + i)), Card: c.UUID, Quantities: Quantities{
				BookedKiBMs: random.Int64N(c.MemoryKiB*c.Ms/2 + 1), BookedPercentMs: random.Int64N(60*c.Ms + 1), UsedKiBMs: random.Int64N(c.MemoryKiB*c.Ms/2 + 1),
				CardTimeNs: random.Int64N(c.Ms*600_000 + 1),
			}}
		}
		basis := Bases()[random.IntN(2)]
		bill, err := Rate(rows, []Card{c}, p, basis)
		if err != nil {
			t.Fatal(err)
		}
		sum := bill.Cards[0].Idle
		for _, charge := range bill.Charges {
			if charge.Micros < 0 {
				t.Fatalf("%+v gets money", charge)
			}
			sum += charge.Micros
		}
		if want := Part(p.Models["A100"], c.Ms, ms); sum != want || bill.Cards[0].Idle < 0 || len(bill.Charges) != len(rows) {
			t.Fatalf("%v: %d, want %d", rows, sum, want)
		}
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		if again, err := Rate(rows, []Card{c}, p, basis); err != nil || !reflect.DeepEqual(again, bill) {
			t.Fatalf("another order costs %+v (%v), not %+v", again, err, bill)
		}
	}
}

func TestWeightsAndIdle(t *testing.T) {
	p := prices(t, "currency: EUR\nweights: {memory: 0.25, cores: 0.75}\ncards: [{model: A100, price: 4}, {uuid: GPU-a, price: 8}]")
	row := quarter("a", 50)
	row.BookedPercentMs = 0 // memory alone
	bill, err := Rate([]Row{row}, []Card{card()}, p, Booked)
	if err != nil || bill.Charges[0].Micros != micros || bill.Cards[0].Idle != 7*micros || bill.Cards[0].Price != 8*micros {
		t.Errorf("%+v (%v)", bill, err)
	}
	if bill, err = Rate([]Row{row}, []Card{card()}, p, Used); err != nil || bill.Charges[0].Micros != 4*micros {
		t.Errorf("used: %+v (%v)", bill, err)
	}
	if _, err = Rate(nil, []Card{{Hour: hour, UUID: "GPU-b", Model: "T4", Ms: ms}}, p, Used); err == nil || !strings.Contains(err.Error(), "no price for GPU-b (T4)") {
		t.Errorf("without a price: %v", err)
	}
}

func TestBadPrices(t *testing.T) {
	for text, want := range map[string]string{
		"": "no prices", "currency: EUR": "no cards", "cards: []": "no currency", "- x": "is not fields", "currency: EUR\ncards: {}": "not a list", "more: 1": `unknown field "more"`,
		"currency: EUR\ncards: [{model: A, price: -1}]": "is negative", "currency: EUR\ncards: [{model: A}]": "A has no price", "currency: EUR\ncards: [{price: 1}]": "either a model or a uuid",
		"currency: EUR\ncards: [{model: A, uuid: B, price: 1}]": "either a model", "currency: EUR\ncards: [{model: A, price: 1}, {model: A, price: 2}]": "two prices",
		"currency: EUR\ncards: [{model: A, price: 1.0000001}]": "6 digits", "currency: EUR\ncards: [{model: A, price: 1e3}]": "6 digits", "currency: EUR\ncards: [{model: A, price: 1000001}]": "is more than",
		"currency: EUR\ncards: [{model: A, price: x}]": "6 digits", "currency: EUR\ncards: [{model: A, price: .}]": "6 digits", "currency: EUR\ncards: [{model: A, price: 1.2.3}]": "6 digits",
		"currency: EUR\nweights: {memory: 0.5}\ncards: []": "add up to 1", "currency: EUR\nweights: {memory: 0.5, cores: 0.4}\ncards: []": "add up", "currency: EUR\nweights: {disk: 1}\ncards: []": "unknown field",
		"currency: {}\ncards: []": "not a text", "currency: EUR\ncurrency: USD": "twice", "a: &x 1\nb: *x": "aliases",
	} {
		if _, err := ParsePrices([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Whatever a price file says, prices are bounded and weights add up to one.
func FuzzPrices(f *testing.F) {
	f.Add([]byte("currency: EUR\nweights: {memory: 0.25, cores: 0.75}\ncards: [{model: A100, price: 4}, {uuid: GPU-a, price: 8.123456}]"))
	f.Add([]byte("currency: EUR\ncards: [{model: A, price: -1}]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := ParsePrices(raw)
		if err != nil {
			return
		}
		if p.MemoryWeight < 0 || p.CoresWeight < 0 || p.MemoryWeight+p.CoresWeight != micros || p.Currency == "" {
			t.Fatalf("%+v", p)
		}
		for _, all := range []map[string]int64{p.Models, p.UUIDs} {
			for name, price := range all {
				if name == "" || price < 0 || price > maxPrice*micros {
					t.Fatalf("%q costs %d", name, price)
				}
			}
		}
	})
}
