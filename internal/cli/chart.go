// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// timeChart draws a figure over time with characters.
type timeChart struct {
	columns  int // values beside each other
	rows     int // of characters
	braille  bool
	binary   bool // the scale ends at a power of two
	label    func(float64) string
	from, to time.Time
}

// point is a value from a time on.
type point struct {
	at    time.Time
	value float64
}

// draw returns the lines: the scale, the values, and the times.
func (c timeChart) draw(points []point, step time.Duration) []string {
	values := c.spread(points, step)
	top := 0.0
	known := false
	for _, v := range values {
		if !math.IsNaN(v) {
			top, known = max(top, v), true
		}
	}
	if !known {
		return []string{strings.Repeat(" ", labelColumns) + "(nothing is known)"}
	}
	top = roundUp(top, c.binary)
	wide, high := 1, 1 // dots of a character
	if c.braille {
		wide, high = 2, 4
	}
	dots := c.dots(values, top, c.rows*high)
	var lines []string
	for row := range c.rows {
		label := ""
		switch row {
		case 0:
			label = c.label(top)
		case c.rows / 2:
			label = c.label(top * float64(c.rows-row) / float64(c.rows))
		case c.rows - 1:
			label = c.label(0)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%*s |", labelColumns-2, label)
		for column := 0; column < c.columns; column += wide {
			b.WriteRune(c.character(dots, column, row*high))
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return append(lines, strings.Repeat(" ", labelColumns-1)+"+"+strings.Repeat("-", c.columns/wide), c.times(c.columns/wide))
}

// spread gives each column the mean of what was in its time; NaN: not known.
func (c timeChart) spread(points []point, step time.Duration) []float64 {
	values := make([]float64, c.columns)
	counts := make([]int, c.columns)
	whole := c.to.Sub(c.from)
	columnOf := func(at time.Time) float64 { return float64(at.Sub(c.from)) / float64(whole) * float64(c.columns) }
	for _, p := range points {
		first := int(columnOf(p.at))
		end := max(int(math.Ceil(columnOf(p.at.Add(step))-1e-9)), first+1)
		for column := max(first, 0); column < min(end, c.columns); column++ {
			values[column] += p.value
			counts[column]++
		}
	}
	for i, n := range counts {
		if n == 0 {
			values[i] = math.NaN()
		} else {
			values[i] /= float64(n)
		}
	}
	return values
}

// dots says for each column which of the dots from the top on are set: where the value is, and
// from there to where the one before was.
func (c timeChart) dots(values []float64, top float64, high int) [][]bool {
	all := make([][]bool, len(values))
	before := -1
	for i, v := range values {
		all[i] = make([]bool, high)
		if math.IsNaN(v) {
			before = -1
			continue
		}
		at := high - 1 - int(math.Round(min(max(v/top, 0), 1)*float64(high-1)))
		first, last := at, at
		if before >= 0 && before < at {
			first = before + 1
		} else if before > at {
			last = before - 1
		}
		for y := first; y <= last; y++ {
			all[i][y] = true
		}
		before = at
	}
	return all
}

// character is of the dots right and below of a place.
func (c timeChart) character(dots [][]bool, column, y int) rune {
	if !c.braille {
		if dots[column][y] {
			return '*'
		}
		return ' '
	}
	bits := [2][4]rune{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}
	r := rune(0x2800)
	for dx := range 2 {
		for dy := range 4 {
			if column+dx < len(dots) && dots[column+dx][y+dy] {
				r |= bits[dx][dy]
			}
		}
	}
	if r == 0x2800 {
		return ' ' // some fonts show where its dots are
	}
	return r
}

// times are what stands below the axis: begin, middle and end.
func (c timeChart) times(cells int) string {
	form := "15:04:05"
	if c.to.Sub(c.from) > 24*time.Hour {
		form = "Jan 2 15:04"
	} else if c.to.Sub(c.from) >= 10*time.Minute {
		form = "15:04"
	}
	begin, middle, end := c.from.UTC().Format(form), c.from.Add(c.to.Sub(c.from)/2).UTC().Format(form), c.to.UTC().Format(form)+" UTC"
	line := []byte(strings.Repeat(" ", max(labelColumns+cells, labelColumns+len(begin)+len(end)+1)))
	copy(line[labelColumns:], begin)
	copy(line[len(line)-len(end):], end)
	if at := labelColumns + cells/2 - len(middle)/2; at > labelColumns+len(begin) && at+len(middle) < len(line)-len(end) {
		copy(line[at:], middle)
	}
	return string(line)
}

// roundUp is where a scale ends that has a value: a power of two, or 1, 2 or 5 times one of ten.
func roundUp(value float64, binary bool) float64 {
	if !(value > 0) || math.IsInf(value, 0) {
		return 1
	}
	if binary {
		return math.Exp2(math.Ceil(math.Log2(value)))
	}
	ten := math.Pow(10, math.Floor(math.Log10(value)))
	for _, times := range []float64{1, 2, 5} {
		if value <= times*ten*(1+1e-9) {
			return times * ten
		}
	}
	return 10 * ten
}
