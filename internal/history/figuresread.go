// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// mostPoints bounds what is read at once.
const mostPoints = 10_000

// QueryError says what is wrong with a question.
type QueryError string

func (e QueryError) Error() string { return string(e) }

// UnknownError says of what there never was anything.
type UnknownError string

func (e UnknownError) Error() string { return string(e) }

func wrong(format string, args ...any) error { return QueryError(fmt.Sprintf(format, args...)) }

// ManyPointsError says that more is asked for than is read at once.
type ManyPointsError struct {
	Points int64
	Step   time.Duration // that would do
}

func (e *ManyPointsError) Error() string {
	return fmt.Sprintf("these are %d points, and %d at most are read at once", e.Points, mostPoints)
}

// Query asks for a figure: of a share, a GPU or a tenant, or of all GPUs, or of all shares where
// GPUs do not have it.
type Query struct {
	Figure              Figure
	From, To            time.Time
	Step                time.Duration
	Share, Card, Tenant string // one at most; a GPU by the start of its UUID
}

// ParseQuery reads what is asked of an agent.
func ParseQuery(values url.Values) (Query, error) {
	q := Query{Share: values.Get("share"), Card: values.Get("card"), Tenant: values.Get("tenant")}
	var err error
	if q.Figure, err = ParseFigure(values.Get("figure")); err != nil {
		return Query{}, wrong("%v", err)
	}
	for _, at := range []struct {
		name string
		into *time.Time
	}{{"from", &q.From}, {"to", &q.To}} {
		text := values.Get(at.name)
		if *at.into, err = time.Parse(time.RFC3339, text); err != nil {
			return Query{}, wrong("%s: %.40q is not a time like 2026-11-01T10:00:00Z", at.name, text)
		}
	}
	text := values.Get("step")
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return Query{}, wrong("step: %.40q is not a number of seconds", text)
	}
	q.Step = time.Duration(seconds) * time.Second
	return q, q.Validate()
}

// Values are what ParseQuery reads.
func (q Query) Values() url.Values {
	values := url.Values{"figure": {q.Figure.Name}, "from": {q.From.UTC().Format(time.RFC3339)}, "to": {q.To.UTC().Format(time.RFC3339)},
		"step": {strconv.FormatInt(int64(q.Step/time.Second), 10)}}
	for name, value := range map[string]string{"share": q.Share, "card": q.Card, "tenant": q.Tenant} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values
}

// Validate says what is wrong with a query.
func (q Query) Validate() error {
	finest := int64(Finest / time.Second)
	seconds := int64(q.Step / time.Second)
	named := 0
	for _, name := range []string{q.Share, q.Card, q.Tenant} {
		if name != "" {
			named++
		}
	}
	switch {
	case !q.From.Before(q.To):
		return wrong("from %s is not before to %s", q.From.UTC().Format(time.RFC3339), q.To.UTC().Format(time.RFC3339))
	case q.From.Year() < 1970 || q.To.Year() > 2200:
		return wrong("the time is not between the years 1970 and 2200")
	case seconds < finest || seconds%finest != 0 || q.Step > longest*24*time.Hour || q.Step%time.Second != 0:
		return wrong("step: %v is not a multiple of %v of at most %d days", q.Step, Finest, longest)
	case named > 1:
		return wrong("of a share, a GPU or a tenant, not of several at once")
	case (q.Share != "" || q.Tenant != "") && !q.Figure.OfShares:
		return wrong("%s is of GPUs, not of shares", q.Figure.Name)
	}
	return q.bounded(1)
}

// span is from when until when points are, unix seconds.
func (q Query) span() (from, to, step int64) {
	step = int64(q.Step / time.Second)
	return bucket(q.From.Unix(), step), bucket(q.To.Add(q.Step-1).Unix(), step), step
}

// bounded says whether so many series have too many points.
func (q Query) bounded(series int) error {
	from, to, step := q.span()
	points := (to - from) / step * int64(series)
	if points <= mostPoints {
		return nil
	}
	return &ManyPointsError{points, StepFor(q.To.Sub(q.From), mostPoints/series-1)}
}

// StepFor is a step with which a time has so many points at most.
func StepFor(span time.Duration, points int) time.Duration {
	const hour, day = time.Hour, 24 * time.Hour
	steps := []time.Duration{Finest, 2 * Finest, 3 * Finest, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 5 * day, 10 * day, 50 * day, longest * day}
	for _, step := range steps {
		if int64((span+step-1)/step) <= int64(points) {
			return step
		}
	}
	return steps[len(steps)-1]
}

