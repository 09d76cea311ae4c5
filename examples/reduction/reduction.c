/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduction: the sum of many numbers, in warps by shuffles and between warps in
 * shared memory; first to one number for each block, then to one.
 */
#include "../example.h"

enum { BLOCKS = 64, BLOCK = 256 };

/* Sums count values of 4 bytes with a kernel, and leaves the result at the host. */
static void sum(CUfunction kernel, const void *values, uint32_t count, void *result)
{
	CUdeviceptr from = example_upload(values, count * sizeof(uint32_t));
	CUdeviceptr partial = example_memory(BLOCKS * sizeof(uint32_t)), whole = example_memory(sizeof(uint32_t));
	uint32_t blocks = BLOCKS;
	void *first[] = {&from, &partial, &count}, *second[] = {&partial, &whole, &blocks};

	CHECK(cuLaunchKernel(kernel, BLOCKS, 1, 1, BLOCK, 1, 1, 0, NULL, first, NULL));
	/* the same stream: it begins when the first is done */
	CHECK(cuLaunchKernel(kernel, 1, 1, 1, BLOCK, 1, 1, 0, NULL, second, NULL));
	CHECK(cuMemcpyDtoH(result, whole, sizeof(uint32_t)));
	CHECK(cuMemFree(from));
	CHECK(cuMemFree(partial));
	CHECK(cuMemFree(whole));
}

int main(int argc, char **argv)
{
	struct example example = {.name = "reduction", .what = "sums", .size = 1000003};
	struct comparison comparison = {0};

	example_start(&example, argc, argv);
	uint32_t count = example.size;
	uint32_t *ints = example_host(count, sizeof *ints), gotint, wantint = 0;
	float *floats = example_host(count, sizeof *floats), gotfloat, wantfloat;
	double exact = 0;

	for (uint32_t i = 0; i < count; i++) {
		ints[i] = example_random();
		floats[i] = example_random_float();
		wantint += ints[i]; /* modulo 2^32, as on the card */
		exact += (double)floats[i];
	}
	wantfloat = (float)exact;
	sum(example_kernel(&example, "sum_int"), ints, count, &gotint);
	sum(example_kernel(&example, "sum_float"), floats, count, &gotfloat);
	example_compare_ints(&comparison, &gotint, &wantint, 1);
	example_compare_floats(&comparison, &gotfloat, &wantfloat, 1);
	return example_end(&example, &comparison);
}
