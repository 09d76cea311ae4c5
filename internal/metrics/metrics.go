// SPDX-License-Identifier: Apache-2.0

// Package metrics words a snapshot of the agent as Prometheus metrics. It reads nothing but the
// snapshot that it is given, asks nobody else, and decides nothing: a figure has one source.
// What is not known has no series. No process, command or value is ever a label.
//
//	mux.Handle("GET /metrics", metrics.Handler(snapshot))
package metrics

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/sample"
)

// metric is one name: the table of all is what is collected, documented and tested.
type metric struct {
	name   string // without divvy_
	help   string
	labels []string // besides those of its table
	source string
	each   func(*reading, emit)
}

// emit adds a series: its value, and the values of its labels.
type emit func(value float64, labels ...string)

func (m metric) fullName() string { return "divvy_" + m.name }

func (m metric) counter() bool { return strings.HasSuffix(m.name, "_total") }

// table is metrics that begin with the same labels.
type table struct {
	about  string
	labels []string
	all    []metric
}

// tables are all metrics of Divvy.
func tables() []table {
	return []table{
		{"GPUs", []string{"UUID"}, cardMetrics()},
		{"Shares on a GPU", []string{"share", "tenant", "UUID"}, shareMetrics()},
		{"The agent", nil, agentMetrics()},
	}
}

// reading is a snapshot, and its shares as they are shown.
type reading struct {
	*api.Snapshot
	rows []sample.Row
}

// gather words all metrics. Registries check and sort anew what the tables give in order,
// which for a thousand shares takes longer than all else.
func gather(s *api.Snapshot) []*dto.MetricFamily {
	r := &reading{s, sample.Rows(s)}
	var families []*dto.MetricFamily
	for _, t := range tables() {
		for _, m := range t.all {
			kind := dto.MetricType_GAUGE
			if m.counter() {
				kind = dto.MetricType_COUNTER
			}
			family := &dto.MetricFamily{Name: new(m.fullName()), Help: new(m.help), Type: kind.Enum()}
			names := slices.Concat(t.labels, m.labels)
			order := slices.Sorted(slices.Values(names))
			place := make([]int, len(names))
			for i, name := range names {
				place[i] = slices.Index(order, name)
			}
			m.each(r, func(value float64, labels ...string) {
				pairs := make([]dto.LabelPair, len(names))
				series := &dto.Metric{Label: make([]*dto.LabelPair, len(names))}
				for i, at := range place {
					pairs[at].Name, pairs[at].Value = &names[i], new(strings.ToValidUTF8(labels[i], "?"))
					series.Label[at] = &pairs[at]
				}
				if kind == dto.MetricType_COUNTER {
					series.Counter = &dto.Counter{Value: &value}
				} else {
					series.Gauge = &dto.Gauge{Value: &value}
				}
				family.Metric = append(family.Metric, series)
			})
			if len(family.Metric) > 0 {
				families = append(families, family)
			}
		}
	}
	return families
}

// Handler answers scrapes. snapshot returns what was measured, and does not wait for a driver.
func Handler(snapshot func(context.Context) (*api.Snapshot, error)) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return handler(snapshot, func(s *api.Snapshot) ([]*dto.MetricFamily, error) {
		own, err := process.Gather()
		families := append(gather(s), own...)
		slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
		return families, err
	})
}

// handler answers scrapes with what gather makes of a snapshot.
func handler(snapshot func(context.Context) (*api.Snapshot, error), gather func(*api.Snapshot) ([]*dto.MetricFamily, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := snapshot(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		all := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return gather(s) })
		promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

// inOrder goes through counts by name.
func inOrder(counts map[string]uint64) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			if !yield(name, counts[name]) {
				return
			}
		}
	}
}

// Document is the part of docs/metrics.md that lists all metrics.
func Document() string {
	var b strings.Builder
	for _, t := range tables() {
		fmt.Fprintf(&b, "### %s\n\n", t.about)
		if len(t.labels) > 0 {
			fmt.Fprintf(&b, "Labels: `%s`, and those named.\n\n", strings.Join(t.labels, "`, `"))
		}
		b.WriteString("| Name | What | Labels besides | Source |\n| --- | --- | --- | --- |\n")
		for _, m := range t.all {
			labels := ""
			if len(m.labels) > 0 {
				labels = "`" + strings.Join(m.labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.fullName(), m.help, labels, m.source)
		}
		b.WriteString("\n")
	}
	b.WriteString("### With dcgm-exporter's names\n\n" + dcgmDocument() + "\n")
	return b.String()
}
