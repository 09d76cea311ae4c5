/* SPDX-License-Identifier: Apache-2.0 */
/* lz4.c: one LZ4 block, or its beginning. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "image.h"

/* A length that goes on for as long as its bytes are 255. */
static bool length_of(const unsigned char **at, const unsigned char *end, size_t *length)
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

/* Repeats what lies back bytes before to; it may overlap what it makes. */
static void repeat(unsigned char *to, size_t back, size_t bytes)
{
	while (bytes > back) { /* what is there doubles with each round */
		memcpy(to, to - back, back);
		to += back;
		bytes -= back;
		back *= 2;
	}
	memcpy(to, to - back, bytes);
}

/* begins: room is for the beginning only, and what is more is left out. */
static int decode(const unsigned char *at, size_t size, unsigned char *to, size_t room, bool begins, size_t *out)
{
	const unsigned char *end = at + size;
	size_t made = 0;

	*out = 0;
	while (at < end) {
		unsigned char token = *at++;
		size_t literals = token >> 4;
		size_t match = (token & 15) + 4u;

		if (literals == 15 && !length_of(&at, end, &literals))
			return -EBADMSG;
		if (literals > (size_t)(end - at) || (literals > room - made && !begins))
			return -EBADMSG;
		if (literals > room - made)
			literals = room - made;
		memcpy(to + made, at, literals);
		at += literals;
		made += literals;
		if (at == end || made == room) /* the last sequence has no match */
			break;
		if (end - at < 2)
			return -EBADMSG;
		size_t back = at[0] | (size_t)at[1] << 8;

		at += 2;
		if ((token & 15) == 15 && !length_of(&at, end, &match))
			return -EBADMSG;
		if (!back || back > made || (match > room - made && !begins))
			return -EBADMSG;
		if (match > room - made)
			match = room - made;
		repeat(to + made, back, match);
		made += match;
	}
	*out = made;
	return 0;
}

int sd_lz4_expand(const unsigned char *from, size_t size, unsigned char *to, size_t room)
{
	size_t made = 0;
	int result = decode(from, size, to, room, false, &made);

	return result == 0 && made == room ? 0 : -EBADMSG;
}

int sd_lz4_begin(const unsigned char *from, size_t size, unsigned char *to, size_t room, size_t *made)
{
	return decode(from, size, to, room, true, made);
}
