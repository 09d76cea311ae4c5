// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// carriage is a row of remote.tsv: how a symbol gets to a worker beside the GPU.
type carriage struct {
	number     int
	class      string
	parameters []string // a word for each; nil when special
	special    bool     // encoder and decoder are written by hand
	own        bool     // the library has a function of its own, which does more than the row says
	reason     string   // of a refusal
}

var (
	carriages   = []string{"local", "oneway", "deferred", "sync", "refused"}
	wordOfWire  = regexp.MustCompile(`^(value|float|handle-?|string|in|out|both|(?:in|out|both)\[(?:\d+|\*?\w+)\])$`)
	wireNumbers = 1 << 15 // 256 and the number fit 16 bits
)

// readCarriages reads remote.tsv and refuses a symbol without a complete row.
func readCarriages(dir string, symbols []symbol) (map[string]carriage, error) {
	rows, err := readRows(filepath.Join(dir, "remote.tsv"), 3, 5)
	if err != nil {
		return nil, err
	}
	table, numbers := map[string]carriage{}, map[int]string{}
	for _, row := range rows {
		row = append(row, "", "")[:5]
		number, err := strconv.Atoi(row[1])
		if err != nil || number < 1 || number > wireNumbers {
			return nil, fmt.Errorf("remote.tsv: %s: %q is no number of a call", row[0], row[1])
		}
		if other, twice := numbers[number]; twice {
			return nil, fmt.Errorf("remote.tsv: %s and %s have the number %d", other, row[0], number)
		}
		if _, twice := table[row[0]]; twice {
			return nil, fmt.Errorf("remote.tsv: %s stands twice", row[0])
		}
		numbers[number] = row[0]
		c := carriage{number: number, class: row[2], special: row[3] == "special", reason: row[4]}
		if !oneOf(c.class, carriages) {
			return nil, fmt.Errorf("remote.tsv: %s: no such class: %s", row[0], c.class)
		}
		if (c.class == "refused") != (c.reason != "") {
			return nil, fmt.Errorf("remote.tsv: %s: a refusal has a reason, and nothing else has one", row[0])
		}
		if !c.special {
			c.parameters = strings.Fields(row[3])
			if len(c.parameters) > 0 && c.parameters[0] == "own" {
				c.own, c.parameters = true, c.parameters[1:]
			}
		}
		table[row[0]] = c
	}
	used := map[string]bool{}
	for _, s := range symbols {
		c, ok := table[s.plain()]
		if !ok {
			return nil, fmt.Errorf("symbol %s is not carried: give it a row in remote.tsv", s.name)
		}
		used[s.plain()] = true
		if err := c.complete(s); err != nil {
			return nil, fmt.Errorf("remote.tsv: %s: %w", s.plain(), err)
		}
	}
	for name := range table {
		if !used[name] {
			return nil, fmt.Errorf("remote.tsv: %s is no export", name)
		}
	}
	return table, nil
}

// generated says whether the call is encoded and decoded by its row alone.
func (c carriage) generated() bool {
	return !c.special && (c.class == "oneway" || c.class == "sync")
}

