/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of random instructions run: whatever they do, it ends in a result or in
 * a fault of the card, and touches nothing of the host but what they were given.
 */
#include <stdint.h>

#include "../check.h"
#include "menu.h"
#include "random.h"
#include "ptx/code.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HEAD ".version 8.8\n.target sm_100\n.address_size 64\n" MENU_VARIABLES
#define REGISTERS \
	".reg .pred %p<3>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>; .reg .f64 %e<9>;\n"

enum { MEMORY = 4096, BASE = 0x10000 };

static unsigned char *memory; /* of exactly its size, so that a sanitizer sees a step beyond it */
static struct ptx_texture texture;

static const struct ptx_texture *texture_of(void *who, uint64_t handle, bool surface)
{
	(void)who;
	(void)surface;
	return handle % 5 ? &texture : NULL;
}

static int touch(void *who, uint64_t bytes)
{
	(void)who;
	(void)bytes;
	return 0;
}

/* Registers that mean something: addresses near the memory, small numbers, all else. */
static size_t begin(char *text)
{
	size_t size = (size_t)sprintf(text, "%s",
				      HEAD ".visible .entry k() {\n" REGISTERS "mov.u32 %r1, %tid.x; mov.u32 %r2, %laneid;\n");

	for (int i = 3; i < 9; i++)
		size += (size_t)sprintf(text + size, "mov.b32 %%r%d, 0x%x;", i, (unsigned int)(random64() >> (random64() % 64)));
	for (int i = 1; i < 9; i++)
		size += (size_t)sprintf(text + size, "mov.b64 %%d%d, 0x%llx; mov.f32 %%f%d, %d.5; mov.f64 %%e%d, %d.25;", i,
					(unsigned long long)(BASE + random64() % (random64() % 4 ? MEMORY : 2 * MEMORY) / 16 * 16), i,
					(int)(random64() % 100), i, (int)(random64() % 100));
	return size + (size_t)sprintf(text + size, "mad.wide.u32 %%d1, %%r1, 8, %%d1; setp.lt.u32 %%p1|%%p2, %%r1, %u;\n",
				      (unsigned int)(random64() % 40));
}

/* Barriers for another number of threads than there are wait for ever, as on a card. */
static bool waits(const char *item)
{
	return strstr(item, "bar.") && !strstr(item, "bar.warp");
}

static void run_some(void)
{
	static char text[16384];
	size_t size = begin(text);

	for (uint64_t i = 1 + random64() % 8; i > 0; i--) {
		const char *item = menu[random64() % COUNT(menu)];

		if (!waits(item))
			size += (size_t)sprintf(text + size, "{ %s }\n", item);
	}
	size += (size_t)sprintf(text + size, "L1: ret;\n}\n");
	struct ptx_module *module = ptx_module_new();
	struct ptx_log log = { 0 };
	struct ptx_code *code = NULL;
	struct ptx_outcome outcome = { 0 };
	int result = ptx_parse(module, text, size, 88, &log);

	if (result == 0)
		result = ptx_link(module, &log);
	for (uint32_t i = 0; result == 0 && i < module->variablecount; i++)
		module->variables[i]->address = BASE + i * 256;
	if (result == 0)
		result = ptx_compile(module, true, &log, &code);
	if (result != 0)
		fprintf(stderr, "%s\n%s\n", text, log.text);
	CHECK(result == 0);
	const struct ptx_range range = { .start = BASE, .bytes = MEMORY, .delta = (uint64_t)(uintptr_t)memory - BASE };
	struct ptx_launch launch = {
		.code = code, .grid = { 1 + (uint32_t)(random64() % 3), 1, 1 }, .block = { 1 + (uint32_t)(random64() % 70), 1, 1 },
		.stackbytes = 1024, .multiprocessors = 4, .resident = 4, .clockmhz = 1000, .ranges = &range, .rangecount = 1,
		.workers = 2, .texture = texture_of, .touch = touch,
	};

	for (uint32_t i = 0; i < module->functioncount; i++)
		launch.function = module->functions[i]->entry ? module->functions[i] : launch.function;
	ptx_run(&launch, &outcome);
	CHECK(outcome.fault <= PTX_FAULT_STACK);
	ptx_code_free(code);
	ptx_module_free(module);
}

/* 500 kernels, or for DIVVY_FUZZ_SECONDS with another seed */
static void random_kernels(void)
{
	unsigned char *texels = calloc(1, 64 * 4);

	memory = malloc(MEMORY);
	CHECK(memory && texels);
	memset(memory, 1, MEMORY);
	texture = (struct ptx_texture){ .host = texels, .width = 8, .height = 8, .depth = 0, .pitch = 32, .slice = 256,
					.channels = 4, .channelbytes = 1, .linear = true, .wrap = { PTX_WRAP, PTX_CLAMP } };
	while (one_more(500))
		run_some();
	free(memory);
	free(texels);
}

static const struct scenario scenarios[] = { { "random_kernels", random_kernels } };

RUN_SCENARIOS(scenarios)
