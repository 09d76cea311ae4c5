// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// field is one member of a struct or union, or a parameter.
type field struct {
	ctype string // without the array bound
	name  string
	bound string // "16" of an array, empty for a scalar
}

var (
	fieldPattern     = regexp.MustCompile(`^([A-Za-z0-9_* ]*?[A-Za-z0-9_*])(?:\[(\d+)\])?\s*(\*+|\s)\s*([A-Za-z_][A-Za-z0-9_]*)(?: : (\d+))?$`)
	wordPattern      = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	innerTypePattern = regexp.MustCompile(`(__bindgen_ty_\d+|_u\d+)$`)
)

// plainWords are the words of a C type that name nothing of the API.
var plainWords = map[string]bool{
	"const": true, "unsigned": true, "signed": true, "int": true, "char": true, "long": true,
	"short": true, "float": true, "double": true, "void": true, "size_t": true,
}

// parseField reads "unsigned int[16] reserved" or "const void *name".
func parseField(text string) (field, error) {
	match := fieldPattern.FindStringSubmatch(strings.TrimSpace(text))
	if match == nil || !wordPattern.MatchString(match[1]) {
		return field{}, fmt.Errorf("field %q is not understood", text)
	}
	f := field{ctype: strings.TrimSpace(match[1]), bound: match[2], name: match[4]}
	if strings.HasPrefix(match[3], "*") {
		f.ctype += " " + match[3]
	}
	if match[5] != "" {
		return field{}, fmt.Errorf("field %q is a bit-field, which no type of the facts has had so far", text)
	}
	switch f.name { // what the extraction renamed
	case "type_":
		f.name = "type"
	case "fn_":
		f.name = "fn"
	}
	return f, nil
}

func parseFields(text string) ([]field, error) {
	var fields []field
	for _, part := range strings.Split(text, ";") {
		f, err := parseField(part)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func parseParameters(text string) ([]parameter, error) {
	if text == "" || text == "void" {
		return nil, nil
	}
	var parameters []parameter
	for _, part := range strings.Split(text, ",") {
		f, err := parseField(part)
		if err != nil {
			return nil, err
		}
		if f.bound != "" {
			return nil, fmt.Errorf("parameter %q is an array", part)
		}
		parameters = append(parameters, parameter{f.ctype, f.name})
	}
	return parameters, nil
}

// declare joins a C type and a name.
func declare(ctype, name string) string {
	if strings.HasSuffix(ctype, "*") {
		return ctype + name
	}
	return ctype + " " + name
}

// isPointer says whether a C type ends in a star.
func isPointer(ctype string) bool { return strings.HasSuffix(ctype, "*") }
