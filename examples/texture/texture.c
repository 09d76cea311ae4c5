/* SPDX-License-Identifier: Apache-2.0 */
/*
 * texture: three ways to read an image through a texture object. The card finds
 * the place, repeats the border or mirrors the image, weighs neighbours, and
 * turns bytes into numbers from 0 to 1.
 */
#include "../example.h"

#include <math.h>

enum { BLOCK = 16, TIMES = 4 };

/* An image in an array of the card. */
static CUarray image(const void *pixels, uint32_t width, uint32_t height, CUarray_format format, size_t bytes)
{
	CUDA_ARRAY_DESCRIPTOR descriptor = {.Width = width, .Height = height, .Format = format, .NumChannels = 1};
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = pixels,
		.srcPitch = width * bytes,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.WidthInBytes = width * bytes,
		.Height = height,
	};
	CUarray array;

	CHECK(cuArrayCreate(&array, &descriptor));
	copy.dstArray = array;
	CHECK(cuMemcpy2D(&copy));
	return array;
}

static CUtexObject texture(CUarray array, CUaddress_mode address, CUfilter_mode filter, unsigned int flags)
{
	CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
	CUDA_TEXTURE_DESC how = {.addressMode = {address, address, address}, .filterMode = filter, .flags = flags};
	CUtexObject object;

	CHECK(cuTexObjectCreate(&object, &resource, &how, NULL));
	return object;
}

static void launch(CUfunction kernel, uint32_t width, uint32_t height, void **arguments)
{
	CHECK(cuLaunchKernel(kernel, (width + BLOCK - 1) / BLOCK, (height + BLOCK - 1) / BLOCK, 1, BLOCK, BLOCK, 1, 0, NULL,
			     arguments, NULL));
}

static uint32_t clamp(int64_t i, uint32_t count)
{
	return i < 0 ? 0 : i >= count ? count - 1 : (uint32_t)i;
}

static uint32_t mirror(double at, uint32_t count)
{
	double whole = floor(at), part = at - whole;

	if (fmod(fabs(whole), 2) == 1)
		part = 1 - part;
	return clamp((int64_t)floor(part * count), count);
}

static void blur(const struct example *example, struct comparison *comparison, const uint8_t *pixels, uint32_t width,
		 uint32_t height)
{
	size_t count = (size_t)width * height;
	CUarray array = image(pixels, width, height, CU_AD_FORMAT_UNSIGNED_INT8, 1);
	CUtexObject object = texture(array, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
	CUdeviceptr to = example_memory(count);
	uint8_t *got = example_host(count, 1), *want = example_host(count, 1);
	void *arguments[] = {&object, &to, &width, &height};

	for (int64_t y = 0; y < height; y++) {
		for (int64_t x = 0; x < width; x++) {
			unsigned int sum = 8;

			for (int dy = -1; dy <= 1; dy++)
				for (int dx = -1; dx <= 1; dx++)
					sum += pixels[clamp(y + dy, height) * width + clamp(x + dx, width)] *
					       (unsigned int)((2 - dx * dx) * (2 - dy * dy));
			want[y * width + x] = (uint8_t)(sum / 16);
		}
	}
	launch(example_kernel(example, "blur"), width, height, arguments);
	CHECK(cuMemcpyDtoH(got, to, count));
	example_compare_bytes(comparison, got, want, count);
}

/*
 * A card weighs neighbours in steps of 1/256; TIMES times larger, the places lie
 * on such steps and the weights are exact.
 */
static void magnify(const struct example *example, struct comparison *comparison, const float *pixels, uint32_t width,
		    uint32_t height)
{
	uint32_t wide = width * TIMES, high = height * TIMES;
	size_t count = (size_t)wide * high;
	CUarray array = image(pixels, width, height, CU_AD_FORMAT_FLOAT, sizeof(float));
	CUtexObject object = texture(array, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
	CUdeviceptr to = example_memory(count * sizeof(float));
	float *got = example_host(count, sizeof *got), *want = example_host(count, sizeof *want), times = TIMES;
	void *arguments[] = {&object, &to, &wide, &high, &times};

	for (uint32_t y = 0; y < high; y++) {
		for (uint32_t x = 0; x < wide; x++) {
			/* texels have their middle at a half */
			double atx = (x + 0.5) / TIMES - 0.5, aty = (y + 0.5) / TIMES - 0.5;
			double left = floor(atx), top = floor(aty), right = atx - left, low = aty - top;
			const float *upper = pixels + (size_t)clamp((int64_t)top, height) * width;
			const float *lower = pixels + (size_t)clamp((int64_t)top + 1, height) * width;
			uint32_t i = clamp((int64_t)left, width), j = clamp((int64_t)left + 1, width);

			want[(size_t)y * wide + x] =
				(float)((1 - low) * ((1 - right) * (double)upper[i] + right * (double)upper[j]) +
					low * ((1 - right) * (double)lower[i] + right * (double)lower[j]));
		}
	}
	launch(example_kernel(example, "magnify"), wide, high, arguments);
	CHECK(cuMemcpyDtoH(got, to, count * sizeof(float)));
	example_compare_floats(comparison, got, want, count);
}

/* The image three times in each direction, the middle one the right way round. */
static void tile(const struct example *example, struct comparison *comparison, const uint8_t *pixels, uint32_t width,
		 uint32_t height)
{
	enum { WIDE = 256 }; /* places are whole parts of 2: exact in floats */
	size_t count = (size_t)WIDE * WIDE;
	uint32_t wide = WIDE;
	CUarray array = image(pixels, width, height, CU_AD_FORMAT_UNSIGNED_INT8, 1);
	CUtexObject object = texture(array, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_POINT,
				     CU_TRSF_NORMALIZED_COORDINATES);
	CUdeviceptr to = example_memory(count * sizeof(float));
	float *got = example_host(count, sizeof *got), *want = example_host(count, sizeof *want), times = 3;
	void *arguments[] = {&object, &to, &wide, &wide, &times};

	for (uint32_t y = 0; y < WIDE; y++) {
		for (uint32_t x = 0; x < WIDE; x++) {
			uint32_t i = mirror((x + 0.5) * 3 / WIDE - 1, width), j = mirror((y + 0.5) * 3 / WIDE - 1, height);

			want[(size_t)y * WIDE + x] = (float)pixels[(size_t)j * width + i] / 255.0f;
		}
	}
	launch(example_kernel(example, "tile"), WIDE, WIDE, arguments);
	CHECK(cuMemcpyDtoH(got, to, count * sizeof(float)));
	example_compare_floats(comparison, got, want, count);
}

int main(int argc, char **argv)
{
	struct example example = {.name = "texture", .what = "pixels", .size = 96};
	struct comparison comparison = {0};

	example_start(&example, argc, argv);
	uint32_t width = example.size, height = example.size * 3 / 4 + 1;
	size_t count = (size_t)width * height;
	uint8_t *bytes = example_host(count, 1);
	float *floats = example_host(count, sizeof *floats);

	for (size_t i = 0; i < count; i++) {
		bytes[i] = (uint8_t)(example_random() >> 24);
		floats[i] = example_random_float();
	}
	blur(&example, &comparison, bytes, width, height);
	magnify(&example, &comparison, floats, width, height);
	tile(&example, &comparison, bytes, width, height);
	return example_end(&example, &comparison);
}
