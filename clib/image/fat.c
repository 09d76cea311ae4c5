/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fat.c: fat binaries: a header, then parts, each with a header of its own. A
 * part is PTX or machine code for one architecture, plain or compressed. PTX is
 * plain or one LZ4 block; that is what toolkits up to 12 make. Toolkit 13 has
 * Zstandard too, one frame.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

#define FAT_MAGIC 0xba55ed50u
#define PART_PTX 1u
#define PART_LZ4 0x2000ull
#define PART_ZSTANDARD 0x8000ull
#define PART_COMPRESSED 0xf000ull /* in any way */
#define TEXT_MOST PTX_TEXT_MOST

enum {
	HEAD_BYTES = 4096, /* of a text: its .target is not further down */
	MACHINES_MOST = 12, /* that a message names */
};

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

static size_t cut(size_t size, size_t whole, struct ptx_log *log)
{
	ptx_fail(log, 0, "this fat binary is cut: it has %zu of its %zu bytes", size, whole);
	return 0;
}

size_t sd_fat_size(const void *data, size_t size, struct ptx_log *log)
{
	struct fat_header header;

	/* what has no such magic may have no more than its four bytes */
	memcpy(&header.magic, data, sizeof(header.magic));
	if (header.magic != FAT_MAGIC) {
		ptx_fail(log, 0, "this image is neither PTX, an ELF file nor a fat binary: it begins with 0x%08x",
			 header.magic);
		return 0;
	}
	if (size && size < sizeof(header))
		return cut(size, sizeof(header), log);
	memcpy(&header, data, sizeof(header));
	if (header.bytes > SD_IMAGE_MOST || header.headerbytes < sizeof(header)) {
		ptx_fail(log, 0, "this fat binary is broken: its header says that it has %u bytes itself and %llu "
			 "behind it", header.headerbytes, (unsigned long long)header.bytes);
		return 0;
	}
	size_t whole = header.headerbytes + header.bytes;

	return size && size < whole ? cut(size, whole, log) : whole;
}

static int not_expanded(const struct part_header *part, const char *way, int error, struct ptx_log *log)
{
	if (error == -ENOMEM)
		return error;
	if (error == -ENOSYS) {
		ptx_fail(log, 0, "the PTX of this fat binary is compressed with %s, for which a simulated card needs "
			 "libzstd.so.1 (Debian: libzstd1); nvcc --no-compress leaves it as it is", way);
		return -ENOEXEC;
	}
	ptx_fail(log, 0, "the PTX for sm_%u of this fat binary is damaged: by %s it does not expand to its %llu bytes",
		 part->architecture, way, (unsigned long long)part->expanded);
	return -EINVAL;
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
	if (size > part->bytes || !part->expanded || part->expanded > TEXT_MOST) {
		ptx_fail(log, 0, "this fat binary is broken: its PTX for sm_%u says that %zu of %llu bytes expand to "
			 "%llu, where at most %u do", part->architecture, size, (unsigned long long)part->bytes,
			 (unsigned long long)part->expanded, TEXT_MOST);
		return -EINVAL;
	}
	*made = malloc(part->expanded);
	if (!*made)
		return -ENOMEM;
	rc = way == PART_LZ4 ? sd_lz4_expand(bytes, size, *made, part->expanded)
			     : sd_zstandard_expand(bytes, size, *made, part->expanded);
	if (rc < 0) {
		free(*made);
		*made = NULL;
		return not_expanded(part, way == PART_LZ4 ? "LZ4" : "Zstandard", rc, log);
	}
	*text = (const char *)*made;
	*length = part->expanded;
	return 0;
}

/* What a part's text says it is for, from its beginning; else what its header says. */
static struct ptx_head head_of(const struct part_header *part, const unsigned char *bytes)
{
	unsigned char begin[HEAD_BYTES];
	size_t size = part->compressed ? part->compressed : part->bytes;
	size_t made = 0;
	struct ptx_head head = { 0 };
	const char *text = (const char *)begin;
	int result = 0;

