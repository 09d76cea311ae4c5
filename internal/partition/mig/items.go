// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// splitName reads "1c.3g.20gb" as one slice of 3g.20gb, and "3g.20gb" as all
// (0).
func splitName(name string) (slices int, profile string, err error) {
	head, rest, ok := strings.Cut(name, ".")
	if digits, isCompute := strings.CutSuffix(head, "c"); ok && isCompute {
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > maxInstances {
			return 0, "", fmt.Errorf("%q is no profile", name)
		}
		slices, head, profile = n, "", rest
		head, rest, ok = strings.Cut(rest, ".")
	} else {
		profile = name
	}
	g, isInstance := strings.CutSuffix(head, "g")
	if n, err := strconv.Atoi(g); !ok || !isInstance || err != nil || n < 1 || !strings.Contains(rest, "gb") {
		return 0, "", fmt.Errorf("%q is no profile: they are called like 3g.40gb, 1g.10gb+me or 1c.3g.40gb", name)
	}
	return slices, profile, nil
}

// items turns a goal into instances of a product. Compute instances of one
// profile fill as few GPU instances as hold them, the largest first.
func items(p *facts.Product, m Goal) ([]item, error) {
	var want []item
	parts := map[int][]int{}
	for _, name := range slices.Sorted(maps.Keys(m.Devices)) {
		size, profile, err := splitName(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", partition.ErrImpossible, err)
		}
		i := p.Index(profile)
		if i < 0 {
			var names []string
			for _, f := range p.Profiles {
				names = append(names, f.Name)
			}
			return nil, fmt.Errorf("%w: the GPU has no profile %s; it has %s", partition.ErrImpossible, profile, strings.Join(names, ", "))
		}
		all := p.Profiles[i].Slices
		if size > all {
			return nil, fmt.Errorf("%w: %s wants %d of %d slices", partition.ErrImpossible, name, size, all)
		}
		for range m.Devices[name] {
			if size == 0 {
				want = append(want, item{profile: i, compute: []int{all}})
			} else {
				parts[i] = append(parts[i], size)
			}
		}
		if len(want)+len(parts[i]) > maxInstances*8 {
			return nil, fmt.Errorf("%w: more instances than any GPU holds", partition.ErrImpossible)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(parts)) {
		want = append(want, fill(i, parts[i], p.Profiles[i].Slices)...)
	}
	if len(want) > maxInstances {
		return nil, fmt.Errorf("%w: %d instances are more than any GPU holds", partition.ErrImpossible, len(want))
	}
	return want, nil
}

// fill packs compute instances, largest first, into the first that has room.
func fill(profile int, sizes []int, capacity int) []item {
	sizes = sorted(sizes)
	slices.Reverse(sizes)
	var filled []item
	var left []int
next:
	for _, size := range sizes {
		for n := range filled {
			if left[n] >= size {
				filled[n].compute = append(filled[n].compute, size)
				left[n] -= size
				continue next
			}
		}
		filled = append(filled, item{profile: profile, compute: []int{size}})
		left = append(left, capacity-size)
	}
	for n := range filled {
		filled[n].compute = sorted(filled[n].compute)
	}
	return filled
}
