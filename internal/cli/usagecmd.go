// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	bill "github.com/divvy-gpu/divvy/internal/usage"
)

// usageReport is `divvy usage --json`.
type usageReport struct {
	Schema   string         `json:"schema"`
	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`
	By       string         `json:"by"`
	Basis    bill.Basis     `json:"basis"`
	Currency string         `json:"currency"` // empty: without prices
	Rows     []usageRow     `json:"rows"`
	Cards    []usageCard    `json:"cards"`
	Gaps     []api.UsageGap `json:"gaps"`
}

// usageRow is a sum; what it is not summed by is empty or null.
type usageRow struct {
	Hour            *time.Time   `json:"hour"`
	Tenant          string       `json:"tenant"`
	Owner           *int         `json:"owner"`
	Share           string       `json:"share"`
	CardUUID        string       `json:"cardUuid"`
	BookedGiBHours  float64      `json:"bookedGiBHours"`
	UsedGiBHours    float64      `json:"usedGiBHours"`
	BookedCoreHours float64      `json:"bookedCoreHours"`
	UsedCoreHours   float64      `json:"usedCoreHours"`
	WaitHours       float64      `json:"waitHours"`
	EnergyKWh       float64      `json:"energyKWh"`
	Cost            *json.Number `json:"cost"` // null: without prices
}

type usageCard struct {
	UUID    string       `json:"uuid"`
	Model   string       `json:"model"`
	Hours   float64      `json:"hours"` // that it was there
	Price   *json.Number `json:"price"` // per hour
	Charged *json.Number `json:"charged"`
	Idle    *json.Number `json:"idle"`
}

// By what usage is added up.
const (
	byTenant = "tenant"
	byOwner  = "owner"
	byShare  = "share"
	byCard   = "card"
	byHour   = "hour"
)

func (a *app) usageCommand() *cobra.Command {
	var asJSON bool
	var by, from, to, file, basis, form string
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "What shares booked and used of GPUs, and what it costs",
		Long: `Adds up by whole hours (UTC) what shares booked and used, from the beginning of this
month until now where nothing else is said. With prices each GPU's price is divided
among its shares: by what they booked, or used; the rest is idle.`,
		Example: `  divvy usage --by tenant --from 2026-11-01 --to 2026-12-01 --prices prices.yaml`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if asJSON {
			form = formJSON
		}
		report, err := usageAsked(by, from, to, basis, form, time.Now())
		if err != nil {
			return usage(err)
		}
		var prices *bill.Prices
		if file != "" {
			raw, err := a.readBounded(file)
			if err != nil {
				return err
			}
			parsed, err := bill.ParsePrices(raw)
			if err != nil {
				return usage(fmt.Errorf("--prices: %s: %w", file, err))
			}
			prices = &parsed
		}
		ctx := client.Looking(cmd.Context())
		at, err := a.find(ctx)
		if err != nil {
			return err
		}
		if err := report.fill(ctx, at.client, prices); err != nil {
			return at.explain(err)
		}
		switch form {
		case formJSON:
			return a.writeJSON(report)
		case formCSV:
			return a.usageCSV(report)
		}
		return a.usageTable(report)
	})
	flags := cmd.Flags()
	flags.StringVar(&by, "by", byShare, "`what`: tenant, owner, share, card, hour")
	flags.StringVar(&from, "from", "", "first `time`, like 2026-11-01 or 2026-11-01T08:00:00Z")
	flags.StringVar(&to, "to", "", "`time` before which hours begin")
	flags.StringVar(&file, "prices", "", "`file` of prices (docs/usage.md)")
	flags.StringVar(&basis, "basis", string(bill.Booked), "`what` is paid for: booked, used")
	flags.StringVarP(&form, "output", "o", formTable, "`form`: table, csv, json")
	complete(cmd, "by", words(byTenant, byOwner, byShare, byCard, byHour))
	complete(cmd, "prices", fileCompletion)
	complete(cmd, "basis", words(bill.Bases()...))
	complete(cmd, "output", words(formTable, formCSV, formJSON))
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

const formCSV = "csv"

// usageAsked takes the flags apart.
func usageAsked(by, from, to, basis, form string, now time.Time) (*usageReport, error) {
	now = now.UTC()
	r := &usageReport{Schema: "divvy.usage/v1", By: by, Basis: bill.Basis(basis), Rows: []usageRow{}, Cards: []usageCard{}, Gaps: []api.UsageGap{},
		From: time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC), To: now.Truncate(time.Hour).Add(time.Hour)}
	switch by {
	case byTenant, byOwner, byShare, byCard, byHour:
	default:
		return nil, fmt.Errorf("--by: %q is not tenant, owner, share, card or hour", by)
	}
	if !slices.Contains(bill.Bases(), r.Basis) {
		return nil, fmt.Errorf("--basis: %q is neither booked nor used", basis)
	}
	if form != formTable && form != formCSV && form != formJSON {
		return nil, fmt.Errorf("--output: %q is not table, csv or json", form)
	}
	for _, flag := range []struct {
		name, text string
		into       *time.Time
	}{{"--from", from, &r.From}, {"--to", to, &r.To}} {
		if flag.text == "" {
			continue
		}
		at, err := timeFlag(flag.name, flag.text)
		if err != nil {
			return nil, err
		}
		if !at.Equal(at.Truncate(time.Hour)) {
			return nil, fmt.Errorf("%s: %s is not a whole hour", flag.name, flag.text)
		}
		*flag.into = at
	}
	if !r.From.Before(r.To) {
		return nil, fmt.Errorf("--from %s is not before --to %s", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	}
	const most = 401 * 24 * time.Hour
	if r.To.Sub(r.From) > most {
		return nil, errors.New("--from, --to: usage is kept for 400 days")
	}
	return r, nil
}

// timeFlag reads the time that a flag gives.
func timeFlag(flag, text string) (time.Time, error) {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return at, fmt.Errorf("%s: %q is not a time like 2026-11-01 or 2026-11-01T08:00:00Z", flag, text)
	}
	return at.UTC(), nil
}

// fill asks for one day after the other, and adds up.
func (r *usageReport) fill(ctx context.Context, from *client.Client, prices *bill.Prices) error {
	sums := map[usageKey]*usageSum{}
	cards := map[string]*cardSum{}
	if prices != nil {
		r.Currency = prices.Currency
	}
	for day := r.From; day.Before(r.To); day = day.Add(24 * time.Hour) {
		end := day.Add(24 * time.Hour)
		if end.After(r.To) {
			end = r.To
		}
		hours, err := from.Usage(ctx, day, end)
		if err != nil {
			return err
		}
		if err := r.add(hours, prices, sums, cards); err != nil {
			return err
		}
	}
	// One that goes over midnight is in the answers for both days.
	r.Gaps = slices.CompactFunc(r.Gaps, func(a, b api.UsageGap) bool { return a.From.Equal(b.From) && a.To.Equal(b.To) })
	for key, sum := range sums {
		r.Rows = append(r.Rows, sum.row(key, prices != nil))
	}
	slices.SortFunc(r.Rows, func(a, b usageRow) int {
		return cmp.Or(timeOf(a.Hour).Compare(timeOf(b.Hour)), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(numberOf(a.Owner), numberOf(b.Owner)), cmp.Compare(a.Share, b.Share), cmp.Compare(a.CardUUID, b.CardUUID))
	})
	for uuid, sum := range cards {
		c := usageCard{UUID: uuid, Model: sum.model, Hours: float64(sum.ms) / 3.6e6}
		if prices != nil {
			c.Price, c.Charged, c.Idle = money(big.NewInt(sum.price)), money(&sum.charged), money(&sum.idle)
		}
		r.Cards = append(r.Cards, c)
	}
	slices.SortFunc(r.Cards, func(a, b usageCard) int { return cmp.Compare(a.UUID, b.UUID) })
	return nil
}

func timeOf(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}

func numberOf(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}

// usageKey is what a sum is of.
type usageKey struct {
	hour                int64
	tenant, share, card string
	owner               int
}

type usageSum struct {
	booked, used, bookedCores, usedCores, wait, energy float64
	micros                                             big.Int
}

type cardSum struct {
	model         string
	ms, price     int64
	charged, idle big.Int
}

func (r *usageReport) key(row bill.Row) usageKey {
	switch r.By {
	case byTenant:
		return usageKey{tenant: row.Tenant, owner: -1}
	case byOwner:
		return usageKey{owner: row.Owner}
	case byCard:
		return usageKey{card: row.Card, owner: -1}
	case byHour:
		return usageKey{hour: row.Hour.Unix(), owner: -1}
	}
	return usageKey{tenant: row.Tenant, share: row.Share, card: row.Card, owner: row.Owner}
}

func (r *usageReport) add(hours api.UsageHours, prices *bill.Prices, sums map[usageKey]*usageSum, cards map[string]*cardSum) error {
	var rows []bill.Row
	for _, h := range hours.Rows {
		rows = append(rows, bill.Row{Hour: h.Hour, Share: h.Share, Tenant: h.Tenant, Card: h.CardUUID, Owner: h.OwnerUID, Quantities: bill.Quantities{Ms: h.Ms,
			BookedKiBMs: h.BookedKiBMs, BookedPercentMs: h.BookedPercentMs, UsedKiBMs: h.UsedKiBMs, CardTimeNs: h.CardTimeNs, WaitNs: h.WaitNs, EnergyUJ: h.EnergyUJ}})
	}
	var of []bill.Card
	for _, c := range hours.Cards {
		of = append(of, bill.Card{Hour: c.Hour, UUID: c.UUID, Model: c.Model, MemoryKiB: c.MemoryKiB, Ms: c.Ms, EnergyUJ: c.EnergyUJ})
	}
	charged := bill.Bill{}
	if prices != nil {
		var err error
		if charged, err = bill.Rate(rows, of, *prices, r.Basis); err != nil {
			return usage(fmt.Errorf("--prices: %w", err))
		}
	} else {
		for _, row := range rows {
			charged.Charges = append(charged.Charges, bill.Charge{Row: row})
		}
		for _, c := range of {
			charged.Cards = append(charged.Cards, bill.CardCharge{Card: c})
		}
	}
	for _, c := range charged.Charges {
		key := r.key(c.Row)
		sum := sums[key]
		if sum == nil {
			sum = &usageSum{}
			sums[key] = sum
		}
		sum.add(c)
	}
	for _, c := range charged.Cards {
		sum := cards[c.UUID]
		if sum == nil {
			sum = &cardSum{model: c.Model, price: c.Price}
			cards[c.UUID] = sum
		}
		sum.ms += c.Ms
		sum.charged.Add(&sum.charged, big.NewInt(c.ChargedToUsers))
		sum.idle.Add(&sum.idle, big.NewInt(c.Idle))
	}
	r.Gaps = append(r.Gaps, hours.Gaps...)
	return nil
}

func (s *usageSum) add(c bill.Charge) {
	const hourMs, gib = 3.6e6, 1 << 20 // of KiB
	s.booked += float64(c.BookedKiBMs) / gib / hourMs
	s.used += float64(c.UsedKiBMs) / gib / hourMs
	s.bookedCores += float64(c.BookedPercentMs) / 100 / hourMs
	s.usedCores += float64(c.CardTimeNs) / 3.6e12
	s.wait += float64(c.WaitNs) / 3.6e12
	s.energy += float64(c.EnergyUJ) / 3.6e12
	s.micros.Add(&s.micros, big.NewInt(c.Micros))
}

func (s *usageSum) row(key usageKey, priced bool) usageRow {
	row := usageRow{Tenant: key.tenant, Share: key.share, CardUUID: key.card, BookedGiBHours: s.booked, UsedGiBHours: s.used, BookedCoreHours: s.bookedCores,
		UsedCoreHours: s.usedCores, WaitHours: s.wait, EnergyKWh: s.energy}
	if key.hour != 0 {
		hour := time.Unix(key.hour, 0).UTC()
		row.Hour = &hour
	}
	if key.owner >= 0 {
		row.Owner = &key.owner
	}
	if priced {
		row.Cost = money(&s.micros)
	}
	return row
}

// money writes millionths as a decimal number.
func money(micros *big.Int) *json.Number {
	n := json.Number(new(big.Rat).SetFrac(micros, big.NewInt(1_000_000)).FloatString(6))
	return &n
}

func moneyText(n *json.Number) string {
	if n == nil {
		return "-"
	}
	return n.String()
}

// head names the columns of what is added up by, and cells are theirs.
func (r *usageReport) head() []string {
	switch r.By {
	case byShare:
		return []string{"tenant", "owner", "share", "gpu"}
	case byCard:
		return []string{"gpu"}
	}
	return []string{r.By}
}

func (r *usageReport) cells(row usageRow) []string {
	owner := ""
	if row.Owner != nil {
		owner = strconv.Itoa(*row.Owner)
	}
	switch r.By {
	case byTenant:
		return []string{row.Tenant}
	case byOwner:
		return []string{owner}
	case byCard:
		return []string{row.CardUUID}
	case byHour:
		return []string{row.Hour.Format(time.RFC3339)}
	}
	return []string{row.Tenant, owner, row.Share, row.CardUUID}
}

var usageColumns = []string{"booked GiB h", "used GiB h", "booked GPU h", "used GPU h", "waited h", "kWh", "cost"}

func (row usageRow) figures(digits int) []string {
	var all []string
	for _, f := range []float64{row.BookedGiBHours, row.UsedGiBHours, row.BookedCoreHours, row.UsedCoreHours, row.WaitHours, row.EnergyKWh} {
		all = append(all, strconv.FormatFloat(f, 'f', digits, 64))
	}
	return append(all, moneyText(row.Cost))
}

func (a *app) usageTable(r *usageReport) error {
	var head []string
	for _, name := range append(r.head(), usageColumns...) {
		head = append(head, strings.ToUpper(name))
	}
	rows := newTable(head...)
	for _, row := range r.Rows {
		rows.add(append(r.cells(row), row.figures(3)...)...)
	}
	if err := rows.write(a.stdout); err != nil {
		return err
	}
	for _, c := range r.Cards {
		line := fmt.Sprintf("%s (%s): %.3f h", c.UUID, c.Model, c.Hours)
		if c.Price != nil {
			line += fmt.Sprintf(" at %s %s, charged %s, idle %s", moneyText(c.Price), r.Currency, moneyText(c.Charged), moneyText(c.Idle))
		}
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return err
		}
	}
	for _, g := range r.Gaps {
		if _, err := fmt.Fprintf(a.stdout, "no agent from %s to %s: not charged\n", g.From.Format(time.RFC3339), g.To.Format(time.RFC3339)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) usageCSV(r *usageReport) error {
	out := csv.NewWriter(a.stdout)
	_ = out.Write(append(r.head(), usageColumns...)) // Error tells
	for _, row := range r.Rows {
		_ = out.Write(append(r.cells(row), row.figures(6)...))
	}
	out.Flush()
	return out.Error()
}
