/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

typedef unsigned long long texture;

/* A texture object and a place in it; the object says how places and values are meant. */
static __device__ float read_float(texture image, float x, float y)
{
	float r, g, b, a;

	asm("tex.2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
	    : "=f"(r), "=f"(g), "=f"(b), "=f"(a)
	    : "l"(image), "f"(x), "f"(y));
	return r;
}

static __device__ unsigned int read_byte(texture image, float x, float y)
{
	unsigned int r, g, b, a;

	asm("tex.2d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
	    : "=r"(r), "=r"(g), "=r"(b), "=r"(a)
	    : "l"(image), "f"(x), "f"(y));
	return r;
}

/*
 * Bytes, each the nearest one, the border repeated outside: a 3 by 3 blur in
 * whole numbers.
 */
extern "C" __global__ void blur(texture image, unsigned char *to, unsigned int width, unsigned int height)
{
	unsigned int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	unsigned int sum = 0;

	if (x >= width || y >= height)
		return;
	for (int dy = -1; dy <= 1; dy++)
		for (int dx = -1; dx <= 1; dx++)
			sum += read_byte(image, (float)((int)x + dx) + 0.5f, (float)((int)y + dy) + 0.5f) *
			       (unsigned int)((2 - dx * dx) * (2 - dy * dy));
	to[y * width + x] = (unsigned char)((sum + 8) / 16);
}

/* Floats, the card weighs the four nearest: the image, times larger. */
extern "C" __global__ void magnify(texture image, float *to, unsigned int width, unsigned int height, float times)
{
	unsigned int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x < width && y < height)
		to[y * width + x] = read_float(image, ((float)x + 0.5f) / times, ((float)y + 0.5f) / times);
}

/*
 * Bytes that are read as 0 to 1, at places where the image is 1 wide and high
 * and repeats, in a mirror, for ever.
 */
extern "C" __global__ void tile(texture image, float *to, unsigned int width, unsigned int height, float times)
{
	unsigned int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x < width && y < height)
		to[y * width + x] = read_float(image, ((float)x + 0.5f) * times / (float)width - 1.0f,
					       ((float)y + 0.5f) * times / (float)height - 1.0f);
}
