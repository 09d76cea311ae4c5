// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// SchemaHistory names the document of GET /v1/history.
const SchemaHistory = "divvy.history/v1"

// History answers GET /v1/history?figure=NAME&from=TIME&to=TIME&step=SECONDS, with share=, card=
// or tenant= of those alone: at most 10,000 points. What is not known, and times of which nothing
// is kept, have no point.
type History struct {
	Schema      string    `json:"schema"`
	Figure      string    `json:"figure"`
	Unit        string    `json:"unit"`    // bytes, percent, watts, celsius, count, ns, microjoules
	Counter     bool      `json:"counter"` // points have sum, else mean, min and max
	From        time.Time `json:"from"`    // multiples of the step
	To          time.Time `json:"to"`
	StepSeconds int64     `json:"stepSeconds"`
	// KeptSince is from when on points so fine are kept; null: none are.
	KeptSince *time.Time      `json:"keptSince"`
	Series    []HistorySeries `json:"series"`
}

// HistorySeries is of a GPU, of a share on a GPU, or of all shares of a tenant on a GPU.
type HistorySeries struct {
	Share    string         `json:"share"`  // empty: of a GPU or a tenant; -: shares of divvy run without a name
	Tenant   string         `json:"tenant"` // empty: of a GPU
	CardUUID string         `json:"cardUuid"`
	Points   []HistoryPoint `json:"points"`
}

// HistoryPoint is what was from a time on for a step.
type HistoryPoint struct {
	Time time.Time `json:"time"`
	// Seconds are of which the point is: less than the step where nobody looked all the time, more
	// where a counter went on while no agent was there.
	Seconds float64 `json:"seconds"`
	// Mean, Min and Max are of a gauge; of a tenant only the mean is known.
	Mean *float64 `json:"mean"`
	Min  *float64 `json:"min"`
	Max  *float64 `json:"max"`
	// Sum is by how much a counter went up.
	Sum *int64 `json:"sum"`
}

// SchemaHistoryEvents names the document of GET /v1/history/events.
const SchemaHistoryEvents = "divvy.history.events/v1"

// HistoryEvents answers GET /v1/history/events?from=TIME&to=TIME, with share= or card= of those alone.
type HistoryEvents struct {
	Schema  string    `json:"schema"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	LeftOut int       `json:"leftOut"` // older ones, of more than are read at once
	Events  []Event   `json:"events"`
}
