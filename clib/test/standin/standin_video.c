/* SPDX-License-Identifier: Apache-2.0 */
/* Video instructions, one lane, against values worked out by hand. */
#include <stdint.h>

#include "../check.h"
#include "ptx/lane.h"
#include "ptx/lanevideo.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define A(selector) ((selector) << 4)
#define B(selector) ((selector) << 7)
#define D(selector) ((selector) << 10)
#define THEN(what) ((uint32_t)(what) << 13)
#define COMPARE(what) ((uint32_t)(what) << 15)
#define PAIRS (1u << 18)
#define FOURS (2u << 18)
#define SIGNED (PTX_VIDEO_SIGNED_A | PTX_VIDEO_SIGNED_B | PTX_VIDEO_SIGNED_D)

static void lanes(void)
{
	static const struct {
		uint32_t mode, a, b, c, want;
	} rows[] = {
		{ PTX_VIDEO_ADD, 5, 7, 0, 12 },
		{ PTX_VIDEO_ADD, 0xffffffff, 2, 0, 1 },
		{ PTX_VIDEO_ADD | PTX_VIDEO_SAT, 0xffffffff, 2, 0, 0xffffffff },
		{ PTX_VIDEO_ADD | PTX_VIDEO_SAT | SIGNED, 0x7fffffff, 2, 0, 0x7fffffff },
		{ PTX_VIDEO_ADD | A(2) | B(6), 0x0000ab00, 0x12340000, 0, 0xab + 0x1234 },
		{ PTX_VIDEO_ADD | A(1) | SIGNED, 0x80, 0, 0, 0xffffff80 },
		{ PTX_VIDEO_ADD | D(2) | PTX_VIDEO_SAT, 200, 100, 0x11223344, 0x1122ff44 },
		{ PTX_VIDEO_ADD | D(6), 0x12345, 0, 0x11223344, 0x23453344 },
		{ PTX_VIDEO_SUB | PTX_VIDEO_SAT, 3, 5, 0, 0 },
		{ PTX_VIDEO_ABSDIFF | THEN(PTX_VIDEO_THEN_ADD), 3, 10, 100, 107 },
		{ PTX_VIDEO_ABSDIFF | SIGNED, 0xfffffff0, 16, 0, 32 },
		{ PTX_VIDEO_MIN | SIGNED | THEN(PTX_VIDEO_THEN_MAX), 5, 0xffffffff, 3, 3 },
		{ PTX_VIDEO_MAX | THEN(PTX_VIDEO_THEN_MIN), 5, 0xffffffff, 3, 3 },
		{ PTX_VIDEO_SHL, 1, 40, 0, 0 },
		{ PTX_VIDEO_SHL | PTX_VIDEO_WRAP, 1, 33, 0, 2 },
		{ PTX_VIDEO_SHR | PTX_VIDEO_SIGNED_A, 0x80000000, 4, 0, 0xf8000000 },
		{ PTX_VIDEO_SHR, 0x80000000, 32, 0, 0 },
		{ PTX_VIDEO_SET | COMPARE(PTX_CMP_LT) | PTX_VIDEO_SIGNED_A | PTX_VIDEO_SIGNED_B, 0xffffffff, 0, 0, 1 },
		{ PTX_VIDEO_SET | COMPARE(PTX_CMP_LT), 0xffffffff, 0, 0, 0 },
		{ PTX_VIDEO_MAD, 3, 4, 5, 17 },
		{ PTX_VIDEO_MAD | PTX_VIDEO_PLUS_ONE, 3, 4, 5, 18 },
		{ PTX_VIDEO_MAD | PTX_VIDEO_NEGATE_PRODUCT, 3, 4, 5, (uint32_t)-7 },
		{ PTX_VIDEO_MAD | PTX_VIDEO_NEGATE_C, 3, 4, 5, 7 },
		{ PTX_VIDEO_MAD | 1u << 20, 256, 3, 0, 6 },
		{ PTX_VIDEO_MAD | PTX_VIDEO_SAT, 0xffffffff, 0xffffffff, 0, 0xffffffff },
		{ PTX_VIDEO_MAD | PTX_VIDEO_SAT | PTX_VIDEO_NEGATE_PRODUCT, 0xffffffff, 0xffffffff, 0, 0x80000000 },
		{ PTX_VIDEO_ADD | PAIRS, 0x0001ffff, 0x00010001, 0, 0x00020000 },
		{ PTX_VIDEO_ADD | PAIRS | PTX_VIDEO_SAT, 0x0001ffff, 0x00010001, 0, 0x0002ffff },
		{ PTX_VIDEO_ADD | FOURS | SIGNED | PTX_VIDEO_SAT, 0x7f80017f, 0x01ff0101, 0, 0x7f80027f },
		{ PTX_VIDEO_ABSDIFF | FOURS | THEN(PTX_VIDEO_THEN_ADD), 0x01020304, 0x04030201, 10, 10 + 3 + 1 + 1 + 3 },
		{ PTX_VIDEO_AVERAGE | FOURS, 0x01020304, 0x02020202, 0, 0x02020303 },
		{ PTX_VIDEO_AVERAGE | PAIRS | SIGNED, 0xfffd0001, 0x00000002, 0, 0xfffe0002 },
		{ PTX_VIDEO_SET | FOURS | COMPARE(PTX_CMP_EQ), 0x01020304, 0x01000300, 0, 0x01000100 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		uint32_t got = (uint32_t)ptx_lane_video(rows[i].a, rows[i].b, rows[i].c, rows[i].mode);

		if (got != rows[i].want)
			fprintf(stderr, "row %zu: %#x, want %#x\n", i, got, rows[i].want);
		CHECK(got == rows[i].want);
	}
}

static const struct scenario scenarios[] = { { "lanes", lanes } };

RUN_SCENARIOS(scenarios)
