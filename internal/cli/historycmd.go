// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/selector"
	"github.com/divvy-gpu/divvy/internal/size"
)

const formPlot = "plot"

// rowsShown is how many rows a series has where no step is given.
const rowsShown = 60

// historyFlags are the flags of `divvy history`.
type historyFlags struct {
	share, card, tenant string
	figure              string
	from, to            string
	step                time.Duration
	form                string
	events              bool
}

func (a *app) historyCommand() *cobra.Command {
	var asJSON bool
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history",
		Short: "How figures of GPUs, shares and tenants were over time",
		Long: `Shows a figure over time, of a share, a GPU or all shares of a tenant, or of all GPUs; of
the last hour where nothing else is said; or with --events what happened. Kept are 10 seconds
for a day, minutes for 7 days and hours for 400 days, events for 7 days. Times are UTC. Figures:
  ` + strings.Join(history.FigureNames()[:7], ", ") + `,
  ` + strings.Join(history.FigureNames()[7:], ", ") + `.`,
		Example: `  divvy history --share train --figure memory-used --from 2026-11-01T20:00:00Z -o plot`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if asJSON {
			f.form = formJSON
		}
		if f.events {
			return a.historyEvents(cmd, f)
		}
		query, err := f.query(time.Now(), a.plotColumns())
		if err != nil {
			return err
		}
		ctx := client.Looking(cmd.Context())
		at, err := a.find(ctx)
		if err != nil {
			return err
		}
		h, err := at.client.History(ctx, query.Values())
		if err != nil {
			return at.explain(err)
		}
		return a.showHistory(h, f.form)
	})
	flags := cmd.Flags()
	flags.StringVar(&f.share, "share", "", "of the share of this `name`; -: those of divvy run without one")
	flags.StringVar(&f.card, "gpu", "", "of the `GPU` of this UUID, or its start")
	flags.StringVar(&f.tenant, "tenant", "", "of all shares of this `tenant` together")
	flags.BoolVar(&f.events, "events", false, "what happened, instead of a figure")
	flags.StringVar(&f.figure, "figure", history.DefaultFigure, "`which` figure")
	flags.StringVar(&f.from, "from", "", "first `time`, like 2026-11-01T08:00:00Z (default: an hour ago)")
	flags.StringVar(&f.to, "to", "", "`time` before which points are (default: now)")
	flags.DurationVar(&f.step, "step", 0, "`time` of one point, a multiple of 10s (default: what fits)")
	flags.StringVarP(&f.form, "output", "o", formTable, "`form`: table, plot, csv, json")
	complete(cmd, "share", a.completeShares)
	complete(cmd, "gpu", a.completeCards)
	formerly(cmd, "card", "gpu")
	complete(cmd, "tenant", words[string]())
	complete(cmd, "figure", words(history.FigureNames()...))
	complete(cmd, "from", words[string]())
	complete(cmd, "to", words[string]())
	complete(cmd, "step", words("10s", "1m", "5m", "15m", "1h", "24h"))
	complete(cmd, "output", words(formTable, formPlot, formCSV, formJSON))
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// span is the time that is asked for: the last hour where nothing is said.
func (f *historyFlags) span(now time.Time) (from, to time.Time, err error) {
	to = now.UTC()
	if f.to != "" {
		if to, err = timeFlag("--to", f.to); err != nil {
			return from, to, usage(err)
		}
	}
	from = to.Add(-time.Hour)
	if f.from != "" {
		if from, err = timeFlag("--from", f.from); err != nil {
			return from, to, usage(err)
		}
	}
	return from, to, nil
}

// historyEvents shows what happened within a time.
func (a *app) historyEvents(cmd *cobra.Command, f historyFlags) error {
	for _, flag := range []string{"tenant", "figure", "step"} {
		if cmd.Flags().Changed(flag) {
			return usage(fmt.Errorf("--events and --%s exclude each other", flag))
		}
	}
	if f.form != formTable && f.form != formJSON {
		return usage(fmt.Errorf("--output: of events %q is not table or json", f.form))
	}
	from, to, err := f.span(time.Now())
	if err != nil {
		return err
	}
	if f.to == "" {
		to = to.Add(time.Second) // times are asked for in whole ones
	}
	q := history.EventQuery{Share: f.share, Card: f.card, From: from, To: to}
	if err := q.Validate(); err != nil {
		return usage(err)
	}
	ctx := client.Looking(cmd.Context())
	at, err := a.find(ctx)
	if err != nil {
		return err
	}
	h, err := at.client.HistoryEvents(ctx, q.Values())
	if err != nil {
		return at.explain(err)
	}
	if f.form == formJSON {
		return a.writeJSON(h)
	}
	if h.LeftOut > 0 {
		a.note("%d older events are left out: ask for a shorter time", h.LeftOut)
	}
	for _, e := range h.Events {
		a.writeEvent(e)
	}
	return nil
}

