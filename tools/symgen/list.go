// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// symbol is one row of the one list.
type symbol struct {
	library    string // cuda or nvml
	name       string
	generation int    // CUDA version as the API counts it (12020); 0 for NVML, which is one list
	first      string // as the facts spell it
	base       string // of a _ptds/_ptsz twin, else empty
	fate       string
	class      string
	holder     string    // who holds what it makes when its maker is gone; empty: it makes nothing
	fn         *function // nil where the facts know no signature
}

// plain is the name whose hook and signature the symbol shares.
func (s symbol) plain() string {
	if s.base != "" {
		return s.base
	}
	return s.name
}

// oldest is the version that "<=11.4" stands for.
const oldest = 11040

// generations are the driver generations we export lists for.
var generations = []struct {
	name    string
	version int
}{{"11.8", 11080}, {"12.2", 12020}, {"13.0", 13000}, {"13.1", 13010}}

var (
	fates   = []string{"hooked", "passed", "absent"}
	holders = []string{"process", "holders", "pool", "binder", "unseen"}
	classes = []string{"allocates", "frees", "launches", "queries", "harmless"}
)

// parseVersion turns "12.2" or "<=11.4" into 12020 or 11040.
func parseVersion(text string) (int, error) {
	major, minor, ok := strings.Cut(strings.TrimPrefix(text, "<="), ".")
	high, err := strconv.Atoi(major)
	if !ok || err != nil {
		return 0, fmt.Errorf("version %q is not understood", text)
	}
	low, err := strconv.Atoi(minor)
	if err != nil || low < 0 || low > 99 {
		return 0, fmt.Errorf("version %q is not understood", text)
	}
	return high*1000 + low*10, nil
}

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
func twinsOf(symbols []symbol) map[string][]string {
	twins := map[string][]string{}
	for _, s := range symbols {
		if s.base != "" {
			twins[s.base] = append(twins[s.base], s.name)
		}
	}
	return twins
}

// readList joins the exports, the signatures and our fates into the one list,
// sorted by name (bytewise, so that cu* stands before nvml*).
func readList(dir string, cuda, nvml *facts) ([]symbol, error) {
	exports, err := readTable(filepath.Join(dir, "cuda-driver-exports.tsv"), 3)
	if err != nil {
		return nil, err
	}
	var symbols []symbol
	for _, row := range exports {
		s := symbol{library: "cuda", name: row[0], first: row[1]}
		if s.generation, err = parseVersion(row[1]); err != nil {
			return nil, fmt.Errorf("export %s: %w", s.name, err)
		}
		symbols = append(symbols, s)
	}
	for _, fn := range nvml.functions {
		symbols = append(symbols, symbol{library: "nvml", name: fn.name, first: "any"})
	}
	sort.Slice(symbols, func(i, j int) bool { return symbols[i].name < symbols[j].name })
	known := map[string]bool{}
	for _, s := range symbols {
		if known[s.name] {
			return nil, fmt.Errorf("export %s stands twice", s.name)
		}
		known[s.name] = true
	}
	functions := map[string]*function{}
	for _, f := range []*facts{cuda, nvml} {
		for i := range f.functions {
			functions[f.functions[i].name] = &f.functions[i]
		}
	}
	for i := range symbols {
		s := &symbols[i]
		if base, twin := twinBase(s.name); twin && known[base] {
			s.base = base
		}
		s.fn = functions[s.plain()]
	}
	return symbols, classify(dir, symbols)
}

// classify fills in fate and class and refuses a symbol without them.
func classify(dir string, symbols []symbol) error {
	rows, err := readRows(filepath.Join(dir, "fates.tsv"), 3, 4)
	if err != nil {
		return err
	}
	decided := map[string][]string{}
	for _, row := range rows {
		if decided[row[0]] != nil {
			return fmt.Errorf("fates.tsv: %s stands twice", row[0])
		}
		if !oneOf(row[1], fates) || !oneOf(row[2], classes) {
			return fmt.Errorf("fates.tsv: %s: no such fate or class: %s, %s", row[0], row[1], row[2])
		}
		if len(row) == 4 && !oneOf(row[3], holders) {
			return fmt.Errorf("fates.tsv: %s: no such holder: %s", row[0], row[3])
		}
		decided[row[0]] = row
	}
	used := map[string]bool{}
	for i := range symbols {
		s := &symbols[i]
		row := decided[s.name]
		if row == nil {
			row = decided[s.plain()]
		}
		if row == nil {
			return fmt.Errorf("symbol %s is unclassified: give it a row in fates.tsv", s.name)
		}
		used[row[0]] = true
		s.fate, s.class = row[1], row[2]
		if len(row) == 4 {
			s.holder = row[3]
		}
		if s.class == "allocates" && s.holder == "" {
			return fmt.Errorf("symbol %s allocates: say in fates.tsv who holds that when its maker is gone", s.name)
		}
		if s.fate == "hooked" && s.fn == nil {
			return fmt.Errorf("symbol %s is hooked but has no signature", s.name)
		}
		if s.fate == "passed" && s.class != "queries" && s.class != "harmless" {
			return fmt.Errorf("symbol %s %s and yet is passed", s.name, s.class)
		}
		if s.fate == "passed" && s.holder != "" && s.holder != "unseen" {
			return fmt.Errorf("symbol %s is passed: nobody sees its %s", s.name, s.holder)
		}
	}
	for name, row := range decided {
		if !used[name] && row[1] != "absent" {
			return fmt.Errorf("fates.tsv: %s is no export", name)
		}
	}
	return nil
}

func oneOf(word string, list []string) bool {
	for _, one := range list {
		if one == word {
			return true
		}
	}
	return false
}

// symbolsTSV writes the one list for people and other programs.
func symbolsTSV(symbols []symbol) string {
	var out strings.Builder
	out.WriteString(banner("# %s"))
	out.WriteString("# Columns: library, symbol, first driver generation (any: NVML is one list), base of a _ptds/_ptsz twin, fate, class. See data/fates.tsv.\n")
	for _, s := range symbols {
		fmt.Fprintf(&out, "%s\t%s\t%s\t%s\t%s\t%s\n", s.library, s.name, s.first, s.base, s.fate, s.class)
	}
	return out.String()
}
