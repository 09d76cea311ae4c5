/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

/*
 * The sum over a block: each warp adds up its 32 values by shuffles, lane 0
 * leaves the result in shared memory, and the first warp adds those up.
 */
template <typename T> static __device__ T block_sum(T value)
{
	__shared__ T of_warp[warpSize];
	unsigned int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;

	for (int delta = warpSize / 2; delta > 0; delta /= 2)
		value += __shfl_down_sync(~0u, value, delta);
	if (lane == 0)
		of_warp[warp] = value;
	__syncthreads();
	if (warp == 0) {
		value = lane < blockDim.x / warpSize ? of_warp[lane] : 0;
		for (int delta = warpSize / 2; delta > 0; delta /= 2)
			value += __shfl_down_sync(~0u, value, delta);
	}
	return value;
}

/* Each thread first sums every so-manieth value, so that any count fits any grid. */
template <typename T> static __device__ void sum(const T *values, T *sums, unsigned int count)
{
	T value = 0;

	for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		value += values[i];
	value = block_sum(value);
	if (threadIdx.x == 0)
		sums[blockIdx.x] = value;
}

/* sums has one place for each block; a second launch with one block adds those up. */
extern "C" __global__ void sum_int(const int *values, int *sums, unsigned int count)
{
	sum(values, sums, count);
}

extern "C" __global__ void sum_float(const float *values, float *sums, unsigned int count)
{
	sum(values, sums, count);
}
