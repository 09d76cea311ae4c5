// SPDX-License-Identifier: Apache-2.0

// Package chart says what a plot shows, as data: `divvy plan` makes charts and the program
// divvy-plot draws them, since the library that draws would cost every start of divvy 2 ms.
//
//	drawn, err := chart.By(ctx, dir.Tool("divvy-plot"), true)(charts)
package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

// Chart is one plot: lines, horizontal bars or a map of GPUs.
type Chart struct {
	Title  string `json:"title"`
	X      Axis   `json:"x"`
	Y      Axis   `json:"y"` // of bars and maps without meaning
	Legend Corner `json:"legend"`
	Lines  []Line `json:"lines,omitempty"`
	Bars   []Bar  `json:"bars,omitempty"`
	Map    *Map   `json:"map,omitempty"`
}

// Axis is what is counted along a side, and from where to where.
type Axis struct {
	Label       string  `json:"label"`
	Min         float64 `json:"min"`
	Max         float64 `json:"max"`
	Logarithmic bool    `json:"logarithmic,omitempty"` // Min is above 0 then
}

// Corner is where the names of lines stand: below on the right, or elsewhere.
type Corner struct {
	Top  bool `json:"top,omitempty"`
	Left bool `json:"left,omitempty"`
}

// Reference is the colour of a line that is drawn to compare with, thin and grey.
const Reference = -1

// Line is a line with its name in the legend.
type Line struct {
	Name   string  `json:"name"`
	Colour int     `json:"colour"` // from 0, alike in all charts; lines differ in their dashes too
	Points []Point `json:"points"`
}

// Point is one of a line.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Bar is one of a column of bars, the first on top.
type Bar struct {
	Name   string  `json:"name"`
	Colour int     `json:"colour"`
	Value  float64 `json:"value"`
	Label  string  `json:"label"` // beside its end
}

// Shades of a map's squares: from idle to full, then one that stands out.
const (
	Full    = 10
	Starved = Full + 1
)

// Map is a square per GPU and a column of squares per node, in rows of at most Columns nodes
// that are as high as their first node.
type Map struct {
	Columns int       `json:"columns"`
	Rows    [][]Shade `json:"rows"`
}

// Shade is the squares of one node: 0 to Full, or Starved.
type Shade []int

// Drawing is a chart as it was drawn.
type Drawing struct {
	SVG string `json:"svg"`
	PNG []byte `json:"png,omitempty"` // if it was asked for
}

// Order is what is to be drawn.
type Order struct {
	Charts []Chart `json:"charts"`
	PNG    bool    `json:"png"` // too
}

// Draw draws charts, in their order.
type Draw func([]Chart) ([]Drawing, error)

// By has a program draw.
func By(ctx context.Context, program string, png bool) Draw {
	return func(charts []Chart) ([]Drawing, error) { return draw(ctx, program, Order{charts, png}) }
}

func draw(ctx context.Context, program string, order Order) ([]Drawing, error) {
	input, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	var words strings.Builder
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &words
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(words.String()))
	}
	var drawn []Drawing
	if err := json.Unmarshal(output, &drawn); err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	if len(drawn) != len(order.Charts) {
		return nil, fmt.Errorf("%s gave %d drawings of %d", program, len(drawn), len(order.Charts))
	}
	return drawn, nil
}
