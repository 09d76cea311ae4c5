// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/chart"
)

// mostMaps bounds how many maps a page shows of one workload.
const mostMaps = 4

// nodeMaps shows the fleet, a column of cards per node, one map per row.
func nodeMaps[T any](workload, title string, rows []T, of func(*T) (string, []plan.NodeState)) (out []figure) {
	for i := range rows {
		policy, nodes := of(&rows[i])
		if len(nodes) == 0 || len(out) == mostMaps {
			continue
		}
		out = append(out, figure{
			"nodes-" + fileName(workload) + "-" + fileName(policy), workload,
			"Each column is a node, each square one of its GPUs, nodes ordered by number of GPUs and model. Pale is idle, dark is full; orange is idle that nothing can use, because the node's CPU is gone (less than 1 % free).",
			chart.Chart{Title: title + ": " + workload + ", " + policy, Map: mapOf(nodes)},
		})
	}
	return out
}

// mapOf orders the nodes by number of cards, then model, then name.
func mapOf(nodes []plan.NodeState) *chart.Map {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n plan.NodeState) bool { return len(n.CardsPercent) == 0 })
	slices.SortStableFunc(nodes, func(a, b plan.NodeState) int {
		return cmp.Or(cmp.Compare(len(b.CardsPercent), len(a.CardsPercent)), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Name, b.Name))
	})
	cells := 0
	var shades []chart.Shade
	for _, n := range nodes {
		cells += len(n.CardsPercent) + 1
		shades = append(shades, shadeOf(n))
	}
	// As many columns as make the map about half as high as wide.
	columns := max(24, int(math.Ceil(math.Sqrt(float64(cells)*2))))
	return &chart.Map{Columns: columns, Rows: slices.Collect(slices.Chunk(shades, columns))}
}

func shadeOf(n plan.NodeState) chart.Shade {
	var shade chart.Shade
	for _, used := range n.CardsPercent {
		if n.CPUPercent > 99 && used < 100 {
			shade = append(shade, chart.Starved)
			continue
		}
		shade = append(shade, (used*chart.Full+50)/100)
	}
	return shade
}
