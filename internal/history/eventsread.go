// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// mostEventsRead bounds what is read at once: of more, the latest.
const mostEventsRead = 10_000

// EventQuery asks for what happened within a time, to a share, on a GPU, or all of it.
type EventQuery struct {
	Share, Card string // a GPU by its UUID, or its start; empty: any
	From, To    time.Time
}

// ParseEventQuery reads the values of a request.
func ParseEventQuery(values url.Values) (EventQuery, error) {
	q := EventQuery{Share: values.Get("share"), Card: values.Get("card")}
	var err error
	for _, at := range []struct {
		name string
		into *time.Time
	}{{"from", &q.From}, {"to", &q.To}} {
		text := values.Get(at.name)
		if *at.into, err = time.Parse(time.RFC3339, text); err != nil {
			return EventQuery{}, wrong("%s: %.40q is not a time like 2026-11-01T10:00:00Z", at.name, text)
		}
	}
	return q, q.Validate()
}

// Values are what ParseEventQuery reads.
func (q EventQuery) Values() url.Values {
	values := url.Values{"from": {q.From.UTC().Format(time.RFC3339)}, "to": {q.To.UTC().Format(time.RFC3339)}}
	for name, value := range map[string]string{"share": q.Share, "card": q.Card} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values
}

// Validate says what is wrong with a query.
func (q EventQuery) Validate() error {
	switch {
	case !q.From.Before(q.To):
		return wrong("from %s is not before to %s", q.From.UTC().Format(time.RFC3339), q.To.UTC().Format(time.RFC3339))
	case q.From.Year() < 1970 || q.To.Year() > 2200:
		return wrong("the time is not between the years 1970 and 2200")
	}
	return nil
}

// Events returns what happened from from on and before to, in order.
func (f *FiguresFile) Events(ctx context.Context, q EventQuery) (api.HistoryEvents, error) {
	answer := api.HistoryEvents{Schema: api.SchemaHistoryEvents, From: q.From.UTC(), To: q.To.UTC(), Events: []api.Event{}}
	if err := q.Validate(); err != nil {
		return answer, err
	}
	done, err := f.begin(ctx)
	if err != nil {
		return answer, err
	}
	defer done()
	const which = ` FROM event WHERE timeNs >= ? AND timeNs < ? AND (? = '' OR share = ?) AND substr(card, 1, length(?)) = ?`
	arguments := []any{q.From.UnixNano(), q.To.UnixNano(), q.Share, q.Share, q.Card, q.Card}
	var all int
	if err := f.db.QueryRowContext(ctx, "SELECT count(*)"+which, arguments...).Scan(&all); err != nil {
		return answer, fmt.Errorf("read history: %w", err)
	}
	answer.LeftOut = max(all-mostEventsRead, 0)
	rows, err := f.db.QueryContext(ctx, "SELECT event"+which+" ORDER BY timeNs DESC, sequence DESC LIMIT ?", append(arguments, mostEventsRead)...)
	if err != nil {
		return answer, fmt.Errorf("read history: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var raw string
		var e api.Event
		if err := rows.Scan(&raw); err != nil {
			return answer, fmt.Errorf("read history: %w", err)
		}
		if json.Unmarshal([]byte(raw), &e) == nil { // else somebody else wrote it
			answer.Events = append(answer.Events, e)
		}
	}
	slices.Reverse(answer.Events)
	if err := rows.Err(); err != nil {
		return answer, fmt.Errorf("read history: %w", err)
	}
	return answer, nil
}
