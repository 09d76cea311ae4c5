// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Policies returns the names of all policies, ours first, the baseline last.
func Policies() []string {
	return []string{"divvy", "fgd", "bestfit", "dotprod", "pack", "spread", "random"}
}

// NewPolicy returns the policy of that name; the workload is what divvy and
// fgd measure fragmentation against.
func NewPolicy(name string, w *Workload) (Policy, error) {
	switch name {
	case "divvy":
		return NewDivvy(w), nil
	case "fgd":
		return NewFGD(w), nil
	case "bestfit":
		return NewBestFit(), nil
	case "dotprod":
		return NewDotProduct(), nil
	case "pack":
		return NewPack(), nil
	case "spread":
		return NewSpread(), nil
	case "random":
		return NewRandom(), nil
	}
	return nil, fmt.Errorf("policy %q: %w: the policies are %s", name, ErrInvalid, strings.Join(Policies(), ", "))
}

// CheckPolicies reports the first name that is no policy.
func CheckPolicies(names []string) error {
	for _, name := range names {
		if !slices.Contains(Policies(), name) {
			_, err := NewPolicy(name, nil)
			return err
		}
	}
	return nil
}