	if (size > part->bytes)
		size = part->bytes;
	switch (part->flags & PART_COMPRESSED) {
	case 0:
		text = (const char *)bytes;
		made = part->bytes < HEAD_BYTES ? part->bytes : HEAD_BYTES;
		break;
	case PART_LZ4:
		result = sd_lz4_begin(bytes, size, begin, sizeof(begin), &made);
		break;
	case PART_ZSTANDARD:
		result = sd_zstandard_begin(bytes, size, begin, sizeof(begin), &made);
		break;
	default:
		break;
	}
	if (result < 0 || !ptx_head_read(text, strnlen(text, made), &head))
		head = (struct ptx_head){ .target = part->architecture };
	return head;
}

/* Which cards its machine code is for: what it can be run on instead. */
static void no_ptx(const unsigned int *machine, unsigned int count, struct ptx_log *log)
{
	char cards[MACHINES_MOST * 16] = "";

	for (unsigned int i = 0; i < count; i++)
		snprintf(cards + strlen(cards), sizeof(cards) - strlen(cards), "%s sm_%u", i ? "," : "", machine[i]);
	ptx_fail(log, 0, "this fat binary has no PTX, and machine code%s%s cannot be run on a simulated card",
		 count ? " for" : "", cards);
}

/* The part for a card that is the newest. */
struct choice {
	struct part_header part;
	struct ptx_head head;
	const unsigned char *bytes;
};

static int choose(const void *data, size_t size, unsigned int capability, struct choice *choice, struct ptx_log *log)
{
	const unsigned char *bytes = data;
	struct fat_header header;
	struct ptx_head newest = { 0 };
	unsigned int machine[MACHINES_MOST];
	unsigned int machines = 0;

	*choice = (struct choice){ .bytes = NULL };
	memcpy(&header, data, sizeof(header));
	for (size_t at = header.headerbytes; size - at >= sizeof(struct part_header);) {
		struct part_header part;

		memcpy(&part, bytes + at, sizeof(part));
		if (part.headerbytes < sizeof(part) || part.headerbytes > size - at ||
		    part.bytes > size - at - part.headerbytes) {
			ptx_fail(log, 0, "this fat binary is broken: its part at byte %zu says that it has a header "
				 "of %u bytes and %llu behind it, where there are %zu", at, part.headerbytes,
				 (unsigned long long)part.bytes, size - at);
			return -EINVAL;
		}
		if (part.kind == PART_PTX) {
			struct ptx_head head = { .target = part.architecture };
			bool better = part.architecture <= capability && (!choice->bytes || part.architecture > choice->part.architecture);

			if (better)
				head = head_of(&part, bytes + at + part.headerbytes);
			if (newest.target <= head.target)
				newest = head;
			if (better && sd_ptx_fits(head.target, head.only, capability)) {
				*choice = (struct choice){ part, head, bytes + at + part.headerbytes };
			}
		} else if (machines < MACHINES_MOST) {
			machine[machines++] = part.architecture;
		}
		at += part.headerbytes + part.bytes;
	}
	if (choice->bytes)
		return 0;
	if (newest.target)
		ptx_fail(log, 0, "the PTX of this fat binary is for sm_%u%.1s, this card is sm_%u", newest.target, &newest.only,
			 capability);
	else
		no_ptx(machine, machines, log);
	return -ENOEXEC;
}

int sd_fat_look(const void *data, size_t size, unsigned int capability, struct sd_text *text, struct ptx_log *log)
{
	struct choice choice;
	int result = choose(data, size, capability, &choice, log);

	if (result == 0)
		*text = (struct sd_text){ choice.head, choice.part.flags & PART_COMPRESSED ? choice.part.expanded : choice.part.bytes };
	return result;
}

int sd_fat_text(const void *data, size_t size, unsigned int capability, const char **text, size_t *length,
		unsigned char **made, struct ptx_log *log)
{
	struct choice choice;
	int result = choose(data, size, capability, &choice, log);

	return result < 0 ? result : expand(&choice.part, choice.bytes, text, length, made, log);
}
