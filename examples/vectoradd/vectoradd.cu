/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

/* One thread for one sum; the last block may have threads to spare. */
extern "C" __global__ void vectoradd(const float *a, const float *b, float *sum, unsigned int count)
{
	unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		sum[i] = a[i] + b[i];
}