// DefaultStep is a step with which a time has some points, and that is kept for what is so old.
func DefaultStep(from, to, now time.Time, points int) time.Duration {
	step := StepFor(to.Sub(from), points)
	for _, l := range levels {
		if now.Sub(from) <= l.keep {
			return max(step, time.Duration(l.seconds)*time.Second)
		}
	}
	return max(step, time.Hour)
}

// StepText writes a step as one gives it.
func StepText(step time.Duration) string {
	switch {
	case step%time.Hour == 0:
		return fmt.Sprintf("%dh", step/time.Hour)
	case step%time.Minute == 0:
		return fmt.Sprintf("%dm", step/time.Minute)
	}
	return fmt.Sprintf("%ds", step/time.Second)
}

// found is a series in the file, and in which it is shown.
type found struct {
	id          int64
	name, shown Series
}

// begin waits until one more may read; done ends that.
func (f *FiguresFile) begin(ctx context.Context) (done func(), err error) {
	select {
	case f.reading <- struct{}{}:
		return func() { <-f.reading }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("read history: %w", ctx.Err())
	}
}

// Read answers a query. It may be a QueryError, a ManyPointsError or an UnknownError.
func (f *FiguresFile) Read(ctx context.Context, q Query) (api.History, error) {
	from, to, step := q.span()
	answer := api.History{Schema: api.SchemaHistory, Figure: q.Figure.Name, Unit: q.Figure.Unit, Counter: q.Figure.Counter, StepSeconds: step, Series: []api.HistorySeries{},
		From: time.Unix(from, 0).UTC(), To: time.Unix(to, 0).UTC()}
	if err := q.Validate(); err != nil {
		return answer, err
	}
	done, err := f.begin(ctx)
	if err != nil {
		return answer, err
	}
	defer done()
	all, err := f.find(ctx, q, from)
	if err != nil {
		return answer, err
	}
	shown := map[Series]*thinned{}
	for _, s := range all {
		shown[s.shown] = &thinned{step: step}
	}
	if err := q.bounded(max(len(shown), 1)); err != nil {
		return answer, err
	}
	level := 0
	for i, l := range levels {
		if step%l.seconds == 0 {
			level = i
		}
	}
	var open bucketRows
	if last := f.open.Load(); last != nil { // before the file is read, which may have it by then
		open = last[level]
	}
	if err := f.readLevel(ctx, q.Figure, levels[level], from, to, open, all, shown); err != nil {
		return answer, fmt.Errorf("read history: %w", err)
	}
	var oldest sql.NullInt64
	if err := f.db.QueryRowContext(ctx, "SELECT min(time) FROM point WHERE step = ?", levels[level].seconds).Scan(&oldest); err != nil {
		return answer, fmt.Errorf("read history: %w", err)
	}
	if len(open.rows) > 0 && (!oldest.Valid || open.begin < oldest.Int64) {
		oldest = sql.NullInt64{Int64: open.begin, Valid: true}
	}
	if oldest.Valid {
		since := time.Unix(oldest.Int64, 0).UTC()
		answer.KeptSince = &since
	}
	for name, t := range shown {
		answer.Series = append(answer.Series, api.HistorySeries{Share: name.Share, Tenant: name.Tenant, CardUUID: name.Card, Points: q.points(t.end())})
	}
	slices.SortFunc(answer.Series, func(a, b api.HistorySeries) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.CardUUID, b.CardUUID))
	})
	return answer, nil
}

