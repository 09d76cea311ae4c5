// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// nullGeneration is the driver generation that the null driver plays.
const nullGeneration = 12020

// nullCalls writes a row for each function of the null driver: its signature,
// and what it fills before it says success. clib/null/calls.c makes functions of them.
func nullCalls(symbols []symbol, cuda, nvml *abi) (string, error) {
	var out strings.Builder
	out.WriteString(banner("/* %s */") + "/* NULL_CALL(result, name, parameters, what it fills) */\n")
	for _, s := range symbols {
		if s.generation > nullGeneration {
			continue
		}
		result, parameters, fills := "int", "(void)", ""
		if s.fn != nil {
			abi := abiOf(s, cuda, nvml)
			var err error
			if parameters, err = abi.parameters(*s.fn, ""); err != nil {
				return "", err
			}
			result, fills = s.fn.result, abi.nullFills(s)
		}
		fmt.Fprintf(&out, "NULL_CALL(%s, %s, %s, %s)\n", result, s.name, parameters, fills)
	}
	return out.String(), nil
}

var (
	countName   = regexp.MustCompile(`(?i)(count|^num[A-Z].*|size)$`)
	inputNames  = regexp.MustCompile(`^(options|optionValues|jitOptions|jitOptionsValues|libraryOptions|libraryOptionValues|attributes|dataSizes|location|resources|dependencies)$`)
	handleNames = map[string]bool{"CUmemGenericAllocationHandle": true, "CUtexObject": true, "CUsurfObject": true}
)

// nullInputs are functions whose writable pointers are input, or arrays that
// the caller sized.
var nullInputs = map[string]bool{
	"cuGraphicsMapResources": true, "cuGraphicsUnmapResources": true, "cuStreamUpdateCaptureDependencies": true,
	"cuModuleEnumerateFunctions": true, "cuLibraryEnumerateKernels": true, "nvmlDeviceGetFieldValues": true,
}

// nullFills fills the results of a function that tells or makes something:
// handles and addresses are new, structs zero (a version field stays), counts
// and plain values zero. What it does not understand stays untouched.
func (a *abi) nullFills(s symbol) string {
	if nullInputs[s.plain()] {
		return ""
	}
	list := false // arrays before and after a count stay untouched
	for _, p := range s.fn.parameters {
		if countName.MatchString(p.name) && isPointer(p.ctype) && !strings.HasPrefix(p.ctype, "const ") {
			list = true
		}
	}
	var fills []string
	for _, p := range s.fn.parameters {
		target, ok := strings.CutSuffix(p.ctype, "*")
		target = strings.TrimSpace(target)
		if !ok || isPointer(target) || strings.HasPrefix(target, "const ") || inputNames.MatchString(p.name) {
			continue
		}
		if fill := a.nullFill(s, target, p.name, list); fill != "" {
			fills = append(fills, fill+"("+p.name+")")
		}
	}
	return strings.Join(fills, " ")
}

// nullFill names the macro that fills *name, or "".
func (a *abi) nullFill(s symbol, target, name string, list bool) string {
	row, known := a.byName[target]
	switch {
	case known && row.kind == "typedef" && isPointer(row.definition), handleNames[target]:
		switch {
		case strings.Contains(name, "rror"):
			return "ZERO"
		case list:
			return ""
		}
		return "HANDLE"
	case target == "CUdeviceptr", target == "CUdeviceptr_v1":
		return "ADDRESS"
	}
	if s.class != "queries" {
		return ""
	}
	for known && row.kind == "typedef" && !isPointer(row.definition) {
		target = row.definition
		row, known = a.byName[target]
	}
	switch {
	case known && row.kind != "typedef":
		return structFill(row, list)
	case target == "void" || target == "char" || target == "unsigned char":
		return ""
	}
	return "ZERO"
}

// structFill clears a struct, but not the version its caller wrote in it.
func structFill(row typeRow, list bool) string {
	fields, err := parseFields(row.definition)
	switch {
	case err != nil || list:
		return ""
	case len(fields) == 1 && fields[0].name == "handle" && isPointer(fields[0].ctype):
		return "HANDLE"
	case fields[0].name == "version" && len(fields) == 1:
		return ""
	case fields[0].name == "version":
		return "ZERO_BEHIND_VERSION"
	}
	return "ZERO"
}

// lateCalls has a line for each function that divvy itself may call of the vendor's
// library of management.
func lateCalls(symbols []symbol) string {
	var out strings.Builder
	out.WriteString(banner("/* %s */"))
	for _, s := range symbols {
		if s.library == "nvml" {
			fmt.Fprintf(&out, "\tlate %s\n", s.name)
		}
	}
	return out.String()
}
