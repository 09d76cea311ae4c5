/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fat.c: fat binaries: a header, then parts, each with a header of its own. A
 * part is PTX or machine code for one architecture, plain or compressed. PTX is
 * plain or one LZ4 block; that is what toolkits up to 12 make. Toolkit 13 has
 * Zstandard too, one frame.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

#define FAT_MAGIC 0xba55ed50u
#define PART_PTX 1u
#define PART_LZ4 0x2000ull
#define PART_ZSTANDARD 0x8000ull
#define PART_COMPRESSED 0xf000ull /* in any way */
#define TEXT_MOST PTX_TEXT_MOST

struct fat_header {
	uint32_t magic;
	uint16_t version;
	uint16_t headerbytes;
	uint64_t bytes; /* after the header */
};

struct part_header {
	uint16_t kind;
	uint16_t version;
	uint32_t headerbytes;
	uint64_t bytes;      /* after the header, with padding */
	uint32_t compressed; /* bytes of them that count */
	uint32_t unknown;
	uint16_t minor;
	uint16_t major;
	uint32_t architecture; /* 80 for sm_80 */
	uint32_t nameoffset;
	uint32_t namebytes;
	uint64_t flags;
	uint64_t reserved;
	uint64_t expanded; /* bytes, when compressed */
};

_Static_assert(sizeof(struct fat_header) == 16 && sizeof(struct part_header) == 64, "layout of fat binaries");

size_t sd_fat_size(const void *data, size_t size)
{
	struct fat_header header;

	/* what has no such magic may have no more than its four bytes */
	memcpy(&header.magic, data, sizeof(header.magic));
	if (header.magic != FAT_MAGIC || (size && size < sizeof(header)))
		return 0;
	memcpy(&header, data, sizeof(header));
	if (header.bytes > SD_IMAGE_MOST || header.headerbytes < sizeof(header))
		return 0;
	size_t whole = header.headerbytes + header.bytes;

	return size && size < whole ? 0 : whole;
}

/* A length that goes on for as long as its bytes are 255. */
static bool lz4_length(const unsigned char **at, const unsigned char *end, size_t *length)
{
	unsigned char byte = 255;

	while (byte == 255) {
		if (*at >= end)
			return false;
		byte = *(*at)++;
		*length += byte;
		if (*length > SD_IMAGE_MOST)
			return false;
	}
	return true;
}

int sd_lz4_expand(const unsigned char *at, size_t size, unsigned char *to, size_t room)
{
	const unsigned char *end = at + size;
	size_t made = 0;

	while (at < end) {
		unsigned char token = *at++;
		size_t literals = token >> 4;
		size_t match = (token & 15) + 4u;

		if (literals == 15 && !lz4_length(&at, end, &literals))
			return -EBADMSG;
		if (literals > (size_t)(end - at) || literals > room - made)
			return -EBADMSG;
		memcpy(to + made, at, literals);
		at += literals;
		made += literals;
		if (at == end || made == room) /* the last sequence has no match */
			break;
		if (end - at < 2)
			return -EBADMSG;
		size_t back = at[0] | (size_t)at[1] << 8;

		at += 2;
		if ((token & 15) == 15 && !lz4_length(&at, end, &match))
			return -EBADMSG;
		if (!back || back > made || match > room - made)
			return -EBADMSG;
		for (size_t i = 0; i < match; i++, made++) /* it may overlap what it makes */
			to[made] = to[made - back];
	}
	return made == room ? 0 : -EBADMSG;
}

static int expand(const struct part_header *part, const unsigned char *bytes, const char **text, size_t *length,
		  unsigned char **made, struct ptx_log *log)
{
	uint64_t way = part->flags & PART_COMPRESSED;
	size_t size = part->compressed ? part->compressed : part->bytes;
	int rc;

	if (!way) {
		*text = (const char *)bytes;
		*length = part->bytes;
		return 0;
	}
	if (way != PART_LZ4 && way != PART_ZSTANDARD) {
		ptx_fail(log, 0, "the PTX of this fat binary is compressed in an unknown way, which a simulated card does "
			 "not read; nvcc --no-compress leaves it as it is");
		return -ENOEXEC;
	}
	if (size > part->bytes || !part->expanded || part->expanded > TEXT_MOST)
		return -EINVAL;
	*made = malloc(part->expanded);
	if (!*made)
		return -ENOMEM;
	rc = way == PART_LZ4 ? sd_lz4_expand(bytes, size, *made, part->expanded)
			     : sd_zstandard_expand(bytes, size, *made, part->expanded);
	if (rc < 0) {
		free(*made);
		*made = NULL;
		if (rc != -ENOSYS)
			return -EINVAL;
		ptx_fail(log, 0, "the PTX of this fat binary is compressed with Zstandard, for which a simulated card needs "
			 "libzstd.so.1 (Debian: libzstd1); nvcc --no-compress leaves it as it is");
		return -ENOEXEC;
	}
	*text = (const char *)*made;
	*length = part->expanded;
	return 0;
}

int sd_fat_text(const void *data, size_t size, unsigned int capability, const char **text, size_t *length,
		unsigned char **made, struct ptx_log *log)
{
	const unsigned char *bytes = data;
	struct fat_header header;
	struct part_header best = { 0 };
	const unsigned char *bestbytes = NULL;
	unsigned int newest = 0;

	memcpy(&header, data, sizeof(header));
	for (size_t at = header.headerbytes; size - at >= sizeof(best);) {
		struct part_header part;

		memcpy(&part, bytes + at, sizeof(part));
		if (part.headerbytes < sizeof(part) || part.headerbytes > size - at ||
		    part.bytes > size - at - part.headerbytes)
			return -EINVAL;
		if (part.kind == PART_PTX) {
			if (newest < part.architecture)
				newest = part.architecture;
			if (part.architecture <= capability && (!bestbytes || part.architecture > best.architecture)) {
				best = part;
				bestbytes = bytes + at + part.headerbytes;
			}
		}
		at += part.headerbytes + part.bytes;
	}
	if (bestbytes)
		return expand(&best, bestbytes, text, length, made, log);
	if (newest)
		ptx_fail(log, 0, "the PTX of this fat binary is for sm_%u, this card is sm_%u", newest, capability);
	else
		ptx_fail(log, 0, "this fat binary has no PTX, and machine code cannot be run on a simulated card");
	return -ENOEXEC;
}
