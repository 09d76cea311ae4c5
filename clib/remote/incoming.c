/* SPDX-License-Identifier: Apache-2.0 */
/* incoming.c: bytes from the worker, of whoever has the role to read them. */
#include "incoming.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IN_BYTES = 1 << 18 };

static struct {
	int fd;
	uint8_t *bytes; /* read and not yet taken */
	size_t start, end;
} incoming;

bool incoming_open(int fd)
{
	incoming.bytes = incoming.bytes ? incoming.bytes : malloc(IN_BYTES);
	incoming.start = incoming.end = 0;
	incoming.fd = fd;
	return incoming.bytes != NULL;
}

bool incoming_waits(void)
{
	return incoming.start < incoming.end;
}

/* More bytes from the connection; waits for them when they are wanted. */
static bool more(bool wait)
{
	if (incoming.start == incoming.end)
		incoming.start = incoming.end = 0;
	if (incoming.end == IN_BYTES) {
		memmove(incoming.bytes, incoming.bytes + incoming.start, incoming.end - incoming.start);
		incoming.end -= incoming.start;
		incoming.start = 0;
	}
	for (;;) {
		ssize_t n = recv(incoming.fd, incoming.bytes + incoming.end, IN_BYTES - incoming.end, wait ? 0 : MSG_DONTWAIT);

		if (n > 0) {
			incoming.end += (size_t)n;
			return true;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = ECONNRESET;
		return false;
	}
}

/* Exactly so many bytes. */
bool incoming_take(void *to, size_t length)
{
	uint8_t *at = to;

	while (length) {
		size_t here = incoming.end - incoming.start;

		if (!here) {
			if (length >= IN_BYTES) { /* past the buffer */
				ssize_t n = recv(incoming.fd, at, length, 0);

				if (n < 0 && errno == EINTR)
					continue;
				if (n <= 0) {
					errno = n == 0 ? ECONNRESET : errno;
					return false;
				}
				at += n;
				length -= (size_t)n;
				continue;
			}
			if (!more(true))
				return false;
			continue;
		}
		if (here > length)
			here = length;
		memcpy(at, incoming.bytes + incoming.start, here);
		incoming.start += here;
		at += here;
		length -= here;
	}
	return true;
}

bool incoming_skip(size_t length)
{
	uint8_t rest[4096];

	while (length) {
		size_t part = length < sizeof(rest) ? length : sizeof(rest);

		if (!incoming_take(rest, part))
			return false;
		length -= part;
	}
	return true;
}

bool incoming_print(size_t length)
{
	uint8_t text[4096];

	while (length) {
		size_t part = length < sizeof(text) ? length : sizeof(text);

		if (!incoming_take(text, part))
			return false;
		if (write(STDOUT_FILENO, text, part) < 0)
			errno = 0; /* a closed output is the program's choice */
		length -= part;
	}
	return true;
}
