// SPDX-License-Identifier: Apache-2.0

// Package share holds the words in which shares of a GPU are described, and their
// bounds: the interface of the agent, its ledger, its arbiter and the commands all
// speak of these. It knows nothing of any of them.
package share

import (
	"fmt"
	"slices"
	"strings"
)

// Policy is how a share gets its time on a GPU.
type Policy string

// Policies.
const (
	BestEffort Policy = "best-effort" // what the others leave
	Equal      Policy = "equal"       // as much as every other
	Fixed      Policy = "fixed"       // a part that it always gets and never exceeds
	Weighted   Policy = "weighted"    // in proportion to its weight
)

// Policies lists all of them.
func Policies() []Policy { return []Policy{BestEffort, Equal, Fixed, Weighted} }

// Validate says whether it is one of Policies.
func (p Policy) Validate() error { return oneOf("policy", p, Policies()) }

// Enforcement says what holds a share to its limits.
type Enforcement string

// Levels of enforcement.
const (
	EnforcedMIG    Enforcement = "mig"
	EnforcedDriver Enforcement = "driver"
	EnforcedMPS    Enforcement = "mps"
	EnforcedFront  Enforcement = "front"  // our library: cooperative
	Booked         Enforcement = "booked" // nothing enforces it
)

// Enforcements lists the levels, strongest first.
func Enforcements() []Enforcement {
	return []Enforcement{EnforcedMIG, EnforcedDriver, EnforcedMPS, EnforcedFront, Booked}
}

// Validate says whether it is one of Enforcements.
func (e Enforcement) Validate() error { return oneOf("enforcement level", e, Enforcements()) }

// Meets says whether a level is at least as strong as the one that is demanded;
// none demanded is met by all.
func (e Enforcement) Meets(demanded Enforcement) bool {
	all := Enforcements()
	return demanded == "" || slices.Contains(all, e) && slices.Index(all, e) <= slices.Index(all, demanded)
}

// Range is what a number may be.
type Range struct {
	Least, Most int
	Unit        string // empty: none
}

// What the numbers of a share may be.
var (
	Cores    = Range{1, 100, "percent of a GPU"}
	Weight   = Range{1, 1000, ""}
	Priority = Range{0, 1000, ""} // higher goes first
	Threads  = Range{1, 100, "percent of a GPU's processors"}
)

// MaxNameBytes is how long the name of a share or of a tenant may be.
const MaxNameBytes = 63

// Check says whether a number is in the range.
func (r Range) Check(n int) error {
	if n >= r.Least && n <= r.Most {
		return nil
	}
	return fmt.Errorf("%s", strings.TrimSpace(fmt.Sprintf("%d is not between %d and %d %s", n, r.Least, r.Most, r.Unit)))
}

// CheckName says whether a share may have that name.
func CheckName(name string) error {
	valid := name != "" && len(name) <= MaxNameBytes
	for i, r := range []byte(name) {
		alphanumeric := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		valid = valid && (alphanumeric || i > 0 && (r == '-' || r == '_' || r == '.'))
	}
	if valid {
		return nil
	}
	return fmt.Errorf("share name %q is not made of a-z, 0-9, '-', '_' and '.', at most %d of them, letter or digit first", name, MaxNameBytes)
}

func oneOf[T ~string](noun string, word T, all []T) error {
	if slices.Contains(all, word) {
		return nil
	}
	return fmt.Errorf("no %s %q", noun, word)
}

// Or lists words as a sentence does: a, b or c.
func Or[T ~string](words []T) string {
	text := ""
	for i, word := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			text += " or "
		default:
			text += ", "
		}
		text += string(word)
	}
	return text
}
