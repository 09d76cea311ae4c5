/* SPDX-License-Identifier: Apache-2.0 */
/* matmul: the product of two square matrices, tile by tile in shared memory. */
#include "../example.h"

int main(int argc, char **argv)
{
	struct example example = {.name = "matmul", .what = "elements", .size = 200};
	struct comparison comparison = {0};
	enum { TILE = 16 }; /* as in matmul.cu */

	example_start(&example, argc, argv);
	uint32_t n = example.size, tiles = (n + TILE - 1) / TILE;
	size_t count = (size_t)n * n, bytes = count * sizeof(float);
	float *a = example_host(count, sizeof *a), *b = example_host(count, sizeof *b);
	float *got = example_host(count, sizeof *got), *want = example_host(count, sizeof *want);

	for (size_t i = 0; i < count; i++) {
		a[i] = example_random_float();
		b[i] = example_random_float();
	}
	for (uint32_t row = 0; row < n; row++) {
		for (uint32_t column = 0; column < n; column++) {
			double sum = 0;

			for (uint32_t k = 0; k < n; k++)
				sum += (double)a[(size_t)row * n + k] * (double)b[(size_t)k * n + column];
			want[(size_t)row * n + column] = (float)sum;
		}
	}

	CUdeviceptr left = example_upload(a, bytes), right = example_upload(b, bytes), product = example_memory(bytes);
	void *arguments[] = {&left, &right, &product, &n};

	CHECK(cuLaunchKernel(example_kernel(&example, "matmul"), tiles, tiles, 1, TILE, TILE, 1, 0, NULL, arguments, NULL));
	CHECK(cuMemcpyDtoH(got, product, bytes));
	example_compare_floats(&comparison, got, want, count);
	return example_end(&example, &comparison);
}
