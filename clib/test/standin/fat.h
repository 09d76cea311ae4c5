/* SPDX-License-Identifier: Apache-2.0 */
/* fat.h: fat binaries by hand: a header, and parts behind it. */
#ifndef DIVVY_TEST_FAT_H
#define DIVVY_TEST_FAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FAT_HEADER ((size_t)16)

struct part {
	uint16_t kind, version;
	uint32_t headerbytes;
	uint64_t bytes;
	uint32_t compressed, unknown;
	uint16_t minor, major;
	uint32_t architecture, nameoffset, namebytes;
	uint64_t flags, reserved, expanded;
};

/* Writes the header of one that has so many bytes, with itself. */
static inline void fat_head(unsigned char *fat, size_t size)
{
	const uint64_t header[] = { 0x00100001ba55ed50ull, size - FAT_HEADER };

	memcpy(fat, header, sizeof(header));
}

#endif