// complete says what a row lacks.
func (c carriage) complete(s symbol) error {
	if c.class == "refused" || c.class == "local" {
		return nil
	}
	if s.fn == nil {
		return fmt.Errorf("no signature is known, so it can only be refused")
	}
	if !c.generated() {
		return nil
	}
	if len(c.parameters) != len(s.fn.parameters) {
		return fmt.Errorf("%d words for %d parameters", len(c.parameters), len(s.fn.parameters))
	}
	for i, word := range c.parameters {
		p := s.fn.parameters[i]
		if !wordOfWire.MatchString(word) {
			return fmt.Errorf("%s: %q is not understood", p.name, word)
		}
		points := isPointer(p.ctype)
		shows := strings.HasPrefix(word, "in") || strings.HasPrefix(word, "out") || strings.HasPrefix(word, "both") || word == "string"
		if shows && !points {
			return fmt.Errorf("%s: %s is no pointer", p.name, p.ctype)
		}
		if strings.HasPrefix(word, "out") && strings.HasPrefix(p.ctype, "const ") {
			return fmt.Errorf("%s: nothing can be written to %s", p.name, p.ctype)
		}
		if word == "float" {
			return fmt.Errorf("%s: a float does not travel with the others: special", p.name)
		}
		if _, _, err := countOf(word, *s.fn); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// countOf returns how the elements of a parameter are counted, as the library's and
// the worker's table says it: ONE, BYTES and how many, BY or POINTED and the parameter.
func countOf(word string, fn function) (string, int, error) {
	_, text, ok := strings.Cut(strings.TrimSuffix(word, "]"), "[")
	if !ok {
		return "ONE", 0, nil
	}
	if bytes, err := strconv.Atoi(text); err == nil {
		return "BYTES", bytes, nil
	}
	how, name := "BY", text
	if strings.HasPrefix(text, "*") {
		how, name = "POINTED", text[1:]
	}
	for i, p := range fn.parameters {
		if p.name == name {
			if (how == "POINTED") != isPointer(p.ctype) {
				return "", 0, fmt.Errorf("%s is %s", name, p.ctype)
			}
			return how, i, nil
		}
	}
	return "", 0, fmt.Errorf("there is no parameter %s", name)
}

// wire collects what the tables of calls need.
type wire struct {
	cuda, nvml *abi
	kinds      []string // C types of handles
	types      []string // pointed to, in order of first use
	places     map[string][]place
}

// place is a handle inside a structure.
type place struct {
	path string // as offsetof takes it; "" for a handle that is the element itself
	kind string
}

// handleKind returns the C type of the handle that a type is, or "".
func (w *wire) handleKind(a *abi, ctype string) string {
	if ctype == "CUmemGenericAllocationHandle" {
		return ctype
	}
	row, known := a.byName[ctype]
	if !known {
		return ""
	}
	if row.kind == "typedef" && isPointer(row.definition) && !strings.HasPrefix(row.definition, functionPointer) && !strings.HasPrefix(row.definition, "void") {
		return ctype
	}
	for known && row.kind == "typedef" {
		row, known = a.byName[row.definition]
	}
	if !known {
		return ""
	}
	if fields, err := parseFields(row.definition); err == nil && len(fields) == 1 && fields[0].name == "handle" && isPointer(fields[0].ctype) {
		return ctype
	}
	return ""
}

// kind returns the name of a handle's kind in C.
func (w *wire) kind(ctype string) string {
	if !oneOf(ctype, w.kinds) {
		w.kinds = append(w.kinds, ctype)
	}
	return "KIND_" + ctype
}

// pointee spells what a parameter points to: an element's C type.
func pointee(ctype string) string {
	base := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(ctype), "*"))
	return strings.TrimSpace(strings.TrimPrefix(base, "const "))
}

// element numbers the type that a parameter points to.
func (w *wire) element(a *abi, ctype string) (string, error) {
	base := pointee(ctype)
	if base == "void" {
		base = "char"
	}
	spelled, err := a.spell(base)
	if err != nil {
		return "", err
	}
	id := "TYPE_" + strings.NewReplacer(" ", "_", "*", "p").Replace(base)
	if _, known := w.places[id]; known {
		return id, nil
	}
	var places []place
	if kind := w.handleKind(a, base); kind != "" {
		places = append(places, place{"", w.kind(kind)})
	} else if base == "CUDA_RESOURCE_DESC" {
		places = append(places, place{"res", "KIND_RESOURCE"})
	} else {
		places = w.handlesIn(a, base, "")
	}
	w.places[id] = places
	w.types = append(w.types, id+", "+spelled)
	return id, nil
}

// handlesIn finds the handles inside a structure, but not in its unions: which member
// is meant only the caller knows.
func (w *wire) handlesIn(a *abi, ctype, path string) []place {
	row, known := a.byName[ctype]
	for known && row.kind == "typedef" {
		row, known = a.byName[row.definition]
	}
	if !known || row.kind != "struct" {
		return nil
	}
	fields, err := parseFields(row.definition)
	if err != nil {
		return nil
	}
	var places []place
	for _, f := range fields {
		if f.bound != "" || strings.HasPrefix(f.name, "__bindgen_anon") || f.name == "_anon" {
			continue
		}
		at := path + f.name
		if kind := w.handleKind(a, f.ctype); kind != "" {
			places = append(places, place{at, w.kind(kind)})
		} else if !isPointer(f.ctype) {
			places = append(places, w.handlesIn(a, f.ctype, at+".")...)
		}
	}
	return places
}

