// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

const (
	// Side is the width and the height of an image.
	Side = 8
	// Pixels is how many an image has.
	Pixels = Side * Side
	// Classes is how many digits there are.
	Classes = 10
	// Tolerance is the largest difference between the card's probabilities and
	// the CPU's: 1e-5 of the whole.
	Tolerance = 1e-5
)

// Image is a digit, row by row: 1 where there is ink.
type Image [Pixels]float32

// Probabilities says how likely an image is each digit.
type Probabilities [Classes]float32

// Digit is the likeliest one.
func (p Probabilities) Digit() int {
	best := 0
	for i, v := range p {
		if v > p[best] {
			best = i
		}
	}
	return best
}

// Distance is the largest difference of two answers; NaN is far from all.
func (p Probabilities) Distance(q Probabilities) float64 {
	most := 0.0
	for i := range p {
		d := math.Abs(float64(p[i]) - float64(q[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		most = max(most, d)
	}
	return most
}

// ReadImage reads eight lines of eight characters, # for ink and . for paper.
func ReadImage(text string) (Image, error) {
	var image Image
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	if len(lines) != Side {
		return image, fmt.Errorf("%d lines, want %d of %d characters, # or .", len(lines), Side, Side)
	}
	for y, line := range lines {
		line = strings.TrimSuffix(line, "\r")
		if len(line) != Side {
			return image, fmt.Errorf("line %d has %d characters, want %d", y+1, len(line), Side)
		}
		for x, c := range []byte(line) {
			switch c {
			case '#':
				image[y*Side+x] = 1
			case '.':
			default:
				return image, fmt.Errorf("line %d: %q is neither # nor .", y+1, c)
			}
		}
	}
	return image, nil
}

//go:embed digits.txt
var digitsText string

// sample is one test image: a digit with some pixels wrong; the same for the
// same number.
func sample(number int) (Image, error) {
	digits := strings.Split(digitsText, "\n\n")
	image, err := ReadImage(digits[number%len(digits)])
	random := rand.New(rand.NewPCG(uint64(number), 1))
	for range 3 {
		i := random.IntN(Pixels)
		image[i] = 1 - image[i]
	}
	return image, err
}
