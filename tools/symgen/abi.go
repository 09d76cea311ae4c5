// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
)

const functionPointer = "function pointer: "

// abi writes one library's header: types in dependency order, enums,
// constants and prototypes.
type abi struct {
	facts    *facts
	byName   map[string]typeRow
	isEnum   map[string]bool
	isTarget map[string]bool // struct tags that a typedef names
	done     map[string]bool
	out      strings.Builder
}

func newABI(f *facts) *abi {
	a := &abi{facts: f, byName: map[string]typeRow{}, isEnum: map[string]bool{}, isTarget: map[string]bool{}, done: map[string]bool{}}
	for _, row := range f.types {
		a.byName[row.name] = row
		if row.kind == "typedef" {
			a.isTarget[row.definition] = true
		}
	}
	for _, enum := range f.enums {
		if _, renamed := a.byName[enum]; !renamed {
			a.isEnum[enum] = true
		}
	}
	return a
}

// spell puts struct and union before the tags of a C type and refuses names
// that the facts do not know.
func (a *abi) spell(ctype string) (string, error) {
	var failed error
	spelled := wordPattern.ReplaceAllStringFunc(ctype, func(word string) string {
		if plainWords[word] || a.isEnum[word] {
			return word
		}
		row, known := a.byName[word]
		switch {
		case known && (row.kind == "typedef" || a.namesItself(row)):
			return word
		case known:
			return row.kind + " " + word
		case strings.HasSuffix(word, "_st") && isPointer(ctype):
			return "struct " + word
		}
		failed = fmt.Errorf("type %s is not known", word)
		return word
	})
	return spelled, failed
}

// namesItself says that a struct or union is used by its bare name: no typedef
// of the facts renames it.
func (a *abi) namesItself(row typeRow) bool {
	return !a.isTarget[row.name] && !strings.HasSuffix(row.name, "_st") && !strings.HasSuffix(row.name, "_union")
}

// need emits what must stand before a use of ctype by value or pointer.
func (a *abi) need(ctype string) error {
	for _, word := range wordPattern.FindAllString(ctype, -1) {
		row, known := a.byName[word]
		if !known {
			continue
		}
		if row.kind == "typedef" {
			if err := a.emitTypedef(row); err != nil {
				return err
			}
		}
		if isPointer(ctype) {
			continue
		}
		for known && row.kind == "typedef" && !strings.HasPrefix(row.definition, functionPointer) && !isPointer(row.definition) {
			row, known = a.byName[row.definition]
		}
		if known && row.kind != "typedef" {
			if err := a.emitAggregate(row); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *abi) emitTypedef(row typeRow) error {
	if a.done[row.name] {
		return nil
	}
	a.done[row.name] = true
	if signature, ok := strings.CutPrefix(row.definition, functionPointer); ok {
		return a.emitFunctionPointer(row.name, signature)
	}
	for _, word := range wordPattern.FindAllString(row.definition, -1) {
		if target, known := a.byName[word]; known && target.kind == "typedef" {
			if err := a.emitTypedef(target); err != nil {
				return fmt.Errorf("typedef %s: %w", row.name, err)
			}
		}
	}
	spelled, err := a.spell(row.definition)
	if err != nil {
		return fmt.Errorf("typedef %s: %w", row.name, err)
	}
	fmt.Fprintf(&a.out, "typedef %s;\n", declare(spelled, row.name))
	return nil
}

func (a *abi) emitFunctionPointer(name, signature string) error {
	result, arguments, ok := strings.Cut(signature, "(*)(")
	if !ok || !strings.HasSuffix(arguments, ")") {
		return fmt.Errorf("typedef %s: %q is not understood", name, signature)
	}
	var spelled []string
	for _, argument := range strings.Split(strings.TrimSuffix(arguments, ")"), ",") {
		argument = strings.TrimSpace(argument)
		if err := a.need(argument + " *"); err != nil {
			return fmt.Errorf("typedef %s: %w", name, err)
		}
		one, err := a.spell(argument)
		if err != nil {
			return fmt.Errorf("typedef %s: %w", name, err)
		}
		spelled = append(spelled, one)
	}
	fmt.Fprintf(&a.out, "typedef %s(*%s)(%s);\n", padded(strings.TrimSpace(result)), name, strings.Join(spelled, ", "))
	return nil
}

func padded(ctype string) string {
	if isPointer(ctype) {
		return ctype
	}
	return ctype + " "
}

func (a *abi) emitAggregate(row typeRow) error {
	if a.done[row.name] {
		return nil
	}
	a.done[row.name] = true
	if err := a.needFields(row); err != nil {
		return err
	}
	body, err := a.body(row, 1)
	if err != nil {
		return err
	}
	fmt.Fprintf(&a.out, "\n%s %s {\n%s};\n", row.kind, row.name, body)
	return nil
}

// needFields emits what the members of a struct or union stand on, looking
// through inner types, which are written in place.
func (a *abi) needFields(row typeRow) error {
	fields, err := parseFields(row.definition)
	if err != nil {
		return fmt.Errorf("%s %s: %w", row.kind, row.name, err)
	}
	for _, f := range fields {
		if inner, ok := a.inner(f.ctype); ok {
			err = a.needFields(inner)
		} else {
			err = a.need(f.ctype)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", row.kind, row.name, err)
		}
	}
	return nil
}

// inner finds the row of an inner anonymous type.
func (a *abi) inner(ctype string) (typeRow, bool) {
	if !innerTypePattern.MatchString(ctype) {
		return typeRow{}, false
	}
	row, known := a.byName[ctype]
	return row, known
}

// body writes the members of a struct or union.
func (a *abi) body(row typeRow, depth int) (string, error) {
	fields, err := parseFields(row.definition)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", row.kind, row.name, err)
	}
	var out strings.Builder
	indent := strings.Repeat("\t", depth)
	for _, f := range fields {
		bound := ""
		if f.bound != "" {
			bound = "[" + f.bound + "]"
		}
		if inner, ok := a.inner(f.ctype); ok {
			members, err := a.body(inner, depth+1)
			if err != nil {
				return "", err
			}
			name := " " + f.name
			if strings.HasPrefix(f.name, "__bindgen_anon") || f.name == "_anon" {
				name = ""
			}
			fmt.Fprintf(&out, "%s%s {\n%s%s}%s%s;\n", indent, inner.kind, members, indent, name, bound)
			continue
		}
		spelled, err := a.spell(f.ctype)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", row.kind, row.name, err)
		}
		fmt.Fprintf(&out, "%s%s%s;\n", indent, declare(spelled, f.name), bound)
	}
	return out.String(), nil
}