// versioned says whether a structure of NVML begins with its own size and version.
func (w *wire) versioned(spelled string) bool {
	row, known := w.nvml.byName[spelled]
	for known && row.kind == "typedef" {
		row, known = w.nvml.byName[row.definition]
	}
	if !known || row.kind != "struct" {
		return false
	}
	fields, err := parseFields(row.definition)
	return err == nil && len(fields) > 1 && fields[0].name == "version" && fields[0].ctype == "unsigned int"
}

// shape writes the row of a call that travels by its row alone.
func (w *wire) shape(a *abi, s symbol, c carriage) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "REMOTE_CALL(%s, %d, %d, %d", s.name, c.number, btoi(c.class == "oneway"), len(c.parameters))
	for i, word := range c.parameters {
		p := s.fn.parameters[i]
		bare, _, _ := strings.Cut(strings.TrimSuffix(word, "-"), "[")
		count, by, err := countOf(word, *s.fn)
		if err != nil {
			return "", err
		}
		switch bare {
		case "value":
			fmt.Fprintf(&out, ", {HOW_VALUE, 0, 0, 0, 0, 0}")
		case "string":
			fmt.Fprintf(&out, ", {HOW_STRING, 0, 0, 0, TYPE_char, 0}")
		case "handle":
			kind := w.handleKind(a, p.ctype)
			if kind == "" {
				return "", fmt.Errorf("%s: %s: %s is no handle", s.name, p.name, p.ctype)
			}
			fmt.Fprintf(&out, ", {HOW_HANDLE, 0, %d, 0, 0, %s}", btoi(word == "handle-"), w.kind(kind))
		default:
			id, err := w.element(a, p.ctype)
			if err != nil {
				return "", err
			}
			width := "0"
			if count == "POINTED" {
				width = "sizeof(" + pointee(s.fn.parameters[by].ctype) + ")"
			}
			fmt.Fprintf(&out, ", {HOW_%s, COUNT_%s, %d, %s, %s, 0}", strings.ToUpper(bare), count, by, width, id)
		}
	}
	out.WriteString(")\n")
	return out.String(), nil
}

