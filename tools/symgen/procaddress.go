// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// variant is one meaning of a name that cuGetProcAddress is asked for.
type variant struct {
	asked   string
	symbol  string
	version int // CUDA version that brought it
	twin    string
}

// unsuffixed is the version an old symbol without suffix counts from.
const unsuffixed = 2000

var versionSuffix = regexp.MustCompile(`_v\d+$`)

// readVariants works out what each name means at each version.
func readVariants(dir string, symbols []symbol) ([]variant, error) {
	rows, err := readTable(filepath.Join(dir, "procaddress.tsv"), 3)
	if err != nil {
		return nil, err
	}
	known := map[string]symbol{}
	for _, s := range symbols {
		known[s.name] = s
	}
	var variants []variant
	told := map[string]bool{} // "asked symbol"
	add := func(asked, name string, version int) {
		v := variant{asked: asked, symbol: name, version: version}
		for _, suffix := range []string{"_ptds", "_ptsz"} {
			if _, ok := known[name+suffix]; ok {
				v.twin = name + suffix
			}
		}
		variants = append(variants, v)
	}
	for _, row := range rows {
		version, err := strconv.Atoi(row[2])
		if err != nil || version < unsuffixed {
			return nil, fmt.Errorf("procaddress.tsv: %s: version %q is not understood", row[1], row[2])
		}
		if _, ok := known[row[1]]; !ok {
			return nil, fmt.Errorf("procaddress.tsv: %s is no export", row[1])
		}
		told[row[0]+" "+row[1]] = true
		add(row[0], row[1], version)
	}
	for _, s := range symbols {
		if s.library != "cuda" || s.base != "" {
			continue
		}
		asked := versionSuffix.ReplaceAllString(s.name, "")
		if told[asked+" "+s.name] {
			continue
		}
		version := s.generation
		if version == oldest {
			if asked != s.name {
				return nil, fmt.Errorf("procaddress.tsv: %s needs a row", s.name)
			}
			version = unsuffixed
		}
		add(asked, s.name, version)
	}
	sort.Slice(variants, func(i, j int) bool {
		a, b := variants[i], variants[j]
		if a.asked != b.asked {
			return a.asked < b.asked
		}
		return a.version < b.version
	})
	for i := 1; i < len(variants); i++ {
		if a, b := variants[i-1], variants[i]; a.asked == b.asked && a.version == b.version {
			return nil, fmt.Errorf("procaddress.tsv: %s means %s and %s from the same version", a.asked, a.symbol, b.symbol)
		}
	}
	return variants, nil
}

func procAddress(variants []variant) string {
	var out strings.Builder
	out.WriteString(banner("/* %s */"))
	out.WriteString("/*\n * What cuGetProcAddress means by a name, sorted by name and version: name asked for, symbol,\n" +
		" * CUDA version that brought it, its per-thread-stream twin or -1. The newest variant whose version\n" +
		" * is not above the request, and which the driver's generation exports, is meant.\n */\n")
	for _, v := range variants {
		twin := "-1"
		if v.twin != "" {
			twin = "SYM_" + v.twin
		}
		fmt.Fprintf(&out, "{\"%s\", SYM_%s, %d, %s},\n", v.asked, v.symbol, v.version, twin)
	}
	return out.String()
}

// meaningHeader is cuGetProcAddress of a driver that has all of the list.
func meaningHeader() string {
	return banner("/* %s */") + `/* meaning.h: what cuGetProcAddress of a driver of ours answers; for one file of a library. */
#ifndef DIVVY_MEANING_H
#define DIVVY_MEANING_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "cuda_abi.h"
#include "symbols.h"

static const struct divvy_meaning {
	const char *name;
	int symbol;
	int version;
	int twin; /* per-thread stream, or -1 */
} divvy_meanings[] = {
#include "procaddress.inc"
};

/* Whether a question can be answered at all; else it is CUDA_ERROR_INVALID_VALUE. */
static inline bool divvy_meaning_asked(const char *name, void **function, int version, cuuint64_t flags)
{
	const cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM, perthread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

	return name && function && version >= 0 && !(flags & ~(legacy | perthread)) && flags != (legacy | perthread);
}

/* The symbol meant by a name, or -1; status, if there is one, says why. What came after
 * generation, the driver's own CUDA version, is unknown to it. */
static inline int divvy_meaning(const char *name, int version, cuuint64_t flags, int generation,
				CUdriverProcAddressQueryResult *status)
{
	const struct divvy_meaning *best = NULL;
	bool known = false;

	for (size_t i = 0; i < sizeof(divvy_meanings) / sizeof(divvy_meanings[0]); i++) {
		const struct divvy_meaning *one = &divvy_meanings[i];

		if (one->version > generation || strcmp(one->name, name) != 0)
			continue;
		known = true;
		if (one->version <= version && (!best || one->version >= best->version))
			best = one;
	}
	if (status)
		*status = best	  ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (!best)
		return -1;
	return flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && best->twin >= 0 ? best->twin : best->symbol;
}

#endif
`
}
