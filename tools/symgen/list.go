// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// twinBase strips the suffix of a per-thread-default-stream twin.
func twinBase(name string) (string, bool) {
	for _, suffix := range []string{"_ptds", "_ptsz"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			return base, true
		}
	}
	return name, false
}

// twinsOf maps each base to its twins.
func twinsOf(exports [][]string) map[string][]string {
	twins := map[string][]string{}
	for _, row := range exports {
		if base, ok := twinBase(row[0]); ok {
			twins[base] = append(twins[base], row[0])
		}
	}
	return twins
}
