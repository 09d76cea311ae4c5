/* SPDX-License-Identifier: Apache-2.0 */
/* The parts without a driver around them: the tree, the space, the array rule, images of one text. */
#include <errno.h>
#include <stdint.h>

#include "../check.h"
#include "random.h"
#include "divvy_arrays.h"
#include "divvy_limits.h"
#include "image/image.h"
#include "table/space.h"
#include "table/tree.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Against a slow, obvious twin: an array of taken units. */
static void space_against_twin(void)
{
	enum { UNITS = 512, UNIT = 64, BASE = 4096 };
	static unsigned char twin[UNITS];
	static struct {
		uint64_t at, bytes;
	} live[UNITS];
	size_t count = 0;
	struct sd_space space;

	CHECK(sd_space_open(&space, BASE, UNITS * UNIT) == 0);
	for (int round = 0; round < 200000; round++) {
		uint64_t draw = random64();

		if (draw % 100 < 52) {
			uint64_t units = 1 + random64() % (random64() % 8 ? 8 : 64);
			uint64_t align = UNIT << random64() % 4;
			uint64_t at = 0;
			int result = sd_space_take(&space, units * UNIT, align, &at);
			int fits = 0;

			for (uint64_t start = 0; start < UNITS && !fits; start++) {
				uint64_t run = 0;

				if ((BASE + start * UNIT) % align)
					continue;
				while (run < units && start + run < UNITS && !twin[start + run])
					run++;
				fits = run == units;
			}
			/* aligned requests may miss a tight fit, plain ones never */
			CHECK(result == 0 ? fits : align > UNIT || !fits);
			if (result < 0)
				continue;
			CHECK(at % align == 0);
			for (uint64_t i = 0; i < units; i++) {
				uint64_t unit = (at - BASE) / UNIT + i;

				CHECK(unit < UNITS && !twin[unit]);
				twin[unit] = 1;
			}
			live[count].at = at;
			live[count++].bytes = units * UNIT;
		} else if (count) {
			size_t which = draw / 100 % count;

			for (uint64_t i = 0; i < live[which].bytes / UNIT; i++)
				twin[(live[which].at - BASE) / UNIT + i] = 0;
			sd_space_give(&space, live[which].at, live[which].bytes);
			live[which] = live[--count];
		}
	}
	while (count) {
		count--;
		sd_space_give(&space, live[count].at, live[count].bytes);
	}
	CHECK(space.taken == 0 && space.parts == 0);
	uint64_t at = 0;

	CHECK(sd_space_take(&space, UNITS * UNIT, UNIT, &at) == 0 && at == BASE);
	CHECK(sd_space_take(&space, UNIT, UNIT, &at) == -ENOSPC);
	sd_space_give(&space, BASE, UNITS * UNIT);
	CHECK(sd_space_take_at(&space, BASE + UNIT, UNIT) == 0);
	CHECK(sd_space_take_at(&space, BASE, 2 * UNIT) == -ENOSPC);
	sd_space_give(&space, BASE + UNIT, UNIT);
	sd_space_close(&space);
}

/* Grown piece by piece, as a pool's. */
static void space_grows(void)
{
	struct sd_space space;
	uint64_t at = 0;

	CHECK(sd_space_open(&space, 0, 0) == 0);
	CHECK(sd_space_take(&space, 1, 1, &at) == -ENOSPC);
	CHECK(sd_space_add(&space, 1000, 100) == 0);
	CHECK(sd_space_add(&space, 1100, 100) == 0);
	CHECK(sd_space_take(&space, 150, 1, &at) == 0 && at == 1000);
	CHECK(sd_space_remove(&space, 1100, 100) == -ENOSPC);
	sd_space_give(&space, at, 150);
	CHECK(sd_space_remove(&space, 1100, 100) == 0);
	CHECK(sd_space_take(&space, 101, 1, &at) == -ENOSPC);
	CHECK(sd_space_remove(&space, 1000, 100) == 0);
	sd_space_close(&space);
}

static void tree_in_order(void)
{
	enum { NODES = 3000 };
	static struct sd_node nodes[NODES];
	static unsigned char in[NODES];
	struct sd_tree tree = { 0 };

	for (int round = 0; round < 60000; round++) {
		size_t which = random64() % NODES;

		if (in[which])
			sd_tree_remove(&tree, &nodes[which]);
		else
			sd_tree_add(&tree, &nodes[which], which / 3, which % 3);
		in[which] = !in[which];
		if (round % 1000)
			continue;
		const struct sd_node *node = sd_tree_first(&tree);

		for (size_t i = 0; i < NODES; i++) {
			if (!in[i])
				continue;
			CHECK(node == &nodes[i]);
			CHECK(sd_tree_floor(&tree, i / 3, i % 3) == node && sd_tree_ceiling(&tree, i / 3, i % 3) == node);
			node = sd_tree_next(&nodes[i]);
		}
		CHECK(!node);
	}
}

