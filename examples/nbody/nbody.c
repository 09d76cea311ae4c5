/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nbody: bodies that attract each other, each all others, a few steps of time.
 * Each step is a launch on a stream; positions go to and fro between two buffers.
 */
#include "../example.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 128, STEPS = 5 };

#define SECONDS 0.001f
#define SOFTENING 0.01f /* as in nbody.cu */

struct body {
	float x, y, z, mass;
};

/* The same step on the CPU, in the same order of operations. */
static void step(const struct body *from, struct body *to, struct body *speeds, uint32_t bodies)
{
	for (uint32_t i = 0; i < bodies; i++) {
		struct body me = from[i], *speed = &speeds[i];
		float x = 0, y = 0, z = 0;

		for (uint32_t j = 0; j < bodies; j++) {
			float dx = from[j].x - me.x, dy = from[j].y - me.y, dz = from[j].z - me.z;
			float squared = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, SOFTENING)));
			float pull = from[j].mass / (squared * sqrtf(squared));

			x = fmaf(dx, pull, x);
			y = fmaf(dy, pull, y);
			z = fmaf(dz, pull, z);
		}
		speed->x = fmaf(x, SECONDS, speed->x);
		speed->y = fmaf(y, SECONDS, speed->y);
		speed->z = fmaf(z, SECONDS, speed->z);
		to[i] = (struct body){fmaf(speed->x, SECONDS, me.x), fmaf(speed->y, SECONDS, me.y),
				      fmaf(speed->z, SECONDS, me.z), me.mass};
	}
}

int main(int argc, char **argv)
{
	struct example example = {.name = "nbody", .what = "coordinates", .size = 512};
	struct comparison comparison = {0};

	example_start(&example, argc, argv);
	uint32_t bodies = (example.size + BLOCK - 1) / BLOCK * BLOCK;
	size_t bytes = bodies * sizeof(struct body);
	struct body *want[2] = {example_host(bodies, sizeof(struct body)), example_host(bodies, sizeof(struct body))};
	struct body *speeds = example_host(bodies, sizeof(struct body)), *got = example_host(bodies, sizeof(struct body));
	CUdeviceptr places[2], cardspeeds;
	CUfunction kernel = example_kernel(&example, "nbody");
	CUstream stream;
	float seconds = SECONDS;

	for (uint32_t i = 0; i < bodies; i++) {
		want[0][i] = (struct body){example_random_float(), example_random_float(), example_random_float(),
					   example_random_float()};
	}
	places[0] = example_upload(want[0], bytes);
	places[1] = example_memory(bytes);
	cardspeeds = example_upload(speeds, bytes);
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < STEPS; i++) {
		void *arguments[] = {&places[i % 2], &places[(i + 1) % 2], &cardspeeds, &bodies, &seconds};

		CHECK(cuLaunchKernel(kernel, bodies / BLOCK, 1, 1, BLOCK, 1, 1, BLOCK * sizeof(struct body), stream,
				     arguments, NULL));
		step(want[i % 2], want[(i + 1) % 2], speeds, bodies); /* meanwhile */
	}
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemcpyDtoH(got, places[STEPS % 2], bytes));
	example_compare_floats(&comparison, &got->x, &want[STEPS % 2]->x, (size_t)bodies * 4);
	return example_end(&example, &comparison);
}
