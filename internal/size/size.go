// SPDX-License-Identifier: Apache-2.0

// Package size reads and writes amounts of memory as people type them:
// 8GiB, 8192MiB, 512KiB, 8589934592B; a bare number is MiB. Powers of ten (8GB)
// are refused rather than guessed at.
package size

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Binary units.
const (
	KiB uint64 = 1 << 10
	MiB uint64 = 1 << 20
	GiB uint64 = 1 << 30
	TiB uint64 = 1 << 40
)

// ErrSyntax says that a text is not an amount of memory.
var ErrSyntax = errors.New("not a size")

const maxLength = 40

var units = []struct {
	suffix string
	bytes  uint64
}{
	{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1},
}

// Parse reads an amount. A fraction is allowed when it comes out as whole
// bytes: 1.5GiB, not 0.3B.
func Parse(text string) (uint64, error) {
	if len(text) > maxLength {
		return 0, fmt.Errorf("%w: too long", ErrSyntax)
	}
	number, unit := text, MiB
	for _, u := range units {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			number, unit = rest, u.bytes
			break
		}
	}
	whole, fraction, hasFraction := strings.Cut(number, ".")
	if !digits(whole) || hasFraction && !digits(fraction) {
		return 0, fmt.Errorf("%w: %q (write it like 8GiB, 8192MiB or 8589934592B; a bare number is MiB)", ErrSyntax, text)
	}
	n, err := strconv.ParseUint(whole, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is too large", ErrSyntax, text)
	}
	high, bytes := bits.Mul64(n, unit)
	if high != 0 || bytes > math.MaxInt64 {
		return 0, fmt.Errorf("%w: %q is too large", ErrSyntax, text)
	}
	part, err := fractionOf(strings.TrimRight(fraction, "0"), unit)
	if err != nil {
		return 0, fmt.Errorf("%w: %q %w", ErrSyntax, text, err)
	}
	if bytes+part > math.MaxInt64 {
		return 0, fmt.Errorf("%w: %q is too large", ErrSyntax, text)
	}
	return bytes + part, nil
}

// fractionOf is 0.DIGITS of unit, which must be whole bytes.
func fractionOf(fraction string, unit uint64) (uint64, error) {
	if fraction == "" {
		return 0, nil
	}
	// unit is 2^k: 0.d1..dn * 2^k is whole only if 5^n divides d1..dn, so more
	// than 40 digits never are; 19 keep the product within 128 bits.
	if len(fraction) > 19 {
		return 0, errors.New("has too many decimals")
	}
	n, err := strconv.ParseUint(fraction, 10, 64)
	if err != nil {
		return 0, errors.New("has too many decimals")
	}
	scale := uint64(1)
	for range len(fraction) {
		scale *= 10
	}
	high, low := bits.Mul64(n, unit)
	quotient, remainder := bits.Div64(high, low, scale) // n < scale, so high < scale
	if remainder != 0 {
		return 0, errors.New("is not a whole number of bytes")
	}
	return quotient, nil
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// Format writes an amount so that Parse gives it back exactly, in the largest
// unit that is whole.
func Format(bytes uint64) string {
	for _, u := range units {
		if bytes >= u.bytes && bytes%u.bytes == 0 {
			return strconv.FormatUint(bytes/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}

// Short writes an amount for a table: at most one decimal, rounded to nearest.
func Short(bytes uint64) string {
	for _, u := range units[:3] {
		if bytes >= u.bytes {
			if bytes%u.bytes == 0 {
				return strconv.FormatUint(bytes/u.bytes, 10) + u.suffix
			}
			return strconv.FormatFloat(float64(bytes)/float64(u.bytes), 'f', 1, 64) + u.suffix
		}
	}
	if bytes == 0 {
		return "0"
	}
	return strconv.FormatUint((bytes+KiB-1)/KiB, 10) + "KiB"
}
