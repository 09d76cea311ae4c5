// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/divvy-gpu/divvy/internal/plan"
)

// mostMaps bounds how many maps a page shows of one workload.
const mostMaps = 4

// nodeMaps draws the fleet, a column of cards per node, one map per row.
func nodeMaps[T any](workload, title string, rows []T, of func(*T) (string, []plan.NodeState)) (out []figure) {
	for i := range rows {
		policy, nodes := of(&rows[i])
		if len(nodes) == 0 || len(out) == mostMaps {
			continue
		}
		m := newNodeMap(nodes)
		p := newPlot(title+": "+workload+", "+policy, "", "")
		p.HideAxes()
		p.Add(m)
		out = append(out, figure{
			"nodes-" + fileName(workload) + "-" + fileName(policy), workload,
			"Each column is a node, each square one of its GPUs, nodes ordered by number of GPUs and model. Pale is idle, dark is full; orange is idle that nothing can use, because the node's CPU is gone (less than 1 % free).",
			plotWidth, m.height() + vg.Points(34), p,
		})
	}
	return out
}

// nodeMap is a plotter of card squares.
type nodeMap struct {
	nodes   []plan.NodeState // by number of cards, then model, then name
	columns int
	cell    vg.Length
}

func newNodeMap(nodes []plan.NodeState) *nodeMap {
	m := &nodeMap{nodes: slices.DeleteFunc(slices.Clone(nodes), func(n plan.NodeState) bool { return len(n.CardsPercent) == 0 })}
	slices.SortStableFunc(m.nodes, func(a, b plan.NodeState) int {
		return cmp.Or(cmp.Compare(len(b.CardsPercent), len(a.CardsPercent)), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Name, b.Name))
	})
	cards := 0
	for _, n := range m.nodes {
		cards += len(n.CardsPercent) + 1
	}
	// As many columns as make the map about half as high as wide.
	m.columns = max(24, int(math.Ceil(math.Sqrt(float64(cards)*2))))
	m.cell = min(plotWidth*0.97/vg.Length(m.columns), vg.Points(14))
	return m
}

// shelves splits the nodes into rows; each is as high as its first node.
func (m *nodeMap) shelves() [][]plan.NodeState {
	return slices.Collect(slices.Chunk(m.nodes, m.columns))
}

func (m *nodeMap) height() vg.Length {
	cells := 0
	for _, shelf := range m.shelves() {
		cells += len(shelf[0].CardsPercent) + 1
	}
	return m.cell * vg.Length(cells)
}

const mapShades = 10

func mapColour(shade int, starved bool) color.Color {
	if starved {
		return color.RGBA{0xe6, 0x9f, 0x00, 255}
	}
	part := float64(shade) / mapShades
	mix := func(from, to float64) uint8 { return uint8(from + (to-from)*part) }
	return color.RGBA{mix(0xd9, 0x00), mix(0xe6, 0x40), mix(0xf2, 0x80), 255}
}

// Plot draws all squares of one shade as one path: a large fleet has thousands.
func (m *nodeMap) Plot(c draw.Canvas, _ *plot.Plot) {
	paths := map[int]*vg.Path{}
	const starved = mapShades + 1
	top := c.Max.Y
	for _, shelf := range m.shelves() {
		for i, n := range shelf {
			for j, used := range n.CardsPercent {
				shade := (used*mapShades + 50) / 100
				if n.CPUPercent > 99 && used < 100 {
					shade = starved
				}
				if paths[shade] == nil {
					paths[shade] = &vg.Path{}
				}
				square(paths[shade], c.Min.X+m.cell*vg.Length(i), top-m.cell*vg.Length(j+1), m.cell*0.86)
			}
		}
		top -= m.cell * vg.Length(len(shelf[0].CardsPercent)+1)
	}
	for shade := range starved + 1 {
		if p := paths[shade]; p != nil {
			c.SetColor(mapColour(shade, shade == starved))
			c.Fill(*p)
		}
	}
}

func square(p *vg.Path, x, y, side vg.Length) {
	p.Move(vg.Point{X: x, Y: y})
	p.Line(vg.Point{X: x + side, Y: y})
	p.Line(vg.Point{X: x + side, Y: y + side})
	p.Line(vg.Point{X: x, Y: y + side})
	p.Close()
}