/* width, height, depth, format, channels, flags, levels, bytes */
static void array_rule(void)
{
	static const struct {
		uint64_t width, height, depth;
		unsigned int format, channels, flags, levels;
		uint64_t bytes;
	} rows[] = {
		{ 1, 0, 0, 1, 1, 0, 1, 512 },                    /* one byte: a row of 64, then 512 */
		{ 100, 0, 0, 32, 4, 0, 1, 2048 },                /* 1600 bytes -> 1600 -> 2048 */
		{ 64, 64, 0, 32, 1, 0, 1, 16384 },               /* 256 x 64 */
		{ 65, 65, 0, 1, 1, 0, 1, 9216 },                 /* 128 x 72 */
		{ 16, 16, 16, 32, 1, 0, 1, 16384 },              /* 64 x 16 x 16 */
		{ 16, 0, 5, 32, 1, DIVVY_ARRAY_LAYERED, 1, 512 }, /* five rows of 64 */
		{ 32, 32, 6, 1, 4, DIVVY_ARRAY_CUBEMAP, 1, 24576 },
		{ 64, 64, 0, 32, 1, 0, 3, 16384 + 4096 + 1024 },  /* levels of 64, 32 and 16 */
		{ 64, 64, 0, 145, 4, 0, 1, 2048 },               /* BC1: 16 x 16 blocks of 8: 128 x 16 */
		{ 1920, 1080, 0, 176, 3, 0, 1, 1920 * 1080 + 1920 * 544 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t bytes = 0;

		CHECK(divvy_array_bytes(rows[i].width, rows[i].height, rows[i].depth, rows[i].format, rows[i].channels,
					rows[i].flags, rows[i].levels, &bytes) == 0);
		if (bytes != rows[i].bytes)
			fprintf(stderr, "row %zu: %llu bytes\n", i, (unsigned long long)bytes);
		CHECK(bytes == rows[i].bytes);
	}
	uint64_t bytes = 0;

	CHECK(divvy_array_bytes(0, 1, 0, 1, 1, 0, 1, &bytes) < 0);
	CHECK(divvy_array_bytes(1, 1, 0, 77, 1, 0, 1, &bytes) < 0);
	CHECK(divvy_array_bytes(1ull << 28, 1ull << 28, 1ull << 28, 32, 4, 0, 1, &bytes) < 0);
	CHECK(divvy_limit_bytes(DIVVY_LIMIT_HEAP, 8 << 20, 132) == 0);
	CHECK(divvy_limit_bytes(DIVVY_LIMIT_HEAP, (8 << 20) + 1, 132) == 512);
	CHECK(divvy_limit_bytes(DIVVY_LIMIT_STACK, 1025, 132) == 132 * 2048);
	CHECK(divvy_limit_bytes(DIVVY_LIMIT_STACK, UINT64_MAX, 132) == UINT64_MAX);
	CHECK(divvy_limit_bytes(6, UINT64_MAX, 132) == 0);
}

static const char text[] =
	"// a comment with { and .entry\n"
	".version 8.0 /* .version 1.0 */\n"
	".target sm_80, debug\n"
	".address_size 64\n"
	".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
	".visible .global .align 4 .u32 counter = 7;\n"
	".global .align 8 .b8 table[16] = {1, 2, 0x3, 4, 0xff};\n"
	".visible .const .align 4 .f32 half = 0f3F000000, pi = 0f40490FDB;\n"
	".global .attribute(.managed) .align 8 .u64 shared_word;\n"
	".extern .global .u32 elsewhere;\n"
	".extern .shared .align 16 .b8 dynamic[];\n"
	".global .v4 .f32 vector[2];\n"
	".func helper(.param .u32 a) { ret; }\n"
	".visible .entry _Z3addPfS_i(\n"
	"\t.param .u64 .ptr .global .align 16 add_0,\n"
	"\t.param .u64 add_1, .param .u32 add_2, .param .align 16 .b8 add_3[20]\n"
	") .maxntid 256, 2, 1 .minnctapersm 2\n"
	"{ .reg .b32 %r<4>; .shared .align 4 .b8 tile[1024]; .local .align 8 .b8 __local_depot0[40];\n"
	"  { mov.u32 %r1, %tid.x; } ld.shared.u32 %r2, [tile]; ret; }\n"
	".weak .entry empty() { ret; }\n"
	".visible .entry declared(.param .u32 x);\n";

static int read_text(const char *source, unsigned int maxversion, unsigned int capability, struct sd_image *image)
{
	struct ptx_log log;

	return sd_image_read(source, 0, maxversion, capability, image, &log);
}

static void ptx(void)
{
	struct sd_image image;

	CHECK(read_text(text, 82, 80, &image) == 0);
	CHECK(image.version == 80 && image.target == 80);
	CHECK(image.entrycount == 2);
	const struct sd_entrypoint *add = sd_image_entry(&image, "_Z3addPfS_i");

	CHECK(add && add->count == 4);
	CHECK(add->parameters[0].offset == 0 && add->parameters[0].bytes == 8);
	CHECK(add->parameters[1].offset == 8 && add->parameters[2].offset == 16 && add->parameters[2].bytes == 4);
	CHECK(add->parameters[3].offset == 32 && add->parameters[3].bytes == 20 && add->bytes == 52);
	CHECK(add->shared == 1024 && add->constant == 8);
	CHECK(sd_image_entry(&image, "empty")->count == 0 && !sd_image_entry(&image, "declared"));
	CHECK(image.module->variablecount == 6);
	struct ptx_log log = { 0 };

	CHECK(sd_image_compile(&image, &log) == 0 && add->maxthreads == 512);
	CHECK(sd_image_entry(&image, "empty")->maxthreads == 1024);
	sd_image_free(&image);

	CHECK(read_text(text, 78, 80, &image) == -ENOTSUP);
	CHECK(read_text(text, 82, 75, &image) == -EBADMSG);
	CHECK(read_text(".target sm_80\n", 82, 80, &image) == -EBADMSG);
	CHECK(read_text("no image", 82, 80, &image) == -EINVAL);
	CHECK(read_text("", 82, 80, &image) == -EINVAL);
	CHECK(read_text(NULL, 82, 80, &image) == -EINVAL);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "space_against_twin", space_against_twin }, { "space_grows", space_grows },
		{ "tree_in_order", tree_in_order },	      { "array_rule", array_rule },
		{ "ptx", ptx },
	};

	return run_scenarios(scenarios, COUNT(scenarios), argc, argv);
}
