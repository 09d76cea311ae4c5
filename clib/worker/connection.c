/* SPDX-License-Identifier: Apache-2.0 */
/* connection.c: a stream of frames in both directions. */
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "worker.h"

enum { IN_BYTES = 1 << 18, PRINT_BYTES = 1 << 16, PIPE_BYTES = 1 << 20 };

static struct {
	int fd;
	int printed; /* what kernels print comes out here; -1: not caught */
	pthread_mutex_t send;
	pthread_mutex_t print;
	uint8_t in[IN_BYTES] __attribute__((aligned(8))); /* of who reads */
	size_t start, end;
} connection = {
	.fd = -1,
	.printed = -1,
	.send = PTHREAD_MUTEX_INITIALIZER,
	.print = PTHREAD_MUTEX_INITIALIZER,
};

static bool write_parts(struct iovec *parts, int count)
{
	while (count) {
		struct msghdr message = { .msg_iov = parts, .msg_iovlen = (size_t)count };
		ssize_t n = sendmsg(connection.fd, &message, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		while (count && (size_t)n >= parts->iov_len) {
			n -= (ssize_t)parts->iov_len;
			parts++;
			count--;
		}
		if (count) {
			parts->iov_base = (uint8_t *)parts->iov_base + n;
			parts->iov_len -= (size_t)n;
		}
	}
	return true;
}

bool connection_send(unsigned int op, uint64_t seq, uint32_t lane, const void *payload, size_t length)
{
	struct divvy_remote_frame header = { .length = (uint32_t)length, .op = (uint16_t)op, .seq = seq, .lane = lane };
	struct iovec parts[] = { { &header, sizeof(header) }, { (void *)(uintptr_t)payload, length } };

	pthread_mutex_lock(&connection.send);
	bool sent = write_parts(parts, length ? 2 : 1);
	pthread_mutex_unlock(&connection.send);
	return sent;
}

bool worker_send_data(struct worker_lane *lane, uint64_t seq, const void *bytes, size_t length)
{
	return connection_send(DIVVY_REMOTE_DATA, seq, lane->number, bytes, length);
}

/* What kernels have printed so far. */
void connection_send_printed(void)
{
	static uint8_t text[PRINT_BYTES];
	ssize_t n;

	if (connection.printed < 0)
		return;
	pthread_mutex_lock(&connection.print);
	fflush(stdout);
	while ((n = read(connection.printed, text, sizeof(text))) > 0)
		connection_send(DIVVY_REMOTE_PRINT, 0, 0, text, (size_t)n);
	pthread_mutex_unlock(&connection.print);
}

/* The driver prints to this process's output. */
static void catch_printed(void)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
	dup2(ends[1], STDOUT_FILENO);
	close(ends[1]);
	connection.printed = ends[0];
}

/* A reply that has been put together: its header's room is at its start. */
bool connection_answer(struct worker_lane *lane, uint64_t seq)
{
	struct divvy_remote_frame header = {
		.length = (uint32_t)(lane->reply.length - sizeof(header)),
		.op = DIVVY_REMOTE_REPLY,
		.seq = seq,
		.lane = lane->number,
	};

	memcpy(lane->reply.at, &header, sizeof(header));
	struct iovec part = { lane->reply.at, lane->reply.length };

	pthread_mutex_lock(&connection.send);
	bool sent = write_parts(&part, 1);
	pthread_mutex_unlock(&connection.send);
	return sent;
}

void connection_open(int fd)
{
	connection.fd = fd;
	catch_printed();
}

void connection_close(void)
{
	shutdown(connection.fd, SHUT_RDWR);
}

static bool more(void)
{
	if (connection.start == connection.end)
		connection.start = connection.end = 0;
	if (connection.end == IN_BYTES) {
		memmove(connection.in, connection.in + connection.start, connection.end - connection.start);
		connection.end -= connection.start;
		connection.start = 0;
	}
	for (;;) {
		ssize_t n = recv(connection.fd, connection.in + connection.end, IN_BYTES - connection.end, 0);

		if (n > 0) {
			connection.end += (size_t)n;
			return true;
		}
		if (n == 0 || errno != EINTR)
			return false;
	}
}

bool connection_take(void *into, size_t length)
{
	uint8_t *to = into;

	while (length) {
		size_t here = connection.end - connection.start;

		if (!here) {
			if (!more())
				return false;
			continue;
		}
		if (here > length)
			here = length;
		memcpy(to, connection.in + connection.start, here);
		connection.start += here;
		to += here;
		length -= here;
	}
	return true;
}

bool connection_has(size_t length)
{
	return connection.end - connection.start >= length;
}

uint8_t *connection_take_in_place(size_t length)
{
	uint8_t *at = connection.in + connection.start;

	if (connection.end - connection.start < length || (connection.start & 7) != 0)
		return NULL;
	connection.start += length;
	return at;
}