// query takes the flags apart.
func (f *historyFlags) query(now time.Time, columns int) (history.Query, error) {
	q := history.Query{Share: f.share, Card: f.card, Tenant: f.tenant, Step: f.step, To: now.UTC()}
	if !slices.Contains([]string{formTable, formPlot, formCSV, formJSON}, f.form) {
		return q, usage(fmt.Errorf("--output: %q is not table, plot, csv or json", f.form))
	}
	var err error
	if q.From, q.To, err = f.span(now); err != nil {
		return q, err
	}
	if q.Figure, err = history.ParseFigure(f.figure); err != nil {
		if near := selector.Nearest(f.figure, history.FigureNames()); len(near) > 0 {
			err = fmt.Errorf("no figure %q: did you mean %s?", f.figure, strings.Join(near, ", "))
		}
		return q, usage(fmt.Errorf("--figure: %w", err))
	}
	if q.Step == 0 {
		points := rowsShown
		if f.form == formPlot {
			points = columns
		}
		q.Step = history.DefaultStep(q.From, q.To, now, points)
	}
	err = q.Validate()
	if many, is := errors.AsType[*history.ManyPointsError](err); is {
		return q, withHint(usage(err), "--step "+history.StepText(many.Step))
	}
	if err != nil {
		return q, usage(err)
	}
	return q, nil
}

func (a *app) showHistory(h api.History, form string) error {
	if form == formJSON {
		return a.writeJSON(h)
	}
	if form == formCSV {
		return a.historyCSV(h)
	}
	step := time.Duration(h.StepSeconds) * time.Second
	switch since := h.KeptSince; {
	case since == nil:
		a.note("no points of %s are kept yet", history.StepText(step))
	case since.After(h.From.Add(step)):
		a.note("points of %s are kept since %s", history.StepText(step), since.Format(time.RFC3339))
	}
	if form == formPlot {
		return a.historyPlot(h)
	}
	return a.historyTable(h)
}

// historyNames are the columns that tell series apart.
func historyNames(h api.History) (head []string, cells func(api.HistorySeries) []string) {
	shares := slices.ContainsFunc(h.Series, func(s api.HistorySeries) bool { return s.Share != "" })
	tenants := shares || slices.ContainsFunc(h.Series, func(s api.HistorySeries) bool { return s.Tenant != "" })
	if shares {
		head = append(head, "share")
	}
	if tenants {
		head = append(head, "tenant")
	}
	return append(head, "gpu"), func(s api.HistorySeries) []string {
		var all []string
		if shares {
			all = append(all, s.Share)
		}
		if tenants {
			all = append(all, s.Tenant)
		}
		return append(all, s.CardUUID)
	}
}

func (a *app) historyTable(h api.History) error {
	names, cells := historyNames(h)
	head := []string{"TIME"}
	for _, name := range names {
		head = append(head, strings.ToUpper(name))
	}
	if h.Counter {
		head = append(head, "SUM", "RATE")
	} else {
		head = append(head, "MEAN", "LEAST", "MOST")
	}
	rows := newTable(head...)
	unit := unitOf(h)
	for _, s := range h.Series {
		for _, p := range s.Points {
			row := append([]string{p.Time.Format(time.RFC3339)}, cells(s)...)
			row[len(row)-1] = shortUUID(s.CardUUID)
			if h.Counter {
				row = append(row, unit.sum(float64(*p.Sum)), unit.text(valueOf(h, p)))
			} else {
				row = append(row, unit.pointer(p.Mean), unit.pointer(p.Min), unit.pointer(p.Max))
			}
			rows.add(row...)
		}
	}
	return rows.write(a.stdout)
}

