/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.c: what is put together to be sent. */
#include <stdlib.h>

#include "remote.h"

bool remote_room(struct remote_bytes *bytes, size_t more)
{
	if (bytes->room - bytes->length >= more)
		return true;
	size_t room = bytes->room ? bytes->room : 512;

	while (room - bytes->length < more) {
		if (room > SIZE_MAX / 4)
			return false;
		room *= 2;
	}
	uint8_t *at = realloc(bytes->at, room);

	if (!at)
		return false;
	bytes->at = at;
	bytes->room = room;
	return true;
}

bool remote_put(struct remote_bytes *bytes, const void *from, size_t length)
{
	size_t padded = call_padded(length);

	if (!remote_room(bytes, padded))
		return false;
	if (length)
		memcpy(bytes->at + bytes->length, from, length);
	memset(bytes->at + bytes->length + length, 0, padded - length);
	bytes->length += padded;
	return true;
}

bool remote_put_word(struct remote_bytes *bytes, uint64_t word)
{
	return remote_put(bytes, &word, sizeof(word));
}

void remote_free(struct remote_bytes *bytes)
{
	free(bytes->at);
	*bytes = (struct remote_bytes){ 0 };
}
