// SPDX-License-Identifier: Apache-2.0

package size

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]uint64{
		"8GiB": 8 * GiB, "8192MiB": 8 * GiB, "8192": 8 * GiB, "8589934592B": 8 * GiB, "0": 0, "1TiB": TiB,
		"1.5GiB": 1536 * MiB, "0.5": 512 * KiB, "1.50MiB": 1536 * KiB, "65MiB": 65 * MiB, "3KiB": 3 * KiB,
		"9223372036854775807B": math.MaxInt64, "0.0009765625KiB": 1,
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "GiB", "8GB", "8G", "-1", "+1", "8 GiB", "8gib", "1e3", "0x10", "1.MiB", ".5MiB", "1..5", "0.5B",
		"0.3MiB", "9223372036854775808B", "18446744073709551616", "99999999TiB", "1_000", "8GiBB", "8GiBMiB",
		"0.00000000000000000001TiB", strings.Repeat("1", 50),
	} {
		if got, err := Parse(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("Parse(%q) = %d, %v; want a syntax error", text, got, err)
		}
	}
}

func TestShort(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "0", 1: "1KiB", 64 * MiB: "64MiB", 1536 * MiB: "1.5GiB", 80 * GiB: "80GiB", 81559 * MiB: "79.6GiB",
	} {
		if got := Short(bytes); got != want {
			t.Errorf("Short(%d) = %q; want %q", bytes, got, want)
		}
	}
}

// FuzzParse: what is accepted equals exact arithmetic, and Format gives it back.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"8GiB", "8192", "1.5GiB", "1B", "0.25KiB", "x", "9223372036854775807B"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(text)
		if err != nil {
			return
		}
		if got > math.MaxInt64 {
			t.Fatalf("Parse(%q) = %d, more than fits", text, got)
		}
		number, unit := text, MiB
		for _, u := range units {
			if rest, ok := strings.CutSuffix(text, u.suffix); ok {
				number, unit = rest, u.bytes
				break
			}
		}
		exact, ok := new(big.Rat).SetString(number)
		if !ok {
			t.Fatalf("Parse(%q) accepted what is no number", text)
		}
		exact.Mul(exact, new(big.Rat).SetInt(new(big.Int).SetUint64(unit)))
		if exact.Cmp(new(big.Rat).SetInt(new(big.Int).SetUint64(got))) != 0 {
			t.Fatalf("Parse(%q) = %d, exactly it is %s", text, got, exact)
		}
		if again, err := Parse(Format(got)); err != nil || again != got {
			t.Fatalf("Parse(Format(%d)) = %d, %v", got, again, err)
		}
	})
}
