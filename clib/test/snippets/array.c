/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays; the driver's own rule says what they cost. */
#include "snippet.h"

#ifndef CUDA_ARRAY3D_SPARSE
#define CUDA_ARRAY3D_SPARSE 0x40u
#endif
#define ELEMENTS (ROW_BYTES / 4) /* one float each */

static int take_array(struct holding *h, size_t bytes)
{
	CUDA_ARRAY_DESCRIPTOR descriptor = {
		.Width = ELEMENTS,
		.Height = bytes / ROW_BYTES,
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 1,
	};
	CUarray array = h->handle;
	int result = (int)DRIVER(cuArrayCreate_v2)(&array, &descriptor);

	h->handle = array;
	return result;
}

static int take_array_v1(struct holding *h, size_t bytes)
{
	CUDA_ARRAY_DESCRIPTOR_v1 descriptor = {
		.Width = ELEMENTS,
		.Height = (unsigned int)(bytes / ROW_BYTES),
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 1,
	};
	CUarray array = h->handle;
	int result = (int)DRIVER(cuArrayCreate)(&array, &descriptor);

	h->handle = array;
	return result;
}

static int take_array3d(struct holding *h, size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {
		.Width = ELEMENTS,
		.Height = 64,
		.Depth = bytes / ROW_BYTES / 64,
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 1,
	};
	CUarray array = h->handle;
	int result = (int)DRIVER(cuArray3DCreate_v2)(&array, &descriptor);

	h->handle = array;
	return result;
}

static int take_array3d_v1(struct holding *h, size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR_v1 descriptor = {
		.Width = ELEMENTS,
		.Height = 64,
		.Depth = (unsigned int)(bytes / ROW_BYTES / 64),
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 1,
	};
	CUarray array = h->handle;
	int result = (int)DRIVER(cuArray3DCreate)(&array, &descriptor);

	h->handle = array;
	return result;
}

static int give_array(struct holding *h)
{
	return (int)DRIVER(cuArrayDestroy)(h->handle);
}

static int take_mipmap(struct holding *h, size_t bytes)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {
		.Width = ELEMENTS,
		.Height = bytes / ROW_BYTES,
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 1,
	};
	CUmipmappedArray array = h->handle;
	int result = (int)DRIVER(cuMipmappedArrayCreate)(&array, &descriptor, 4);

	h->handle = array;
	return result;
}

static int give_mipmap(struct holding *h)
{
	return (int)DRIVER(cuMipmappedArrayDestroy)(h->handle);
}

static const struct allocator allocators[] = {
	ALLOCATOR(cuArrayCreate_v2, take_array, give_array, COST_EXACT, DATA_ARRAY),
	ALLOCATOR(cuArrayCreate, take_array_v1, give_array, COST_EXACT, DATA_ARRAY),
	ALLOCATOR(cuArray3DCreate_v2, take_array3d, give_array, COST_EXACT, DATA_ARRAY),
	ALLOCATOR(cuArray3DCreate, take_array3d_v1, give_array, COST_EXACT, DATA_ARRAY),
	ALLOCATOR(cuMipmappedArrayCreate, take_mipmap, give_mipmap, COST_AT_LEAST, DATA_NONE),
};

/* Odd sizes: whatever the driver's rule, destroy gives back what create took. */
static void destroy(void)
{
	uint64_t before = snippet_room();
	CUarray arrays[16];

	for (unsigned int i = 0; i < COUNT(arrays); i++) {
		CUDA_ARRAY3D_DESCRIPTOR descriptor = {
			.Width = 3 + 37 * i,
			.Height = i % 3 ? 5 + 11 * i : 0,
			.Depth = i % 3 == 2 ? 3 + i : 0,
			.Format = i & 1 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_UNSIGNED_INT8,
			.NumChannels = 1u << (i % 3),
		};
		uint64_t here = snippet_room();

		OK(DRIVER(cuArray3DCreate_v2)(&arrays[i], &descriptor));
		CHECK(snippet_room() < here);
	}
	for (size_t i = 0; i < COUNT(arrays); i++)
		OK(DRIVER(cuArrayDestroy)(arrays[i]));
	EQUAL(snippet_room(), before);
}

/* The levels of a mipmapped array belong to it: looking at one costs nothing. */
static void mipmap_destroy(void)
{
	struct holding h = {.bytes = 8 * MIB};
	uint64_t before = snippet_room(), held;
	CUarray level = NULL;

	OK(take_mipmap(&h, h.bytes));
	held = snippet_room();
	CHECK(before - held >= 8 * MIB + 2 * MIB);
	OK(DRIVER(cuMipmappedArrayGetLevel)(&level, h.handle, 1));
	EQUAL(snippet_room(), held);
	OK(give_mipmap(&h));
	EQUAL(snippet_room(), before);
}

/* A sparse array has no memory of its own. */
static void sparse(void)
{
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {
		.Width = ELEMENTS,
		.Height = 1024,
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 1,
		.Flags = CUDA_ARRAY3D_SPARSE,
	};
	uint64_t before = snippet_room();
	CUarray array = NULL;

	CUresult result = DRIVER(cuArray3DCreate_v2)(&array, &descriptor);

	/* Not every driver has them; it says so and nothing stays charged. */
	EQUAL(snippet_room(), before);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		return;
	OK(result);
	OK(DRIVER(cuArrayDestroy)(array));
	EQUAL(snippet_room(), before);
}

static const struct snippet snippets[] = {
	SNIPPET(cuArrayDestroy, destroy),
	SNIPPET(cuMipmappedArrayDestroy, mipmap_destroy),
	SNIPPET(cuArray3DCreate_v2, sparse),
};

const struct area area_array = {
	.name = "array",
	.allocators = allocators,
	.allocators_count = COUNT(allocators),
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
