/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

/* Keeps bodies that meet from being thrown out of the world. */
#define SOFTENING 0.01f

/* As many bodies as the block has threads; the launch says how many bytes. */
extern __shared__ float4 tile[];

/*
 * One step of time for bodies that attract each other: x, y, z and mass in w.
 * The bodies' number is a multiple of the block's size.
 */
extern "C" __global__ void nbody(const float4 *from, float4 *to, float4 *speeds, unsigned int bodies, float seconds)
{
	unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
	float4 me = from[i], speed = speeds[i];
	float x = 0, y = 0, z = 0;

	for (unsigned int begin = 0; begin < bodies; begin += blockDim.x) {
		tile[threadIdx.x] = from[begin + threadIdx.x];
		__syncthreads();
		for (unsigned int j = 0; j < blockDim.x; j++) {
			float4 other = tile[j];
			float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
			float squared = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, SOFTENING)));
			float pull = other.w / (squared * sqrtf(squared));

			x = fmaf(dx, pull, x);
			y = fmaf(dy, pull, y);
			z = fmaf(dz, pull, z);
		}
		__syncthreads();
	}
	speed.x = fmaf(x, seconds, speed.x);
	speed.y = fmaf(y, seconds, speed.y);
	speed.z = fmaf(z, seconds, speed.z);
	me.x = fmaf(speed.x, seconds, me.x);
	me.y = fmaf(speed.y, seconds, me.y);
	me.z = fmaf(speed.z, seconds, me.z);
	speeds[i] = speed;
	to[i] = me;
}
