// SPDX-License-Identifier: Apache-2.0

// Package usage turns quantities that shares booked and used, by hours, into what they cost. It
// is pure and exact: what is charged for a GPU's hour and what was idle add up to its price to
// the last millionth.
//
//	prices, err := usage.ParsePrices(file)
//	bill, err := usage.Rate(hours, prices, usage.Booked)
package usage

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Basis is what is paid for.
type Basis string

// Bases.
const (
	Booked Basis = "booked" // promised memory and fixed parts of the time
	Used   Basis = "used"   // memory that was held, and GPU time
)

// Bases lists them.
func Bases() []Basis { return []Basis{Booked, Used} }

// Quantities are what a share booked and used of a GPU in some time.
type Quantities struct {
	Ms              int64 // that it was there
	BookedKiBMs     int64 // memory that it was promised
	BookedPercentMs int64 // of the GPU's time
	UsedKiBMs       int64
	CardTimeNs      int64
	WaitNs          int64
	EnergyUJ        int64 // of the GPU's that goes with its time on it
}

// Add adds others.
func (q *Quantities) Add(o Quantities) {
	q.Ms += o.Ms
	q.BookedKiBMs += o.BookedKiBMs
	q.BookedPercentMs += o.BookedPercentMs
	q.UsedKiBMs += o.UsedKiBMs
	q.CardTimeNs += o.CardTimeNs
	q.WaitNs += o.WaitNs
	q.EnergyUJ += o.EnergyUJ
}

// Row is a share on a GPU within an hour.
type Row struct {
	Hour                time.Time // when it begins
	Share, Tenant, Card string    // the card's UUID
	Owner               int       // uid
	Quantities
}

// Card is a GPU within an hour.
type Card struct {
	Hour        time.Time
	UUID, Model string
	MemoryKiB   int64
	Ms          int64 // that it was there
	EnergyUJ    int64
}

// Charge is what a row costs, in millionths of the currency.
type Charge struct {
	Row
	Micros int64
}

// CardCharge is what a GPU cost within an hour.
type CardCharge struct {
	Card
	Price          int64 // millionths per hour
	Micros, Idle   int64 // all of it; what nobody pays for
	ChargedToUsers int64
}

// Bill is what some hours cost.
type Bill struct {
	Charges []Charge
	Cards   []CardCharge
}

// Rate divides the price of each GPU's hour among those who had parts of it. A part is
// weights.memory x part of the memory + weights.cores x part of the time; where parts are more
// than the whole together (measuring, overlap) they are scaled. What is left is idle. Rounding
// goes to the largest remainders.
func Rate(rows []Row, cards []Card, prices Prices, basis Basis) (Bill, error) {
	type place struct {
		hour int64
		uuid string
	}
	of := map[place][]Row{}
	for _, r := range rows {
		at := place{r.Hour.Unix(), r.Card}
		of[at] = append(of[at], r)
	}
	var bill Bill
	var missing []string
	cards = slices.Clone(cards)
	slices.SortFunc(cards, func(a, b Card) int { return cmp.Or(a.Hour.Compare(b.Hour), cmp.Compare(a.UUID, b.UUID)) })
	for _, c := range cards {
		price, ok := prices.of(c)
		if !ok {
			missing = append(missing, fmt.Sprintf("%s (%s)", c.UUID, c.Model))
			continue
		}
		at := place{c.Hour.Unix(), c.UUID}
		its := of[at]
		delete(of, at)
		slices.SortFunc(its, compareRows)
		charge := CardCharge{Card: c, Price: price, Micros: Part(price, c.Ms, time.Hour.Milliseconds())}
		for i, micros := range divide(charge.Micros, its, c, prices, basis) {
			bill.Charges = append(bill.Charges, Charge{its[i], micros})
			charge.ChargedToUsers += micros
		}
		charge.Idle = charge.Micros - charge.ChargedToUsers
		bill.Cards = append(bill.Cards, charge)
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return Bill{}, fmt.Errorf("no price for %s", strings.Join(slices.Compact(missing), ", "))
	}
	for at, its := range of {
		return Bill{}, fmt.Errorf("%d shares have used GPU %s in a time in which it was not there", len(its), at.uuid)
	}
	return bill, nil
}

func compareRows(a, b Row) int {
	return cmp.Or(a.Hour.Compare(b.Hour), cmp.Compare(a.Card, b.Card), cmp.Compare(a.Share, b.Share), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Owner, b.Owner))
}

// Part is amount x of / whole, rounded down.
func Part(amount, of, whole int64) int64 {
	n := new(big.Int).Mul(big.NewInt(amount), big.NewInt(of))
	return n.Quo(n, big.NewInt(whole)).Int64()
}

// divide gives each row its part of an amount; the rest is idle, which takes part in rounding.
func divide(amount int64, rows []Row, c Card, prices Prices, basis Basis) []int64 {
	memory := new(big.Int).Mul(big.NewInt(c.MemoryKiB), big.NewInt(c.Ms)) // all of it, KiB x ms
	cores := new(big.Int).Mul(big.NewInt(c.Ms), big.NewInt(1e6))          // all of it, ns
	whole := new(big.Int).Mul(memory, cores)
	whole.Mul(whole, big.NewInt(prices.MemoryWeight+prices.CoresWeight))
	sum := new(big.Int)
	parts := make([]*big.Int, len(rows)+1)
	for i, r := range rows {
		held, had := r.BookedKiBMs, r.BookedPercentMs*1e4 // percent x ms, as ns
		if basis == Used {
			held, had = r.UsedKiBMs, r.CardTimeNs
		}
		m := new(big.Int).Mul(big.NewInt(max(held, 0)), cores)
		t := new(big.Int).Mul(big.NewInt(max(had, 0)), memory)
		parts[i] = m.Mul(m, big.NewInt(prices.MemoryWeight)).Add(m, t.Mul(t, big.NewInt(prices.CoresWeight)))
		sum.Add(sum, parts[i])
	}
	if whole.Cmp(sum) < 0 || whole.Sign() == 0 {
		whole = sum
	}
	parts[len(rows)] = new(big.Int).Sub(whole, sum)
	shares := largestRemainder(amount, parts, whole)
	return shares[:len(rows)]
}

// largestRemainder divides an amount into whole units by parts of a whole.
func largestRemainder(amount int64, parts []*big.Int, whole *big.Int) []int64 {
	units := make([]int64, len(parts))
	if whole.Sign() == 0 {
		units[len(units)-1] = amount // nobody had anything
		return units
	}
	rests := make([]*big.Int, len(parts))
	left := amount
	for i, p := range parts {
		n, rest := new(big.Int).QuoRem(new(big.Int).Mul(p, big.NewInt(amount)), whole, new(big.Int))
		units[i], rests[i] = n.Int64(), rest
		left -= units[i]
	}
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rests[b].Cmp(rests[a]) })
	for _, i := range order[:left] {
		units[i]++
	}
	return units
}