// cInteger spells an integer constant so that it keeps its value and sign.
func cInteger(text string) (string, error) {
	if value, err := strconv.ParseInt(text, 10, 64); err == nil {
		switch {
		case value == -1<<31:
			return "(-2147483647 - 1)", nil
		case value < -1<<31:
			return fmt.Sprintf("(%dll)", value), nil
		case value < 0:
			return fmt.Sprintf("(%d)", value), nil
		case value > 1<<32-1:
			return fmt.Sprintf("%dull", value), nil
		case value > 1<<31-1:
			return fmt.Sprintf("%du", value), nil
		}
		return text, nil
	}
	if _, err := strconv.ParseUint(text, 10, 64); err != nil {
		return "", fmt.Errorf("value %q is no integer", text)
	}
	return text + "ull", nil
}

func (a *abi) emitEnums() error {
	seen := map[string]string{}
	for _, enum := range a.facts.enums {
		tag := "enum {"
		if a.isEnum[enum] {
			tag = "typedef enum " + enum + " {"
		} else {
			tag = "/* values of " + enum + " */\nenum {"
		}
		fmt.Fprintf(&a.out, "\n%s\n", tag)
		for _, value := range a.facts.values[enum] {
			if other, twice := seen[value.name]; twice {
				return fmt.Errorf("enumerator %s stands in %s and %s", value.name, other, enum)
			}
			seen[value.name] = enum
			number, err := cInteger(value.value)
			if err != nil {
				return fmt.Errorf("enumerator %s: %w", value.name, err)
			}
			fmt.Fprintf(&a.out, "\t%s = %s,\n", value.name, number)
		}
		if a.isEnum[enum] {
			fmt.Fprintf(&a.out, "} %s;\n", enum)
		} else {
			fmt.Fprintf(&a.out, "};\n")
		}
	}
	return nil
}

// prototype spells a function's declaration without the semicolon.
func (a *abi) prototype(name string, fn function, first string) (string, error) {
	result, err := a.spell(fn.result)
	if err != nil {
		return "", fmt.Errorf("function %s: %w", fn.name, err)
	}
	parameters, err := a.parameters(fn, first)
	return declare(result, name) + parameters, err
}

// parameters spells a function's parameters in their parentheses.
func (a *abi) parameters(fn function, first string) (string, error) {
	arguments := []string{}
	if first != "" {
		arguments = append(arguments, first)
	}
	for _, p := range fn.parameters {
		spelled, err := a.spell(p.ctype)
		if err != nil {
			return "", fmt.Errorf("function %s: %w", fn.name, err)
		}
		arguments = append(arguments, declare(spelled, p.name))
	}
	if len(arguments) == 0 {
		arguments = append(arguments, "void")
	}
	return "(" + strings.Join(arguments, ", ") + ")", nil
}

// header writes the whole file. twins maps a function to the names that share
// its signature.
func (a *abi) header(guard string, twins map[string][]string) (string, error) {
	fmt.Fprintf(&a.out, "%s#ifndef %s\n#define %s\n\n#include <stddef.h>\n", banner("/* %s */"), guard, guard)
	if err := a.emitEnums(); err != nil {
		return "", err
	}
	a.out.WriteString("\n")
	for _, define := range a.facts.defines {
		number, err := cInteger(define.value)
		if err != nil {
			return "", fmt.Errorf("constant %s: %w", define.name, err)
		}
		fmt.Fprintf(&a.out, "#define %s %s\n", define.name, number)
	}
	a.out.WriteString("\n")
	for _, row := range a.facts.types {
		if row.kind == "typedef" || innerTypePattern.MatchString(row.name) {
			continue
		}
		fmt.Fprintf(&a.out, "%s %s;\n", row.kind, row.name)
		if a.namesItself(row) {
			fmt.Fprintf(&a.out, "typedef %s %s %s;\n", row.kind, row.name, row.name)
		}
	}
	for _, row := range a.facts.types {
		var err error
		switch {
		case row.kind == "typedef":
			err = a.emitTypedef(row)
		case !innerTypePattern.MatchString(row.name):
			err = a.emitAggregate(row)
		}
		if err != nil {
			return "", err
		}
	}
	a.out.WriteString("\n/* Whichever library defines these exports them. */\n#pragma GCC visibility push(default)\n")
	for _, fn := range a.facts.functions {
		for _, name := range append([]string{fn.name}, twins[fn.name]...) {
			prototype, err := a.prototype(name, fn, "")
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&a.out, "%s;\n", prototype)
		}
	}
	a.out.WriteString("#pragma GCC visibility pop\n\n#endif\n")
	return a.out.String(), nil
}

// banner is the first lines of each generated file; line wraps a comment.
func banner(line string) string {
	return fmt.Sprintf(line+"\n"+line+"\n", "SPDX-License-Identifier: Apache-2.0", "Generated by tools/symgen from the facts in data; do not edit.")
}