// twinStub writes the twin of a function that is written by hand.
func twinStub(out *strings.Builder, s symbol, a *abi) error {
	parameters, err := a.parameters(*s.fn, "")
	if err != nil {
		return err
	}
	var names []string
	for _, p := range s.fn.parameters {
		names = append(names, p.name)
	}
	fmt.Fprintf(out, "REMOTE_TWIN(%s, %s, %s, %s, (%s))\n", s.fn.result, s.name, s.plain(), parameters, strings.Join(names, ", "))
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// remoteFiles writes the tables of library and worker: what each call is made of, the
// functions of the library that its row alone makes, and those that are refused.
func remoteFiles(symbols []symbol, table map[string]carriage, cuda, nvml *abi) (map[string]string, error) {
	w := &wire{cuda: cuda, nvml: nvml, places: map[string][]place{}}
	var calls, stubs, numbers strings.Builder
	for _, s := range symbols {
		c, a := table[s.plain()], abiOf(s, cuda, nvml)
		twin := btoi(s.base != "")
		if s.base == "" {
			fmt.Fprintf(&numbers, "#define CALL_%s %d\n", s.name, c.number)
			if c.generated() {
				row, err := w.shape(a, s, c)
				if err != nil {
					return nil, err
				}
				calls.WriteString(row)
			}
		}
		switch {
		case c.generated() && !(c.own && s.base == ""):
			if c.own {
				if err := twinStub(&stubs, s, a); err != nil {
					return nil, err
				}
				continue
			}
			parameters, err := a.parameters(*s.fn, "")
			if err != nil {
				return nil, err
			}
			var values []string
			for _, p := range s.fn.parameters {
				values = append(values, "WORD("+p.name+")")
			}
			if len(values) == 0 {
				values = append(values, "0")
			}
			fmt.Fprintf(&stubs, "REMOTE_STUB(%s, %s, CALL_%s, %d, %s, %s)\n", s.fn.result, s.name, s.plain(), twin, parameters, strings.Join(values, ", "))
		case c.class == "refused":
			fmt.Fprintf(&stubs, "REMOTE_REFUSED(%s)\n", s.name)
		case s.base != "":
			if err := twinStub(&stubs, s, a); err != nil {
				return nil, err
			}
		}
	}
	files := map[string]string{
		"remote_calls.inc": banner("/* %s */") + "/* REMOTE_CALL(name, number, one way, parameters, {how, count, by or gone, width of *by, type, kind} ...) */\n" + calls.String(),
		"remote_stubs.inc": banner("/* %s */") + "/* REMOTE_STUB(result, name, number, twin, parameters, values ...); REMOTE_TWIN(result, name, plain name, parameters, arguments); REMOTE_REFUSED(name) */\n" + stubs.String(),
	}
	var names strings.Builder
	names.WriteString(banner("/* %s */") + "/* REMOTE_NAME(name, number) */\n")
	for _, s := range symbols {
		if s.base == "" {
			fmt.Fprintf(&names, "REMOTE_NAME(%s, %d)\n", s.name, table[s.name].number)
		}
	}
	files["remote_names.inc"] = names.String()
	var types strings.Builder
	types.WriteString(banner("/* %s */") + "/* REMOTE_TYPE(number, C type); REMOTE_VERSIONED, of one that begins with its own size; REMOTE_PLACE(number, C type, offset of a handle in it, its kind), in the same order */\n")
	for _, one := range w.types {
		id, spelled, _ := strings.Cut(one, ", ")
		macro := "REMOTE_TYPE"
		if w.versioned(spelled) {
			macro = "REMOTE_VERSIONED"
		}
		fmt.Fprintf(&types, "%s(%s)\n", macro, one)
		for _, p := range w.places[id] {
			offset := "0"
			if p.path != "" {
				offset = fmt.Sprintf("offsetof(%s, %s)", spelled, p.path)
			}
			fmt.Fprintf(&types, "REMOTE_PLACE(%s, %s, %s, %s)\n", id, spelled, offset, p.kind)
		}
	}
	files["remote_types.inc"] = types.String()
	files["remote-calls.md"] = remoteDocument(symbols, table)
	var header strings.Builder
	header.WriteString(banner("/* %s */") + "#ifndef DIVVY_REMOTE_CALLS_H\n#define DIVVY_REMOTE_CALLS_H\n\n/* Numbers of calls on the wire, of data/remote.tsv. */\n" + numbers.String())
	header.WriteString("\n/* Kinds of handles. KIND_RESOURCE: an array or mipmapped array, by the structure's type. */\nenum divvy_remote_kind {\n\tKIND_NONE,\n\tKIND_RESOURCE,\n")
	for _, kind := range w.kinds {
		fmt.Fprintf(&header, "\tKIND_%s,\n", kind)
	}
	header.WriteString("\tREMOTE_KINDS\n};\n\n#endif\n")
	files["remote_calls.h"] = header.String()
	return files, nil
}

// remoteDocument is the page of what is carried and what is not.
func remoteDocument(symbols []symbol, table map[string]carriage) string {
	how := map[string]string{
		"local":    "answered by the library on the program's machine",
		"oneway":   "sent without waiting for an answer; a failure comes with the next call on the context",
		"deferred": "sent, and what it brings comes with a later call",
		"sync":     "one round trip",
		"refused":  "CUDA_ERROR_NOT_SUPPORTED (801), NVML_ERROR_NOT_SUPPORTED (3)",
	}
	counts, reasons := map[string]int{}, map[string][]string{}
	var order []string
	for _, s := range symbols {
		if s.base != "" {
			continue
		}
		c := table[s.name]
		counts[c.class]++
		if c.class != "refused" {
			continue
		}
		if reasons[c.reason] == nil {
			order = append(order, c.reason)
		}
		reasons[c.reason] = append(reasons[c.reason], "`"+s.name+"`")
	}
	var out strings.Builder
	out.WriteString(banner("<!-- %s -->"))
	out.WriteString("\n# Calls of a remote program\n\nHow each function of libcuda and NVML travels, from `data/remote.tsv`. See [remote.md](remote.md).\n\n| Class | Functions | What happens |\n| --- | ---: | --- |\n")
	for _, class := range carriages {
		if counts[class] > 0 {
			fmt.Fprintf(&out, "| %s | %d | %s |\n", class, counts[class], how[class])
		}
	}
	out.WriteString("\nRefused, and why:\n\n")
	for _, reason := range order {
		fmt.Fprintf(&out, "- **%s**: %s.\n", reason, strings.Join(reasons[reason], ", "))
	}
	return out.String()
}