// find finds the series that are asked for, those that may have had something since from.
func (f *FiguresFile) find(ctx context.Context, q Query, from int64) ([]found, error) {
	where, what := "share = ''", []any{}
	if !q.Figure.OfCards {
		where = "share <> ''"
	}
	switch {
	case q.Share != "":
		where, what = "share = ?", []any{q.Share}
	case q.Tenant != "":
		where, what = "share <> '' AND tenant = ?", []any{q.Tenant}
	case q.Card != "":
		where, what = where+" AND substr(card, 1, length(?)) = ?", []any{q.Card, q.Card}
	}
	rows, err := f.db.QueryContext(ctx, "SELECT id, share, tenant, card, until FROM series WHERE "+where, what...)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer rows.Close()
	var all []found
	var cards []string
	for rows.Next() {
		var s found
		var until int64
		if err := rows.Scan(&s.id, &s.name.Share, &s.name.Tenant, &s.name.Card, &until); err != nil {
			return nil, fmt.Errorf("read history: %w", err)
		}
		s.shown = s.name
		if q.Tenant != "" {
			s.shown.Share = ""
		}
		if !slices.Contains(cards, s.shown.Card) {
			cards = append(cards, s.shown.Card)
		}
		if until > from {
			all = append(all, s)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	switch {
	case q.Card != "" && len(cards) > 1:
		return nil, wrong("several GPUs begin with %s: %s", q.Card, strings.Join(cards, ", "))
	case len(cards) == 0 && q.Share != "":
		return nil, UnknownError(fmt.Sprintf("no share %.80q", q.Share))
	case len(cards) == 0 && q.Tenant != "":
		return nil, UnknownError(fmt.Sprintf("no tenant %.80q", q.Tenant))
	case len(cards) == 0 && q.Card != "":
		return nil, UnknownError(fmt.Sprintf("no GPU %.80q", q.Card))
	}
	return all, nil
}

// readLevel gives what a level has of a time to those that show it; of the open time, what open has
// is newer than what the file has.
func (f *FiguresFile) readLevel(ctx context.Context, figure Figure, level level, from, to int64, open bucketRows, all []found, shown map[Series]*thinned) error {
	of := map[int64]found{}
	ids := []int64{}
	for _, s := range all {
		of[s.id] = s
		ids = append(ids, s.id)
	}
	opens := len(open.rows) > 0 && open.begin >= from && open.begin < to
	addOpen := func() {
		for _, s := range all {
			if row, is := open.rows[s.name]; is && row.has(figure) {
				shown[s.shown].add(open.begin, row)
			}
		}
		opens = false
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	var column string
	least, most := "NULL", "NULL"
	var columns []string
	if figure.Counter {
		column = counterColumns[figure.column]
		columns = []string{column}
	} else {
		column = gaugeColumns[figure.column]
		least, most = column+"Min", column+"Max"
		columns = []string{column, least, most}
	}
	rows, err := f.db.QueryContext(ctx, "SELECT time, series, ms, seenMs, "+column+", "+least+", "+most+" FROM "+points(columns)+
		" WHERE series IN (SELECT value FROM json_each(?)) AND "+column+" IS NOT NULL ORDER BY time, series", append(pointArgs(level, from, to), string(list))...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var at, id int64
		var row Row
		var is scanned
		var sum sql.NullInt64
		into := []any{&at, &id, &row.Ms, &row.SeenMs, &is.mean, &is.least, &is.most}
		if figure.Counter {
			into[4] = &sum
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if opens && at > open.begin {
			addOpen()
		}
		s := of[id]
		if _, newer := open.rows[s.name]; newer && at == open.begin {
			continue
		}
		if figure.Counter {
			row.Counters[figure.column] = Count{true, sum.Int64}
		} else {
			row.Gauges[figure.column] = is.gauge()
		}
		shown[s.shown].add(at, row)
	}
	if opens {
		addOpen()
	}
	return rows.Err()
}

// has says whether a figure is known.
func (r Row) has(f Figure) bool {
	if f.Counter {
		return r.Counters[f.column].Known
	}
	return r.Gauges[f.column].Known
}

// thinned makes rows for a step of rows for shorter times, which come in order; several of one time
// are beside each other.
type thinned struct {
	step int64
	all  []timedRow
	last timedRow // not in all yet
	some bool
}

// timedRow is from a time on, unix seconds.
type timedRow struct {
	at int64
	Row
}

func (t *thinned) add(at int64, row Row) {
	if t.some && t.last.at == at {
		t.last.Row = beside(t.last.Row, row)
		return
	}
	t.end()
	t.last, t.some = timedRow{at, row}, true
}

// end returns all.
func (t *thinned) end() []timedRow {
	if t.some {
		begin := bucket(t.last.at, t.step)
		if n := len(t.all); n > 0 && t.all[n-1].at == begin {
			t.all[n-1].Row = merge(t.all[n-1].Row, t.last.Row)
		} else {
			t.all = append(t.all, timedRow{begin, t.last.Row})
		}
		t.some = false
	}
	return t.all
}

// points are what is shown of rows.
func (q Query) points(rows []timedRow) []api.HistoryPoint {
	points := make([]api.HistoryPoint, 0, len(rows))
	for _, r := range rows {
		p := api.HistoryPoint{Time: time.Unix(r.at, 0).UTC(), Seconds: float64(r.SeenMs) / 1000}
		if q.Figure.Counter {
			p.Seconds, p.Sum = float64(r.Ms)/1000, &r.Counters[q.Figure.column].Sum
		} else {
			g := r.Gauges[q.Figure.column]
			p.Mean = &g.Mean
			if q.Tenant == "" {
				p.Min, p.Max = &g.Min, &g.Max
			}
		}
		points = append(points, p)
	}
	return points
}
