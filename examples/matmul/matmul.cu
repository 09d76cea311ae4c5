/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

#define TILE 16

/*
 * c = a b, for square matrices of n rows. A block works out one tile of c: it
 * brings one tile each of a and b into shared memory, where every value is used
 * TILE times, and goes on to the next two. Outside of a and b there are zeros.
 */
extern "C" __global__ void matmul(const float *a, const float *b, float *c, unsigned int n)
{
	__shared__ float left[TILE][TILE], right[TILE][TILE];
	unsigned int column = blockIdx.x * TILE + threadIdx.x;
	unsigned int row = blockIdx.y * TILE + threadIdx.y;
	float sum = 0;

	for (unsigned int begin = 0; begin < n; begin += TILE) {
		unsigned int i = begin + threadIdx.x, j = begin + threadIdx.y;

		left[threadIdx.y][threadIdx.x] = row < n && i < n ? a[row * n + i] : 0;
		right[threadIdx.y][threadIdx.x] = j < n && column < n ? b[j * n + column] : 0;
		__syncthreads();
		for (unsigned int k = 0; k < TILE; k++)
			sum = fmaf(left[threadIdx.y][k], right[k][threadIdx.x], sum);
		__syncthreads();
	}
	if (row < n && column < n)
		c[row * n + column] = sum;
}
