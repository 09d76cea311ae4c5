/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy_arrays.h: how much of a simulated card a CUDA array takes, one rule for
 * the stand-in driver and for the front library (a hardware driver is asked
 * instead).
 *
 * Bytes of a row rounded up to 64, rows rounded up to 8 (a 1D array has one
 * row and is not rounded), times depth or layers; the levels of a mipmapped
 * array are added up; the total is rounded up to 512. A format in blocks of 4x4
 * texels counts rows and columns of blocks. A format in planes counts each
 * plane as an array of its own.
 */
#ifndef DIVVY_ARRAYS_H
#define DIVVY_ARRAYS_H

#include <stdint.h>

#define DIVVY_ARRAY_ROW_UNIT 64ull
#define DIVVY_ARRAY_HEIGHT_UNIT 8ull
#define DIVVY_ARRAY_UNIT 512ull
#define DIVVY_ARRAY_LAYERED 1u /* CUDA_ARRAY3D_LAYERED */
#define DIVVY_ARRAY_CUBEMAP 4u /* CUDA_ARRAY3D_CUBEMAP */
#define DIVVY_ARRAY_MAX_EXTENT (1ull << 28)

/* One plane of one level. */
struct divvy_plane {
	uint64_t elementbytes; /* of one texel, or of one block */
	uint64_t columns;      /* texels or blocks in a row */
	uint64_t rows;
	uint64_t slices;       /* depth, or layers */
	uint64_t pitch;        /* bytes from row to row */
	uint64_t slicerows;    /* rows from slice to slice */
	uint64_t bytes;        /* pitch * slicerows * slices */
};

/* bytes of one element of one channel's format, 0 if unknown; *blocks: it
 * stands for 4x4 texels whatever the number of channels */
static inline uint64_t divvy_array_element(unsigned int format, unsigned int channels, int *blocks)
{
	*blocks = 0;
	switch (format) {
	case 1: case 8: /* 8 bit integers */
		return channels;
	case 2: case 9: case 16: /* 16 bit integers, half */
		return 2ull * channels;
	case 3: case 10: case 32: /* 32 bit integers, float */
		return 4ull * channels;
	case 192: case 198:
		return 1;
	case 193: case 199: case 195: case 201:
		return 2;
	case 194: case 200: case 196: case 202: case 80:
		return 4;
	case 197: case 203:
		return 8;
	case 145: case 146: case 151: case 152: /* BC1, BC4 */
		*blocks = 1;
		return 8;
	case 147: case 148: case 149: case 150: case 153: case 154: case 155: case 156: case 157: case 158:
		*blocks = 1;
		return 16;
	default:
		return 0;
	}
}

/* planes of a format: 2 for NV12, P010 and P016 (luma, then chroma of half the
 * width and height with two components), else 1 */
static inline unsigned int divvy_array_planes(unsigned int format)
{
	return format == 176 || format == 159 || format == 161 ? 2 : 1;
}

/* Lays out one plane of one level. 0, or -1 if the extent or format is none. */
static inline int divvy_array_plane(uint64_t width, uint64_t height, uint64_t depth, unsigned int format,
				    unsigned int channels, unsigned int flags, unsigned int level,
				    unsigned int planeindex, struct divvy_plane *plane)
{
	int blocks = 0;
	int layered = (flags & (DIVVY_ARRAY_LAYERED | DIVVY_ARRAY_CUBEMAP)) != 0;
	uint64_t element;
	uint64_t bytes;

	if (width == 0 || width > DIVVY_ARRAY_MAX_EXTENT || height > DIVVY_ARRAY_MAX_EXTENT ||
	    depth > DIVVY_ARRAY_MAX_EXTENT || level > 31)
		return -1;
	if (divvy_array_planes(format) == 2) {
		if (planeindex > 1)
			return -1;
		element = (format == 176 ? 1 : 2) << planeindex;
		width = (width + planeindex) >> planeindex;
		height = (height + planeindex) >> planeindex;
	} else {
		if (planeindex != 0 || channels == 0 || channels > 4)
			return -1;
		element = divvy_array_element(format, channels, &blocks);
		if (element == 0)
			return -1;
	}
	width = width >> level ? width >> level : 1;
	height = height ? (height >> level ? height >> level : 1) : 0;
	if (!layered)
		depth = depth ? (depth >> level ? depth >> level : 1) : 0;
	if (blocks) {
		width = (width + 3) / 4;
		height = (height + 3) / 4;
	}
	plane->elementbytes = element;
	plane->columns = width;
	plane->rows = height ? height : 1;
	plane->slices = depth ? depth : 1;
	plane->pitch = (width * element + DIVVY_ARRAY_ROW_UNIT - 1) / DIVVY_ARRAY_ROW_UNIT * DIVVY_ARRAY_ROW_UNIT;
	plane->slicerows = height ? (height + DIVVY_ARRAY_HEIGHT_UNIT - 1) / DIVVY_ARRAY_HEIGHT_UNIT * DIVVY_ARRAY_HEIGHT_UNIT : 1;
	if (__builtin_mul_overflow(plane->pitch, plane->slicerows, &bytes) ||
	    __builtin_mul_overflow(bytes, plane->slices, &plane->bytes))
		return -1;
	return 0;
}

/* What an array (levels 0 or 1) or a mipmapped array takes. 0 and *bytes, or -1
 * if the descriptor is none. */
static inline int divvy_array_bytes(uint64_t width, uint64_t height, uint64_t depth, unsigned int format,
				    unsigned int channels, unsigned int flags, unsigned int levels,
				    uint64_t *bytes)
{
	uint64_t total = 0;
	struct divvy_plane plane;

	if (levels > 32)
		return -1;
	for (unsigned int level = 0; level < (levels ? levels : 1); level++) {
		for (unsigned int i = 0; i < divvy_array_planes(format); i++) {
			if (divvy_array_plane(width, height, depth, format, channels, flags, level, i, &plane) < 0 ||
			    __builtin_add_overflow(total, plane.bytes, &total))
				return -1;
		}
	}
	if (total > UINT64_MAX - DIVVY_ARRAY_UNIT)
		return -1;
	*bytes = (total + DIVVY_ARRAY_UNIT - 1) / DIVVY_ARRAY_UNIT * DIVVY_ARRAY_UNIT;
	return 0;
}

#endif
