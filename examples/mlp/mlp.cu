/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

/*
 * One layer for a batch: to[item][output] = bias + sum of from[item][input] times
 * weights[output][input], and nothing below 0 if it is a hidden one. One thread
 * for one output of one item.
 */
extern "C" __global__ void dense(const float *from, const float *weights, const float *bias, float *to,
				 unsigned int items, unsigned int inputs, unsigned int outputs, unsigned int hidden)
{
	unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
	unsigned int item = i / outputs, output = i % outputs;
	float sum;

	if (item >= items)
		return;
	sum = bias[output];
	for (unsigned int k = 0; k < inputs; k++)
		sum = fmaf(from[item * inputs + k], weights[output * inputs + k], sum);
	to[i] = hidden != 0 ? fmaxf(sum, 0) : sum;
}

/*
 * Scores to probabilities, in place: one warp for one item, one lane for one of
 * at most 32 classes.
 */
extern "C" __global__ void softmax(float *scores, unsigned int classes)
{
	unsigned int lane = threadIdx.x;
	float *mine = scores + blockIdx.x * classes;
	float score = lane < classes ? mine[lane] : -1e30f, most = score, power, sum;

	for (int lanes = warpSize / 2; lanes > 0; lanes /= 2)
		most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
	power = exp2_approx((score - most) * 1.44269504f); /* log2(e) */
	sum = power;
	for (int lanes = warpSize / 2; lanes > 0; lanes /= 2)
		sum += __shfl_xor_sync(~0u, sum, lanes);
	if (lane < classes)
		mine[lane] = power / sum;
}
