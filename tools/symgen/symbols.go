// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// spareSlots is how many symbols that the list lacks a prepared front can
// still pass on, and spareNameBytes the room for the name of each, its
// terminating zero included.
const (
	spareSlots     = 96
	spareNameBytes = 96
)

// symbolsHeader numbers the symbols.
func symbolsHeader(symbols []symbol) string {
	var out strings.Builder
	out.WriteString(banner("/* %s */"))
	out.WriteString("#ifndef DIVVY_SYMBOLS_H\n#define DIVVY_SYMBOLS_H\n\n")
	out.WriteString("/* Numbers of the symbols of the one list, in bytewise order of their names; they change with the list. */\nenum divvy_symbol {\n")
	for _, s := range symbols {
		fmt.Fprintf(&out, "\tSYM_%s,\n", s.name)
	}
	out.WriteString("\tDIVVY_SYMBOLS\n};\n\n")
	fmt.Fprintf(&out, "/* Slots of the front for driver exports that the list lacks: numbers DIVVY_SYMBOLS and up. */\n#define DIVVY_SPARES %d\n#define DIVVY_SPARE_NAME_BYTES %d\n\n", spareSlots, spareNameBytes)
	for _, fate := range []string{"HOOKED", "PASSED", "ABSENT"} {
		fmt.Fprintf(&out, "#define DIVVY_FATE_%s %d\n", fate, indexOf(strings.ToLower(fate), fates))
	}
	for _, class := range classes {
		fmt.Fprintf(&out, "#define DIVVY_CLASS_%s %d\n", strings.ToUpper(class), indexOf(class, classes))
	}
	out.WriteString(`
/* symbols.c */
const char *divvy_symbol_name(unsigned int symbol);    /* NULL beyond the list */
int divvy_symbol_generation(unsigned int symbol);      /* first CUDA version (12020) that exports it; 0 for NVML */
int divvy_symbol_fate(unsigned int symbol);            /* DIVVY_FATE_* */
int divvy_symbol_class(unsigned int symbol);           /* DIVVY_CLASS_* */
int divvy_symbol_find(const char *name);               /* its number, or -1 */

#endif
`)
	return out.String()
}

func indexOf(word string, list []string) int {
	for i, one := range list {
		if one == word {
			return i
		}
	}
	return -1
}

// symbolsTable is one macro call per symbol, for tables of every kind.
func symbolsTable(symbols []symbol) string {
	var out strings.Builder
	out.WriteString(banner("/* %s */"))
	out.WriteString("/* DIVVY_SYMBOL(name, plain name without _ptds/_ptsz, first CUDA version or 0, fate, class) */\n")
	for _, s := range symbols {
		fmt.Fprintf(&out, "DIVVY_SYMBOL(%s, %s, %d, DIVVY_FATE_%s, DIVVY_CLASS_%s)\n", s.name, s.plain(), s.generation, strings.ToUpper(s.fate), strings.ToUpper(s.class))
	}
	return out.String()
}

// symbolsSource is the lookup of names and numbers. It holds no pointers, so
// that nothing in it needs a relocation.
func symbolsSource() string {
	return banner("/* %s */") + `#include "symbols.h"

#include <stddef.h>
#include <string.h>

struct divvy_names {
#define DIVVY_SYMBOL(name, plain, version, fate, class) char name[sizeof #name];
#include "symbols_table.inc"
#undef DIVVY_SYMBOL
};

static const struct divvy_names names = {
#define DIVVY_SYMBOL(name, plain, version, fate, class) #name,
#include "symbols_table.inc"
#undef DIVVY_SYMBOL
};

struct divvy_symbol_row {
	unsigned short name; /* offset in names */
	unsigned short version;
	unsigned char fate;
	unsigned char class;
};

_Static_assert(sizeof(struct divvy_names) < 65536, "names are told by 16-bit offsets");

static const struct divvy_symbol_row rows[DIVVY_SYMBOLS] = {
#define DIVVY_SYMBOL(name, plain, version, fate, class) {offsetof(struct divvy_names, name), version, fate, class},
#include "symbols_table.inc"
#undef DIVVY_SYMBOL
};

const char *divvy_symbol_name(unsigned int symbol)
{
	return symbol < DIVVY_SYMBOLS ? (const char *)&names + rows[symbol].name : NULL;
}

int divvy_symbol_generation(unsigned int symbol)
{
	return symbol < DIVVY_SYMBOLS ? rows[symbol].version : 0;
}

int divvy_symbol_fate(unsigned int symbol)
{
	return symbol < DIVVY_SYMBOLS ? rows[symbol].fate : DIVVY_FATE_ABSENT;
}

int divvy_symbol_class(unsigned int symbol)
{
	return symbol < DIVVY_SYMBOLS ? rows[symbol].class : DIVVY_CLASS_HARMLESS;
}

int divvy_symbol_find(const char *name)
{
	unsigned int low = 0, high = DIVVY_SYMBOLS;

	while (low < high) {
		unsigned int middle = (low + high) / 2;
		int order = strcmp(name, (const char *)&names + rows[middle].name);

		if (order == 0)
			return (int)middle;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return -1;
}
`
}

// exportMap is a version script without a version node: the symbols of a
// library, and nothing else.
func exportMap(names []string) string {
	var out strings.Builder
	out.WriteString(banner("# %s"))
	out.WriteString("{\nglobal:\n")
	for _, name := range names {
		fmt.Fprintf(&out, "\t%s;\n", name)
	}
	out.WriteString("local:\n\t*;\n};\n")
	return out.String()
}

// exportsOf names what a driver of a generation exports.
func exportsOf(symbols []symbol, version int) []string {
	var names []string
	for _, s := range symbols {
		if s.generation <= version {
			names = append(names, s.name)
		}
	}
	return names
}

// frontExports names what the unprepared front exports.
func frontExports(symbols []symbol) []string {
	var names []string
	for _, s := range symbols {
		if s.fate != "absent" {
			names = append(names, s.name)
		}
	}
	for i := range spareSlots {
		names = append(names, spareName(i))
	}
	return names
}

// spareName is what a spare slot is called until the front is prepared: long
// enough that any name of a driver export fits in its place.
func spareName(i int) string {
	prefix := fmt.Sprintf("divvy_spare_%02d_", i)
	return prefix + strings.Repeat("x", spareNameBytes-1-len(prefix))
}
