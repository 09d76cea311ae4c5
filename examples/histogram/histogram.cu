/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

#define BINS 256

/*
 * How often each byte occurs. A block counts in shared memory, where many
 * threads that meet in one bin cost less, and adds its counts to bins at the end.
 */
extern "C" __global__ void histogram(const unsigned char *bytes, unsigned int count, unsigned int *bins)
{
	__shared__ unsigned int own[BINS];

	for (unsigned int i = threadIdx.x; i < BINS; i += blockDim.x)
		own[i] = 0;
	__syncthreads();
	for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		atomicAdd(&own[bytes[i]], 1);
	__syncthreads();
	for (unsigned int i = threadIdx.x; i < BINS; i += blockDim.x)
		if (own[i] != 0)
			atomicAdd(&bins[i], own[i]);
}
