// SPDX-License-Identifier: Apache-2.0

// Package draw draws charts, as SVG and as PNG.
package draw

import (
	"bytes"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/divvy-gpu/divvy/internal/plan/chart"
)

const (
	plotWidth  = 6.4 * vg.Inch
	plotHeight = 3.9 * vg.Inch
)

// All draws each chart.
func All(order chart.Order) ([]chart.Drawing, error) {
	drawn := make([]chart.Drawing, len(order.Charts))
	for i := range drawn {
		p, height, err := plotOf(&order.Charts[i])
		if err != nil {
			return nil, err
		}
		svg, err := render(p, height, "svg")
		if err != nil {
			return nil, err
		}
		// Readers without the font fall back to one of its kind.
		svg = bytes.ReplaceAll(svg, []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
		drawn[i].SVG = string(svg)
		if !order.PNG {
			continue
		}
		if drawn[i].PNG, err = render(p, height, "png"); err != nil {
			return nil, err
		}
	}
	return drawn, nil
}

func render(p *plot.Plot, height vg.Length, format string) ([]byte, error) {
	canvas, err := draw.NewFormattedCanvas(plotWidth, height, format)
	if err != nil {
		return nil, err
	}
	margin := vg.Points(6)
	p.Draw(draw.Crop(draw.New(canvas), margin, -2*margin, margin, -margin))
	var b bytes.Buffer
	_, err = canvas.WriteTo(&b)
	return b.Bytes(), err
}

// plotOf is the chart as a plot, and how high it is.
func plotOf(c *chart.Chart) (*plot.Plot, vg.Length, error) {
	p := newPlot(c)
	height := plotHeight
	switch {
	case c.Map != nil:
		m := newNodeMap(c.Map)
		p.HideAxes()
		p.Add(m)
		return p, m.height() + vg.Points(34), nil
	case c.Bars != nil:
		height = vg.Points(70 + 24*float64(len(c.Bars)))
		if err := addBars(p, c.Bars); err != nil {
			return nil, 0, err
		}
	default:
		if err := addLines(p, c.Lines); err != nil {
			return nil, 0, err
		}
	}
	// After what was added, which sets them too.
	p.X.Min, p.X.Max = c.X.Min, c.X.Max
	if c.Bars == nil {
		p.Y.Min, p.Y.Max = c.Y.Min, c.Y.Max
	}
	return p, height, nil
}

func newPlot(c *chart.Chart) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X.Label, c.Y.Label
	sans(&p.Title.TextStyle.Font, 12)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		sans(&axis.Label.TextStyle.Font, 10)
		sans(&axis.Tick.Label.Font, 9)
		axis.Label.Padding = vg.Points(4)
		axis.Tick.Marker = plainTicks{}
	}
	if c.X.Logarithmic {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	sans(&p.Legend.TextStyle.Font, 9)
	p.Legend.ThumbnailWidth = vg.Points(26)
	p.Legend.Padding = vg.Points(2)
	p.Legend.Top, p.Legend.Left = c.Legend.Top, c.Legend.Left
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(8), vg.Points(8)
	if c.Legend.Left {
		p.Legend.XOffs = vg.Points(8)
	}
	if c.Legend.Top {
		p.Legend.YOffs = 0
	}
	p.Title.Padding = vg.Points(8)
	p.BackgroundColor = color.White
	return p
}

func sans(f *font.Font, size float64) {
	f.Typeface, f.Variant, f.Size = "Liberation", "Sans", vg.Points(size)
}

// plainTicks labels the library's ticks without superfluous zeros.
type plainTicks struct{}

func (plainTicks) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strconv.FormatFloat(math.Round(ticks[i].Value*1e6)/1e6, 'f', -1, 64)
		}
	}
	return ticks
}

// palette has colours that people who see fewer of them can tell apart
// (Okabe and Ito).
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255}, {0xcc, 0x79, 0xa7, 255},
	{0xe6, 0x9f, 0x00, 255}, {0x56, 0xb4, 0xe9, 255}, {0x40, 0x40, 0x40, 255},
}

func colourOf(i int) color.RGBA { return palette[max(0, i)%len(palette)] }

func styleOf(colour int) draw.LineStyle {
	if colour == chart.Reference {
		return draw.LineStyle{Color: color.Gray{0x99}, Width: vg.Points(0.8), Dashes: []vg.Length{vg.Points(2), vg.Points(2)}}
	}
	style := draw.LineStyle{Color: colourOf(colour), Width: vg.Points(1.4)}
	i := max(0, colour) % len(palette)
	if i == 0 {
		style.Width = vg.Points(2.4)
	}
	if i >= 3 {
		style.Dashes = []vg.Length{vg.Points(6 - float64(i-3)), vg.Points(2)}
	}
	return style
}

func addLines(p *plot.Plot, lines []chart.Line) error {
	grid := plotter.NewGrid()
	grid.Vertical.Color = color.Gray{0xe4}
	grid.Horizontal.Color = color.Gray{0xe4}
	p.Add(grid)
	for _, l := range lines {
		points := make(plotter.XYs, len(l.Points))
		for i, at := range l.Points {
			points[i] = plotter.XY(at)
		}
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = styleOf(l.Colour)
		p.Add(line)
		p.Legend.Add(l.Name, line)
	}
	return nil
}

// addBars draws horizontal bars with their values.
func addBars(p *plot.Plot, bars []chart.Bar) error {
	names := make([]string, len(bars))
	for i, b := range bars {
		at := len(bars) - 1 - i // the first on top
		names[at] = b.Name
		bar, err := plotter.NewBarChart(plotter.Values{b.Value}, vg.Points(15))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin = true, float64(at)
		bar.Color, bar.LineStyle.Width = colourOf(b.Colour), 0
		text, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: b.Value, Y: float64(at)}}, Labels: []string{b.Label}})
		if err != nil {
			return err
		}
		text.Offset.X = vg.Points(4)
		sans(&text.TextStyle[0].Font, 9)
		text.TextStyle[0].YAlign = -0.4
		p.Add(bar, text)
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(bars))-0.4
	return nil
}
