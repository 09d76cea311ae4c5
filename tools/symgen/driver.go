// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// nullGeneration is the driver generation that the null driver plays.
const nullGeneration = 12020

// weakFunctions writes one weak definition per symbol, which a hand-written
// one replaces, and a table of all of them. body gives the statements before
// the result, or "" for none.
func weakFunctions(symbols []symbol, cuda, nvml *abi, table string, result func(symbol) string, body func(symbol) (string, error)) (string, error) {
	var out, rows strings.Builder
	for _, s := range symbols {
		fmt.Fprintf(&rows, "\t[SYM_%s] = (void *)%s,\n", s.name, s.name)
		if s.fn == nil {
			fmt.Fprintf(&out, "\n__attribute__((weak, visibility(\"default\"))) long %s(void);\nlong %s(void)\n{\n\treturn %s;\n}\n", s.name, s.name, result(s))
			continue
		}
		prototype, err := abiOf(s, cuda, nvml).prototype(s.name, *s.fn, "")
		if err != nil {
			return "", err
		}
		statements, err := body(s)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(&out, "\n__attribute__((weak)) %s\n{\n%s%s\treturn %s;\n}\n", prototype, unused(s.fn, statements), statements, result(s))
	}
	fmt.Fprintf(&out, "\n/* The function of each symbol; hand-written ones where they exist, NULL where this library has none. */\nvoid *const %s[DIVVY_SYMBOLS] = {\n%s};\n", table, rows.String())
	return out.String(), nil
}

// unused marks the parameters that the statements do not name.
func unused(fn *function, statements string) string {
	var out strings.Builder
	for _, p := range fn.parameters {
		if !regexp.MustCompile(`\b` + p.name + `\b`).MatchString(statements) {
			fmt.Fprintf(&out, "\t(void)%s;\n", p.name)
		}
	}
	return out.String()
}

// standinStubs answers NOT_SUPPORTED for what the stand-in does not implement.
func standinStubs(symbols []symbol, cuda, nvml *abi) (string, error) {
	result := func(s symbol) string {
		switch {
		case s.fn == nil:
			return "801"
		case s.fn.result == "nvmlReturn_t":
			return "NVML_ERROR_NOT_SUPPORTED"
		case s.fn.result == "CUresult":
			return "CUDA_ERROR_NOT_SUPPORTED"
		}
		return "\"\""
	}
	text, err := weakFunctions(symbols, cuda, nvml, "standin_functions", result, func(symbol) (string, error) { return "", nil })
	if err != nil {
		return "", err
	}
	return banner("/* %s */") + driverHead + "extern void *const standin_functions[DIVVY_SYMBOLS] __attribute__((visibility(\"hidden\")));\n" + text, nil
}

const driverHead = `#include "cuda_abi.h"
#include "nvml_abi.h"
#include "symbols.h"

#include <string.h>

`

// nullDriver writes the functions of the null driver: success at once.
func nullDriver(symbols []symbol, cuda, nvml *abi) (string, error) {
	var own []symbol
	for _, s := range symbols {
		if s.generation <= nullGeneration {
			own = append(own, s)
		}
	}
	result := func(s symbol) string {
		switch {
		case s.fn == nil:
			return "0"
		case s.fn.result == "nvmlReturn_t":
			return "NVML_SUCCESS"
		case s.fn.result == "CUresult":
			return "CUDA_SUCCESS"
		}
		return "\"\""
	}
	text, err := weakFunctions(own, cuda, nvml, "null_functions", result, func(s symbol) (string, error) {
		return nullBody(s, abiOf(s, cuda, nvml))
	})
	if err != nil {
		return "", err
	}
	return banner("/* %s */") + driverHead + `extern void *const null_functions[DIVVY_SYMBOLS] __attribute__((visibility("hidden")));
/* A handle and an address that no other call returned; hand-written. */
unsigned long long null_handle(void) __attribute__((visibility("hidden")));
unsigned long long null_address(unsigned long long bytes) __attribute__((visibility("hidden")));
` + text, nil
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

// nullBody fills the results of a function that tells or makes something:
// handles and addresses are new, structs zero (a version field stays), counts
// and plain values zero. What it does not understand stays untouched.
func nullBody(s symbol, a *abi) (string, error) {
	if nullInputs[s.plain()] {
		return "", nil
	}
	var out strings.Builder
	list := false // arrays before and after a count stay untouched
	for _, p := range s.fn.parameters {
		if countName.MatchString(p.name) && isPointer(p.ctype) && !strings.HasPrefix(p.ctype, "const ") {
			list = true
		}
	}
	for _, p := range s.fn.parameters {
		target, ok := strings.CutSuffix(p.ctype, "*")
		target = strings.TrimSpace(target)
		if !ok || isPointer(target) || strings.HasPrefix(target, "const ") || inputNames.MatchString(p.name) {
			continue
		}
		statement := a.nullResult(s, target, p.name, list)
		if statement != "" {
			fmt.Fprintf(&out, "\tif (%s)\n\t\t%s;\n", p.name, statement)
		}
	}
	return out.String(), nil
}

// nullResult is the statement that fills *name, or "".
func (a *abi) nullResult(s symbol, target, name string, list bool) string {
	row, known := a.byName[target]
	switch {
	case known && row.kind == "typedef" && isPointer(row.definition), handleNames[target]:
		switch {
		case strings.Contains(name, "rror"):
			return "*" + name + " = NULL"
		case list:
			return ""
		case handleNames[target]:
			return "*" + name + " = null_handle()"
		}
		return "*" + name + " = (" + target + ")null_handle()"
	case target == "CUdeviceptr":
		return "*" + name + " = null_address(1)"
	case target == "CUdeviceptr_v1":
		return "*" + name + " = (CUdeviceptr_v1)null_address(1)"
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
		return a.zeroStruct(row, name, list)
	case target == "void" || target == "char" || target == "unsigned char":
		return ""
	}
	return "*" + name + " = 0"
}

// zeroStruct clears a struct, but not the version its caller wrote in it.
func (a *abi) zeroStruct(row typeRow, name string, list bool) string {
	fields, err := parseFields(row.definition)
	if err != nil || list {
		return ""
	}
	if len(fields) == 1 && fields[0].name == "handle" && isPointer(fields[0].ctype) {
		return fmt.Sprintf("%s->handle = (void *)null_handle()", name)
	}
	if fields[0].name == "version" {
		if len(fields) == 1 {
			return ""
		}
		return fmt.Sprintf("memset((char *)%s + sizeof(%s->version), 0, sizeof(*%s) - sizeof(%s->version))", name, name, name, name)
	}
	return fmt.Sprintf("memset(%s, 0, sizeof(*%s))", name, name)
}
