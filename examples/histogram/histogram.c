/* SPDX-License-Identifier: Apache-2.0 */
/* histogram: how often each byte occurs, by atomic additions in two kinds of memory. */
#include "../example.h"

int main(int argc, char **argv)
{
	struct example example = {.name = "histogram", .what = "bins", .size = 1000003};
	struct comparison comparison = {0};
	enum { BINS = 256, BLOCKS = 48, BLOCK = 192 };
	uint32_t got[BINS], want[BINS] = {0};

	example_start(&example, argc, argv);
	uint32_t count = example.size;
	uint8_t *bytes = example_host(count, 1);

	for (uint32_t i = 0; i < count; i++) {
		/* some often, some never */
		bytes[i] = (uint8_t)((example_random() & example_random()) >> 13);
		want[bytes[i]]++;
	}

	CUdeviceptr from = example_upload(bytes, count), bins = example_memory(sizeof got);
	void *arguments[] = {&from, &count, &bins};

	CHECK(cuMemsetD32(bins, 0, BINS));
	CHECK(cuLaunchKernel(example_kernel(&example, "histogram"), BLOCKS, 1, 1, BLOCK, 1, 1, 0, NULL, arguments, NULL));
	CHECK(cuMemcpyDtoH(got, bins, sizeof got));
	example_compare_ints(&comparison, got, want, BINS);
	return example_end(&example, &comparison);
}
