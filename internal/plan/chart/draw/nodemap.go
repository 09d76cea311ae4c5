// SPDX-License-Identifier: Apache-2.0

package draw

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/divvy-gpu/divvy/internal/plan/chart"
)

// nodeMap is a plotter of card squares.
type nodeMap struct {
	*chart.Map
	cell vg.Length
}

func newNodeMap(m *chart.Map) *nodeMap {
	return &nodeMap{m, min(plotWidth*0.97/vg.Length(max(1, m.Columns)), vg.Points(14))}
}

// rowHeight is that of a row's first node and a gap, in cells.
func rowHeight(row []chart.Shade) vg.Length {
	if len(row) == 0 {
		return 0
	}
	return vg.Length(len(row[0]) + 1)
}

func (m *nodeMap) height() vg.Length {
	cells := vg.Length(0)
	for _, row := range m.Rows {
		cells += rowHeight(row)
	}
	return m.cell * cells
}

func mapColour(shade int) color.Color {
	if shade == chart.Starved {
		return colourOf(4)
	}
	part := float64(shade) / chart.Full
	mix := func(from, to float64) uint8 { return uint8(from + (to-from)*part) }
	return color.RGBA{mix(0xd9, 0x00), mix(0xe6, 0x40), mix(0xf2, 0x80), 255}
}

// Plot draws all squares of one shade as one path: a large fleet has thousands.
func (m *nodeMap) Plot(c draw.Canvas, _ *plot.Plot) {
	var paths [chart.Starved + 1]vg.Path
	top := c.Max.Y
	for _, row := range m.Rows {
		for i, node := range row {
			for j, shade := range node {
				shade = min(max(shade, 0), chart.Starved)
				square(&paths[shade], c.Min.X+m.cell*vg.Length(i), top-m.cell*vg.Length(j+1), m.cell*0.86)
			}
		}
		top -= m.cell * rowHeight(row)
	}
	for shade, p := range paths {
		if p != nil {
			c.SetColor(mapColour(shade))
			c.Fill(p)
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