func (a *app) historyCSV(h api.History) error {
	names, cells := historyNames(h)
	figures := []string{"mean", "min", "max"}
	if h.Counter {
		figures = []string{"sum"}
	}
	out := csv.NewWriter(a.stdout)
	_ = out.Write(slices.Concat([]string{"time"}, names, []string{"seconds"}, figures)) // Error tells
	number := func(f *float64) string {
		if f == nil {
			return ""
		}
		return strconv.FormatFloat(*f, 'f', -1, 64)
	}
	for _, s := range h.Series {
		for _, p := range s.Points {
			row := slices.Concat([]string{p.Time.Format(time.RFC3339)}, cells(s), []string{number(&p.Seconds)})
			if h.Counter {
				row = append(row, strconv.FormatInt(*p.Sum, 10))
			} else {
				row = append(row, number(p.Mean), number(p.Min), number(p.Max))
			}
			_ = out.Write(row)
		}
	}
	out.Flush()
	return out.Error()
}

// valueOf is what is shown of a point: of a counter, what came in a second.
func valueOf(h api.History, p api.HistoryPoint) float64 {
	if !h.Counter {
		return *p.Mean
	}
	return float64(*p.Sum) / max(p.Seconds, 0.001)
}

// unit says how a figure is written. Of counters text is of what came in a second.
type unit struct {
	text   func(float64) string
	sum    func(float64) string
	binary bool // round values are powers of two
	about  string
}

func (u unit) pointer(f *float64) string {
	if f == nil {
		return "-"
	}
	return u.text(*f)
}

func unitOf(h api.History) unit {
	number := func(scale float64, unit string) func(float64) string {
		return func(f float64) string {
			f *= scale
			digits := 1
			if f == float64(int64(f)) {
				digits = 0
			}
			return strconv.FormatFloat(f, 'f', digits, 64) + unit
		}
	}
	switch h.Unit {
	case "bytes":
		return unit{text: func(f float64) string { return size.Short(uint64(max(f, 0))) }, binary: true}
	case "ns":
		return unit{text: number(100/1e9, "%"), sum: func(f float64) string { return strconv.FormatFloat(f/1e9, 'f', 3, 64) + "s" }, about: "of the time"}
	case "microjoules":
		return unit{text: number(1/1e6, "W"), sum: number(1/1e6, "J")}
	case "percent":
		return unit{text: number(1, "%")}
	case "watts":
		return unit{text: number(1, "W")}
	case "celsius":
		return unit{text: number(1, "C")}
	}
	if h.Counter {
		return unit{text: number(1, "/s"), sum: number(1, "")}
	}
	return unit{text: number(1, "")}
}

func (a *app) historyPlot(h api.History) error {
	unit := unitOf(h)
	c := timeChart{columns: a.plotColumns(), rows: 8, braille: a.utf8(), label: unit.text, binary: unit.binary, from: h.From, to: h.To}
	if len(h.Series) > 2 {
		c.rows = 4
	}
	for i, s := range h.Series {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		title := h.Figure + " of " + ofWhom(s) + shortUUID(s.CardUUID)
		if unit.about != "" {
			title += ", " + unit.about
		}
		fmt.Fprintln(a.stdout, oneLine(title))
		points := make([]point, 0, len(s.Points))
		for _, p := range s.Points {
			points = append(points, point{p.Time, valueOf(h, p)})
		}
		for _, line := range c.draw(points, time.Duration(h.StepSeconds)*time.Second) {
			if _, err := fmt.Fprintln(a.stdout, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func ofWhom(s api.HistorySeries) string {
	switch {
	case s.Share != "":
		return fmt.Sprintf("share %s (%s) on ", s.Share, s.Tenant)
	case s.Tenant != "":
		return fmt.Sprintf("tenant %s on ", s.Tenant)
	}
	return ""
}

// labelColumns are those left of a chart.
const labelColumns = 10

// plotColumns is how many values a chart has beside each other.
func (a *app) plotColumns() int {
	width := 80
	if file, ok := a.stdout.(*os.File); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil {
			width = columns
		}
	}
	cells := min(max(width-labelColumns-1, 20), 200)
	if a.utf8() {
		return 2 * cells
	}
	return cells
}

// utf8 says whether what is printed may be more than ASCII.
func (a *app) utf8() bool {
	locale := strings.ToLower(cmp.Or(a.getenv("LC_ALL"), a.getenv("LC_CTYPE"), a.getenv("LANG")))
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}
