/* SPDX-License-Identifier: Apache-2.0 */
/* cases.h: what tools/ptxfuzz generates for the harness. */
#ifndef DIVVY_PTXFUZZ_CASES_H
#define DIVVY_PTXFUZZ_CASES_H

#include "semantics.h"

struct fuzz_case {
	const char *name; /* of the kernel */
	void (*cpu)(const u64 *in, u64 *out);
	u32 values;
	const char *letters;      /* how each value compares: i bits, f d h b a float, x two halves */
	const char *const *texts; /* the instruction that made each value */
};

extern const struct fuzz_case fuzz_cases[];
extern const u32 fuzz_casecount, fuzz_inputwords, fuzz_valuesmost, fuzz_first;
extern const u64 fuzz_seed;

#endif
