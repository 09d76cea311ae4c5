// SPDX-License-Identifier: Apache-2.0

// Package selector says what somebody means who names a GPU, and which names are near to one
// that nothing has. The agent, its ledger and the commands all go by it. It is pure, and knows
// nothing of what is named.
//
//	if selector.Names("GPU-1c2d", uuid, pciAddress) != selector.Nothing { ... }
//	near := selector.Nearest("alcie", names)
package selector

import (
	"slices"
	"strings"
)

// Match is how a word names a GPU.
type Match int

// Matches.
const (
	Nothing Match = iota // it does not
	Part                 // with the beginning of its UUID: others may begin like it
	Whole
)

// leastPart is how many letters of a UUID name it.
const leastPart = 4

// Names says how a word names a GPU: by UUID, its beginning, or PCI address.
func Names(word, uuid, pciAddress string) Match {
	word, uuid = strings.ToLower(word), strings.ToLower(uuid)
	switch {
	case uuid == word, samePCI(word, strings.ToLower(pciAddress)):
		return Whole
	case len(word) >= leastPart && (strings.HasPrefix(uuid, word) || strings.HasPrefix(strings.TrimPrefix(uuid, "gpu-"), word)):
		return Part
	}
	return Nothing
}

// samePCI compares addresses whose domain may have 4 or 8 digits, or be left out.
func samePCI(a, b string) bool {
	return a != "" && b != "" && trimDomain(a) == trimDomain(b)
}

func trimDomain(address string) string {
	if strings.Count(address, ":") < 2 {
		return "0:" + address
	}
	domain, rest, _ := strings.Cut(address, ":")
	domain = strings.TrimLeft(domain, "0")
	if domain == "" {
		domain = "0"
	}
	return domain + ":" + rest
}

// mostNear is how many names Nearest gives.
const mostNear = 3

// Nearest gives the names that are most like a word, nearest first.
func Nearest(word string, names []string) []string {
	type scored struct {
		name string
		far  int
	}
	var all []scored
	word = strings.ToLower(word)
	for _, n := range names {
		name := strings.ToLower(n)
		far := Distance(word, name)
		if strings.Contains(name, word) || strings.Contains(word, name) {
			far /= 2
		}
		all = append(all, scored{n, far})
	}
	slices.SortStableFunc(all, func(x, y scored) int { return x.far - y.far })
	var out []string
	for _, s := range all {
		if len(out) == mostNear || s.far > max(len(word)*2/3, 2) {
			break
		}
		out = append(out, s.name)
	}
	return out
}

// Distance is how many letters must change to make one word of another.
func Distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 1000
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			before, row[j] = row[j], min(row[j]+1, row[j-1]+1, before+cost)
		}
	}
	return row[len(b)]
}
