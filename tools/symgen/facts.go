// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxRows bounds a facts file; the largest has about 1,600 rows.
const maxRows = 20000

// typeRow is one row of a *-types.tsv file.
type typeRow struct {
	kind       string // struct, union or typedef
	name       string
	definition string
}

// constant is one enumerator or integer constant.
type constant struct {
	name  string
	value string
}

// function is one entry point with a known signature.
type function struct {
	name       string
	first      string // CUDA version, "<=11.4" for all older ones; empty for NVML
	result     string
	parameters []parameter
}

type parameter struct {
	ctype string
	name  string
}

// facts is what the data files of one library say.
type facts struct {
	library   string // cuda or nvml
	types     []typeRow
	enums     []string // enum type names in order of appearance
	values    map[string][]constant
	defines   []constant
	functions []function
}

// readTable reads a tab-separated file; lines that start with "# " are
// comments. Every row has exactly columns fields.
func readTable(path string, columns int) ([][]string, error) { return readRows(path, columns, columns) }

// readRows is readTable where the last columns may be missing.
func readRows(path string, least, columns int) ([][]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read facts: %w", err)
	}
	var rows [][]string
	for number, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) < least || len(fields) > columns {
			return nil, fmt.Errorf("%s:%d: %d columns, want %d", path, number+1, len(fields), columns)
		}
		if len(rows) == maxRows {
			return nil, fmt.Errorf("%s: more than %d rows", path, maxRows)
		}
		rows = append(rows, fields)
	}
	return rows, nil
}

// readFacts reads the types, enums and api files of a library.
func readFacts(dir, library, prefix string) (*facts, error) {
	f := &facts{library: library, values: map[string][]constant{}}
	rows, err := readTable(filepath.Join(dir, prefix+"-types.tsv"), 3)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		f.addType(typeRow{row[0], row[1], row[2]})
	}
	if err := f.checkInnerTypes(); err != nil {
		return nil, err
	}
	rows, err = readTable(filepath.Join(dir, prefix+"-enums.tsv"), 3)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		f.addConstant(row[0], constant{row[1], row[2]})
	}
	if library == "cuda" {
		rows, err = readTable(filepath.Join(dir, prefix+"-api.tsv"), 5)
	} else {
		rows, err = readTable(filepath.Join(dir, prefix+"-api.tsv"), 3)
	}
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		fn := function{name: row[0], result: row[len(row)-2]}
		if library == "cuda" {
			fn.first = row[1]
		}
		fn.parameters, err = parseParameters(row[len(row)-1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fn.name, err)
		}
		f.functions = append(f.functions, fn)
	}
	return f, nil
}

// addType keeps the last row of a name, at the place of the first.
func (f *facts) addType(row typeRow) {
	for i := range f.types {
		if f.types[i].name == row.name {
			f.types[i] = row
			return
		}
	}
	f.types = append(f.types, row)
}

// checkInnerTypes refuses an inner type that no member has: the member was lost,
// and every member after it lies at a wrong offset.
func (f *facts) checkInnerTypes() error {
	used := map[string]bool{}
	for _, row := range f.types {
		for _, word := range wordPattern.FindAllString(row.definition, -1) {
			used[word] = true
		}
	}
	for _, row := range f.types {
		if innerTypePattern.MatchString(row.name) && !used[row.name] {
			return fmt.Errorf("inner type %s is no member of a type: a member is missing from the facts", row.name)
		}
	}
	return nil
}

// addConstant keeps the last value of a name, at the place of the first.
func (f *facts) addConstant(enum string, c constant) {
	if enum == "#define" {
		f.defines = replaceOrAppend(f.defines, c)
		return
	}
	if _, known := f.values[enum]; !known {
		f.enums = append(f.enums, enum)
	}
	f.values[enum] = replaceOrAppend(f.values[enum], c)
}

func replaceOrAppend(list []constant, c constant) []constant {
	for i := range list {
		if list[i].name == c.name {
			list[i] = c
			return list
		}
	}
	return append(list, c)
}
