// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scale is a unit that figures are written in.
type scale struct {
	suffix string
	of     float64 // base units
}

// scales are those of each unit, largest first; what is written uses the first
// that leaves at least one.
var scales = map[string][]scale{
	Bytes:     {{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}},
	Seconds:   {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}},
	Percent:   {{"%", 1}},
	PerSecond: {{"tokens/s", 1}},
	Tokens:    {{"tokens", 1}},
	Hours:     {{"GPU-hours", 1}},
}

// read are units that are understood and not written.
var readScales = map[string][]scale{
	Bytes: {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}},
}

// Figure writes a figure in a unit that people use, with at least three digits.
func Figure(x float64, unit string) string {
	list := scales[unit]
	if len(list) == 0 {
		return digits(x)
	}
	at := list[len(list)-1]
	for _, s := range list {
		if math.Abs(rounded(x/s.of)) >= 1 {
			at = s
			break
		}
	}
	return digits(x/at.of) + " " + at.suffix
}

// Digits writes a figure with three digits at least.
func Digits(x float64) string { return digits(x) }

// rounded keeps three digits.
func rounded(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	if err != nil {
		return x
	}
	return y
}

// digits writes three digits, or all before the point.
func digits(x float64) string {
	if math.Abs(x) < 100 {
		x = rounded(x)
	}
	switch size := math.Abs(x); {
	case x == 0:
		return "0"
	case size >= 1e15 || size < 1e-4:
		return strconv.FormatFloat(x, 'g', 4, 64)
	case size >= 100:
		return grouped(math.Round(x))
	case size >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case size >= 1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

const longestFigure = 60

// ParseFigure reads a figure in any of the units of its kind; a bare number is in
// the base unit: bytes, seconds, tokens per second.
func ParseFigure(text, unit string) (float64, error) {
	bad := invalidf("%q is no figure in %s", text, cmpUnit(unit))
	if len(text) > longestFigure {
		return 0, bad
	}
	number, of := strings.ReplaceAll(strings.TrimSpace(text), ",", ""), 1.0
	for _, s := range append(append([]scale{}, scales[unit]...), readScales[unit]...) {
		if rest, ok := strings.CutSuffix(number, s.suffix); ok && rest != "" && strings.ContainsAny(rest[len(rest)-1:], " 0123456789.") {
			number, of = strings.TrimSpace(rest), s.of
			break
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || x < 0 || x*of > 1e30 || strings.ContainsAny(number, "xXpP_nN") {
		return 0, bad
	}
	return x * of, nil
}

func cmpUnit(unit string) string {
	if unit == Count {
		return "plain numbers"
	}
	return fmt.Sprintf("units of %s", unit)
}
