/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness: runs generated kernels on the card and their twins on the CPU, and
 * compares every value that every thread made.
 *
 *	ptxfuzz cases.ptx     exit code 0 if all are equal
 *
 * With PTXFUZZ_BREAK=N, value 20 of case N is changed on its way, to show that a
 * difference is found.
 */
#include "cases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

enum { THREADS = 100, BLOCK = 64, SHOWN = 20, ROOM = 64 << 20 };

#define OK(call) ok(call, #call)

static void ok(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "ptxfuzz: %s: CUresult %d\n", call, (int)result);
	exit(1);
}

static u64 next(u64 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static const u32 floats[] = {0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
			     0xff800000, 0x7fc00000, 0xffc00001, 0x3f800000, 0xbf800000, 0x3f000000, 0x3effffff, 0x40200000,
			     0xc0200000, 0x4b800000, 0x4effffff, 0x4f000000, 0xcf000000, 0x4f800000, 0x5f000000, 0x33800000};
static const u64 doubles[] = {0, 1ull << 63, 1, 0x000fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0x7ff0000000000000,
			      0xfff0000000000000, 0x7ff8000000000000, 0x3ff0000000000000, 0x3fe0000000000000, 0x4004000000000000,
			      0xc004000000000000, 0x41dfffffffc00000, 0x41e0000000000000, 0x43e0000000000000, 0x43f0000000000000,
			      0x36a0000000000000, 0x380fffffffffffff, 0x47efffffefffffff, 0x3f10000000000000};
static const u16 halves[] = {0, 0x8000, 1, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x3c00, 0xbc00, 0x3800, 0x4100};

#define CHOOSE(list, r) list[(r) % (sizeof(list) / sizeof *(list))]

/* Word i of a thread's input: see loads in tools/ptxfuzz. */
static u64 input(u32 i, u64 *state)
{
	u64 r = next(state), any = next(state), choice = next(state);

	switch (i) {
	case 5:
	case 6:
		if (choice % 3 == 0)
			return CHOOSE(floats, r);
		if (choice % 3 == 1) /* of a size that sums and products keep bits of */
			return (r & 0x807fffff) | (120 + any % 16) << 23;
		return any;
	case 7:
	case 8:
		if (choice % 3 == 0)
			return CHOOSE(doubles, r);
		if (choice % 3 == 1)
			return (r & 0x800fffffffffffff) | (1000 + any % 60) << 52;
		return any;
	case 9:
	case 10:
	case 11:
		if (choice % 3 == 0)
			return CHOOSE(halves, r) | (u64)CHOOSE(halves, any) << 16;
		return any;
	default:
		if (choice % 3 == 0)
			return r % 67 - 3;
		if (choice % 3 == 1)
			return (1ull << r % 64) - any % 2;
		return any;
	}
}

static bool equal16(u32 got, u32 want, u32 infinity)
{
	return got == want || ((got & 0x7fff) > infinity && (want & 0x7fff) > infinity);
}

/* NaNs of a type are equal; all else is compared bit by bit. */
static bool equal(char letter, u64 got, u64 want)
{
	switch (letter) {
	case 'f':
		return got == want || ((got & 0x7fffffff) > 0x7f800000 && (want & 0x7fffffff) > 0x7f800000);
	case 'd':
		return got == want || ((got << 1) > 0xffe0000000000000 && (want << 1) > 0xffe0000000000000);
	case 'h':
		return equal16((u32)got, (u32)want, 0x7c00);
	case 'b':
		return equal16((u32)got, (u32)want, 0x7f80);
	case 'x':
		return equal16(LOW(got), LOW(want), 0x7c00) && equal16(HIGH(got), HIGH(want), 0x7c00);
	default:
		return got == want;
	}
}

static void tell(const struct fuzz_case *c, u32 v, u32 thread, const u64 *got, const u64 *want)
{
	fprintf(stderr, "%s, thread %u, %%v%u: %s\n\tgot %#" PRIx64 ", want %#" PRIx64 "\n", c->name, thread, v, c->texts[v], got[v],
		want[v]);
	for (const char *at = strstr(c->texts[v], "%v"); at; at = strstr(at + 2, "%v")) {
		u32 other = (u32)strtoul(at + 2, NULL, 10);

		if (other != v)
			fprintf(stderr, "\t%%v%u = %#" PRIx64 "\n", other, want[other]);
	}
}

/* Runs one case; false if something differs, which it tells. */
static bool run(CUmodule module, const struct fuzz_case *c, u64 number, CUdeviceptr in, CUdeviceptr out, u64 *words, u64 *results)
{
	size_t inbytes = (size_t)THREADS * fuzz_inputwords * 8, outbytes = (size_t)THREADS * fuzz_valuesmost * 8;
	u64 state = (fuzz_seed * 0x9e3779b97f4a7c15 + number * 0xbf58476d1ce4e5b9) | 1, want[256] = {0};
	const char *broken = getenv("PTXFUZZ_BREAK");
	CUfunction function;
	u32 threads = THREADS;
	void *arguments[] = {&in, &out, &threads};

	for (int i = 0; i < 8; i++)
		next(&state);
	for (u32 i = 0; i < THREADS * fuzz_inputwords; i++)
		words[i] = input(i % fuzz_inputwords, &state);
	OK(cuMemcpyHtoD_v2(in, words, inbytes));
	OK(cuMemsetD8_v2(out, 0, outbytes));
	OK(cuModuleGetFunction(&function, module, c->name));
	OK(cuLaunchKernel(function, (THREADS + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0, NULL, arguments, NULL));
	OK(cuMemcpyDtoH_v2(results, out, outbytes));
	if (broken && strtoull(broken, NULL, 10) == number)
		results[20] ^= 1;
	for (u32 thread = 0; thread < THREADS; thread++) {
		const u64 *got = results + (size_t)thread * fuzz_valuesmost;

		c->cpu(words + (size_t)thread * fuzz_inputwords, want);
		for (u32 v = 0; v < c->values; v++) {
			if (!equal(c->letters[v], got[v], want[v])) {
				tell(c, v, thread, got, want);
				return false;
			}
		}
	}
	return true;
}

static char *text_of(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = calloc(1, ROOM);

	if (!file || !text || fread(text, 1, ROOM - 1, file) == 0 || !feof(file)) {
		fprintf(stderr, "ptxfuzz: %s cannot be read\n", path);
		exit(1);
	}
	fclose(file);
	return text;
}

int main(int argc, char **argv)
{
	static char log[4096];
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)sizeof log};
	u64 *words = malloc((size_t)THREADS * fuzz_inputwords * 8), *results = malloc((size_t)THREADS * fuzz_valuesmost * 8);
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUdeviceptr in, out;
	u32 wrong = 0;
	CUresult loaded;

	if (argc != 2) {
		fprintf(stderr, "usage: ptxfuzz cases.ptx\n");
		return 2;
	}
	if (!words || !results || fuzz_valuesmost > 256)
		return 1;
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	loaded = cuModuleLoadDataEx(&module, text_of(argv[1]), 2, options, values);
	if (loaded != CUDA_SUCCESS && log[0])
		fprintf(stderr, "ptxfuzz: %s\n", log);
	OK(loaded);
	OK(cuMemAlloc_v2(&in, (size_t)THREADS * fuzz_inputwords * 8));
	OK(cuMemAlloc_v2(&out, (size_t)THREADS * fuzz_valuesmost * 8));
	for (u32 i = 0; i < fuzz_casecount && wrong < SHOWN; i++)
		wrong += !run(module, &fuzz_cases[i], fuzz_first + i, in, out, words, results);
	printf("ptxfuzz: seed %" PRIu64 ", %u cases from %u: %u differ\n", fuzz_seed, fuzz_casecount, fuzz_first, wrong);
	return wrong ? 1 : 0;
}
