// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/divvy-gpu/divvy/internal/plan"
)

//go:embed page.html
var page string

// section is what the page shows of one workload.
type section struct {
	Workload  string
	Inflation []plan.Row
	Replay    []plan.ReplayRow
	Sharing   []plan.SharingRow
	Figures   []shown
}

type shown struct {
	Caption string
	SVG     template.HTML
}

// HTML writes one page that holds everything, its plots too, and needs nothing.
func (r *Report) HTML(w io.Writer, drawn []Drawing) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"fixed": func(digits int, x float64) string { return fmt.Sprintf("%.*f", digits, x) },
		"seconds": func(x float64) string {
			switch {
			case x >= 86400:
				return fmt.Sprintf("%.1f d", x/86400)
			case x >= 3600:
				return fmt.Sprintf("%.1f h", x/3600)
			case x >= 60:
				return fmt.Sprintf("%.1f min", x/60)
			}
			return fmt.Sprintf("%.1f s", x)
		},
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, struct {
		*Report
		Sections []section
	}{r, r.sections(drawn)})
}

func (r *Report) sections(drawn []Drawing) []section {
	var out []section
	index := map[string]int{}
	at := func(workload string) *section {
		i, ok := index[workload]
		if !ok {
			i = len(out)
			index[workload] = i
			out = append(out, section{Workload: workload})
		}
		return &out[i]
	}
	for _, row := range r.Inflation {
		s := at(row.Workload)
		s.Inflation = append(s.Inflation, row)
	}
	for _, row := range r.Replay {
		s := at(row.Workload)
		s.Replay = append(s.Replay, row)
	}
	for _, row := range r.Sharing {
		s := at(row.Workload)
		s.Sharing = append(s.Sharing, row)
	}
	for _, d := range drawn {
		// Inside a page the XML declaration has no place.
		svg := d.SVG[max(0, strings.Index(d.SVG, "<svg")):]
		s := at(d.section)
		s.Figures = append(s.Figures, shown{d.caption, template.HTML(svg)}) // our own drawing; labels are escaped by the library
	}
	return out
}
