/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clang makes of kernels (scripts/make-ptx): what C has (language.inc), at different
 * levels and for different GPUs, against what the compiler of the host makes of the same
 * text; and all that clang has words for (test/corpus/intrinsics.cu), which must be taken.
 */
#include "language.inc"
#include "program.h"
#include "random.h"

enum { THREADS = 128, TEXT = 1 << 20, ROUNDS = 20 };

typedef void language_kernel(l_word *to, const l_word *from);

static const struct {
	const char *name;
	language_kernel *host;
} kernels[] = {
#define KERNEL_ROW(name) { #name, name },
	LANGUAGE_KERNELS(KERNEL_ROW)
};

static void read_program(struct program *program, const char *path)
{
	static char text[TEXT];
	FILE *file = fopen(path, "r");

	if (!file)
		fprintf(stderr, "%s: no such file\n", path);
	CHECK(file);
	size_t size = fread(text, 1, sizeof(text) - 1, file);
	CHECK(size < sizeof(text) - 1);
	text[size] = '\0';
	fclose(file);
	int result = build(program, text);
	if (result != 0)
		fprintf(stderr, "%s: %s\n", path, program->log.text);
	CHECK(result == 0);
}

/* Numbers as they come, small ones, and those at which something changes. */
static l_word drawn(void)
{
	static const l_word corners[] = { 0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff };
	l_word number = (l_word)(random64() >> 16);

	switch (random64() >> 40 & 3) {
	case 0: return corners[number % COUNT(corners)];
	case 1: return number % 100;
	default: return number;
	}
}

static void computes(const char *path)
{
	enum { IN = 65536 };
	const uint64_t pointers[2] = { BASE, BASE + IN };
	static l_word in[THREADS * LANGUAGE_IN], want[THREADS * LANGUAGE_OUT];
	struct program program;

	read_program(&program, path);
	for (int round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < COUNT(in); i++)
			in[i] = drawn();
		for (size_t k = 0; k < COUNT(kernels); k++) {
			memset(memory, 0, sizeof(want));
			memset(want, 0, sizeof(want));
			memcpy(memory + IN, in, sizeof(in));
			CHECK(run(&program, kernels[k].name, THREADS / 32, 32, pointers).fault == PTX_FAULT_NONE);
			for (l_thread = 0; l_thread < THREADS; l_thread++)
				kernels[k].host(want, in);
			for (size_t i = 0; i < COUNT(want); i++) {
				l_word got;

				memcpy(&got, memory + i * sizeof(got), sizeof(got));
				if (got != want[i])
					fprintf(stderr, "%s: %s: thread %zu, word %zu: %08x, on the host %08x\n", path, kernels[k].name,
						i / LANGUAGE_OUT, i % LANGUAGE_OUT, got, want[i]);
				CHECK(got == want[i]);
			}
		}
	}
	drop(&program);
}

static void without_optimisation(void)
{
	computes("test/corpus/language-O0-sm_70.ptx");
}

static void optimised(void)
{
	computes("test/corpus/language-O3-sm_70.ptx");
	computes("test/corpus/language-O3-sm_90.ptx");
}

static void intrinsics_are_taken(void)
{
	struct program program;

	read_program(&program, "test/corpus/intrinsics.ptx");
	drop(&program);
}

static const struct scenario scenarios[] = {
	{ "without_optimisation", without_optimisation },
	{ "optimised", optimised },
	{ "intrinsics_are_taken", intrinsics_are_taken },
};

RUN_SCENARIOS(scenarios)
