/* SPDX-License-Identifier: Apache-2.0 */
/* incoming.c: bytes from the worker, of whoever has the role to read them. */
#include "incoming.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote.h"

#define LOOK_NS 20000 /* how long is looked again and again before the kernel is asked to wake us */

enum { IN_BYTES = 1 << 18, MOST_MISSES = 12 };

static struct {
	int fd;
	uint8_t *bytes; /* read and not yet taken */
	size_t start, end;
	unsigned int misses, skip; /* how often in a row looking was in vain, and for how many times it is left out */
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

/* A worker on this machine answers before this thread could have been put to sleep and woken.
 * Where it does not, it is hardly looked any more. */
static ssize_t look(void *to, size_t length)
{
	static long processors; /* of the machine; 0: not known yet */
	ssize_t n = -1;

	if (!processors)
		processors = sysconf(_SC_NPROCESSORS_ONLN);
	if (processors < 2 || (incoming.skip && incoming.skip--))
		return -1;
	for (uint64_t until = remote_now() + LOOK_NS; n < 0 && remote_now() < until;)
		n = recv(incoming.fd, to, length, MSG_DONTWAIT);
	incoming.misses = n >= 0 ? 0 : incoming.misses < MOST_MISSES ? incoming.misses + 1 : MOST_MISSES;
	incoming.skip = n >= 0 ? 0 : 1u << incoming.misses;
	return n;
}

/* More bytes from the connection, which are waited for. */
static bool more(void)
{
	if (incoming.start == incoming.end)
		incoming.start = incoming.end = 0;
	if (incoming.end == IN_BYTES) {
		memmove(incoming.bytes, incoming.bytes + incoming.start, incoming.end - incoming.start);
		incoming.end -= incoming.start;
		incoming.start = 0;
	}
	for (;;) {
		ssize_t n = look(incoming.bytes + incoming.end, IN_BYTES - incoming.end);

		if (n < 0)
			n = recv(incoming.fd, incoming.bytes + incoming.end, IN_BYTES - incoming.end, 0);
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
			if (!more())
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

/* Takes so many bytes, which are printed or not. */
static bool pass(size_t length, bool print)
{
	uint8_t bytes[4096];

	while (length) {
		size_t part = length < sizeof(bytes) ? length : sizeof(bytes);

		if (!incoming_take(bytes, part))
			return false;
		if (print && write(STDOUT_FILENO, bytes, part) < 0)
			errno = 0; /* a closed output is the program's choice */
		length -= part;
	}
	return true;
}

bool incoming_skip(size_t length)
{
	return pass(length, false);
}

bool incoming_print(size_t length)
{
	return pass(length, true);
}
