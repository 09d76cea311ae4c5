// SPDX-License-Identifier: Apache-2.0

package report

import (
	"image/color"
	"math"

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
			"Each column is a node, each square one of its cards, nodes grouped by card model. White is idle, dark is full; orange is idle that cannot be used because the node's CPU is gone (under 1 % free).",
			plotWidth, m.height() + vg.Points(50), p,
		})
	}
	return out
}

// nodeMap is a plotter of card squares.
type nodeMap struct {
	nodes   []plan.NodeState
	columns int
	tallest int // cards of the largest node
	cell    vg.Length
}

func newNodeMap(nodes []plan.NodeState) *nodeMap {
	m := &nodeMap{nodes: nodes}
	for _, n := range nodes {
		m.tallest = max(m.tallest, len(n.CardsPercent))
	}
	m.tallest = max(1, m.tallest)
	// As many columns as make the map about half as high as wide.
	m.columns = int(math.Ceil(math.Sqrt(float64(len(nodes)) * float64(m.tallest+1) * 2)))
	m.columns = min(max(m.columns, 24), max(24, len(nodes)))
	m.cell = plotWidth * 0.97 / vg.Length(m.columns)
	m.cell = min(m.cell, vg.Points(14))
	return m
}

func (m *nodeMap) rows() int { return (len(m.nodes) + m.columns - 1) / m.columns }

func (m *nodeMap) height() vg.Length {
	return m.cell * vg.Length(m.rows()*(m.tallest+1))
}

const mapShades = 10

func mapColour(shade int, starved bool) color.Color {
	if starved {
		return color.RGBA{0xe6, 0x9f, 0x00, 255}
	}
	part := float64(shade) / mapShades
	mix := func(from, to float64) uint8 { return uint8(from + (to-from)*part) }
	return color.RGBA{mix(0xf4, 0x00), mix(0xf7, 0x40), mix(0xfb, 0x80), 255}
}

// Plot draws all squares of one shade as one path: a large fleet has thousands.
func (m *nodeMap) Plot(c draw.Canvas, _ *plot.Plot) {
	paths := map[int]*vg.Path{}
	const starved = mapShades + 1
	for i, n := range m.nodes {
		x := c.Min.X + m.cell*vg.Length(i%m.columns)
		top := c.Max.Y - m.cell*vg.Length(i/m.columns*(m.tallest+1))
		for j, used := range n.CardsPercent {
			shade := (used*mapShades + 50) / 100
			if n.CPUPercent > 99 && used < 100 {
				shade = starved
			}
			p := paths[shade]
			if p == nil {
				p = &vg.Path{}
				paths[shade] = p
			}
			y := top - m.cell*vg.Length(j+1)
			side := m.cell * 0.86
			p.Move(vg.Point{X: x, Y: y})
			p.Line(vg.Point{X: x + side, Y: y})
			p.Line(vg.Point{X: x + side, Y: y + side})
			p.Line(vg.Point{X: x, Y: y + side})
			p.Close()
		}
	}
	for shade := range starved + 1 {
		if p := paths[shade]; p != nil {
			c.SetColor(mapColour(shade, shade == starved))
			c.Fill(*p)
		}
	}
}
