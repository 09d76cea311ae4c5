/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vectoradd: the sums of two vectors. The whole of a driver API program: memory
 * on the card, a copy there, a launch, a copy back.
 */
#include "../example.h"

int main(int argc, char **argv)
{
	struct example example = {.name = "vectoradd", .what = "sums", .size = 1000003};
	struct comparison comparison = {0};
	enum { BLOCK = 256 };

	example_start(&example, argc, argv);
	uint32_t count = example.size;
	size_t bytes = count * sizeof(float);
	float *a = example_host(count, sizeof *a), *b = example_host(count, sizeof *b);
	float *got = example_host(count, sizeof *got), *want = example_host(count, sizeof *want);

	for (uint32_t i = 0; i < count; i++) {
		a[i] = example_random_float();
		b[i] = example_random_float();
		want[i] = a[i] + b[i];
	}

	CUdeviceptr first = example_upload(a, bytes), second = example_upload(b, bytes), sums = example_memory(bytes);
	void *arguments[] = {&first, &second, &sums, &count};

	CHECK(cuLaunchKernel(example_kernel(&example, "vectoradd"), (count + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0,
			     NULL, arguments, NULL));
	CHECK(cuMemcpyDtoH(got, sums, bytes)); /* waits for the kernel */
	example_compare_floats(&comparison, got, want, count);
	return example_end(&example, &comparison);
}
