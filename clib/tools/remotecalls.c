/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remotecalls: what calls to a GPU elsewhere cost, for divvy bench remote.
 *
 *	remotecalls             calls libcuda.so.1, whatever the loader finds under that name
 *	remotecalls bare PATH   says and hears as many bytes on a unix socket
 *	remotecalls echo PATH   the other end: takes such a connection, and ends with it
 *
 * The first two greet with "ready" and answer each line of their input by a number of
 * nanoseconds:
 *
 *	sync N          the median of N round trips, of cuMemGetInfo each
 *	launch N        of N launches with four parameters, until all have been made
 *	copy BYTES N    of N copies to the GPU, until the last has arrived
 *
 * A bare message is a header, bytes that follow and bytes that are to be answered, 4 bytes
 * each, and what follows.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST_ROUNDS 1000000
#define MOST_BYTES (1ul << 30)
#define ASKED_BYTES 64    /* as cuMemGetInfo sends, header and all */
#define ANSWERED_BYTES 56 /* and gets */
#define LAUNCH_BYTES 144  /* as a launch sends */

static struct driver driver;
static int bare = -1; /* the socket; without it the driver is called */
static CUfunction function;
static CUdeviceptr block;
static size_t blockbytes;
static uint8_t *bytes; /* as many */

static int whole(int fd, void *at, size_t length, int out)
{
	uint8_t *next = at;

	while (length) {
		ssize_t n = out ? send(fd, next, length, MSG_NOSIGNAL) : recv(fd, next, length, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		next += n;
		length -= (size_t)n;
	}
	return 0;
}

/* Says so many bytes, in message's room, and hears so many; 0 or -1. */
static int say(uint8_t *message, uint32_t length, uint32_t answered)
{
	uint8_t answer[ANSWERED_BYTES];
	uint32_t header[2] = {length - (uint32_t)sizeof header, answered};

	memcpy(message, header, sizeof header);
	return whole(bare, message, length, 1) || (answered && whole(bare, answer, answered, 0)) ? -1 : 0;
}

static int ask(void)
{
	uint8_t message[ASKED_BYTES] = {0};
	size_t available, total;

	return bare >= 0 ? say(message, ASKED_BYTES, ANSWERED_BYTES) : (int)driver.info(&available, &total);
}

static int order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int syncs(unsigned long count, uint64_t *ns)
{
	uint64_t *took = calloc(count, sizeof *took);
	int failed = took == NULL;

	for (unsigned long i = 0; i < count && !failed; i++) {
		uint64_t start = driver_now_ns();

		failed = ask();
		took[i] = driver_now_ns() - start;
	}
	if (!failed) {
		qsort(took, count, sizeof *took, order);
		*ns = took[count / 2];
	}
	free(took);
	return failed;
}

static int launches(unsigned long count, uint64_t *ns)
{
	uint8_t message[LAUNCH_BYTES] = {0};
	uint64_t a = 1, b = 2, c = 3, start = driver_now_ns();
	unsigned n = 4;
	void *arguments[] = {&a, &b, &c, &n};
	int failed = 0;

	for (unsigned long i = 0; i < count && !failed; i++)
		failed = bare >= 0 ? say(message, LAUNCH_BYTES, 0) : (int)driver.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
	failed = failed || ask();
	*ns = driver_now_ns() - start;
	return failed;
}

/* Room for copies; it is not measured. */
static int make_room(size_t length)
{
	int failed = 0;

	if (length <= blockbytes)
		return 0;
	free(bytes);
	bytes = calloc(1, length);
	if (bare < 0 && block)
		failed = (int)driver.free(block);
	if (bare < 0 && !failed)
		failed = (int)driver.alloc(&block, length);
	blockbytes = length;
	return failed || !bytes;
}

static int copies(size_t length, unsigned long count, uint64_t *ns)
{
	int failed = make_room(length);
	uint64_t start = driver_now_ns();

	for (unsigned long i = 0; i < count && !failed; i++)
		failed = bare >= 0 ? say(bytes, (uint32_t)length, 0) : (int)driver.to_device(block, bytes, length);
	failed = failed || ask();
	*ns = driver_now_ns() - start;
	return failed;
}

static int socket_at(const char *path, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof address->sun_path)
		return -1;
	strcpy(address->sun_path, path);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* Takes one connection and answers it to its end. */
static int echo(const char *path)
{
	enum { ROOM = 1 << 18 };
	struct sockaddr_un address;
	uint8_t *in = malloc(ROOM), answer[256] = {0};
	uint32_t header[2];
	size_t at = 0, end = 0, skip = 0;
	int listener = socket_at(path, &address), fd;

	if (!in || listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)) {
		fprintf(stderr, "remotecalls: %s: %s\n", path, strerror(errno));
		return 1;
	}
	puts("ready");
	fflush(stdout);
	fd = accept(listener, NULL, NULL);
	header[1] = 0;
	for (;;) {
		size_t here = end - at < skip ? end - at : skip;

		at += here;
		skip -= here;
		if (!skip && header[1]) {
			if (whole(fd, answer, header[1], 1))
				return 0;
			header[1] = 0;
		}
		if (!skip && end - at >= sizeof header) {
			memcpy(header, in + at, sizeof header);
			at += sizeof header;
			skip = header[0];
			if (header[1] > sizeof answer)
				return 1;
			continue;
		}
		memmove(in, in + at, end - at);
		end -= at;
		at = 0;
		ssize_t n = recv(fd, in + end, ROOM - end, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		end += (size_t)n;
	}
}

static int open_bare(const char *path)
{
	struct sockaddr_un address;
	int fd = socket_at(path, &address);

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
		fprintf(stderr, "remotecalls: %s: %s\n", path, strerror(errno));
		return -1;
	}
	bare = fd;
	return 0;
}

static int open_driver(void)
{
	static const char text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
				   ".visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{\n\tret;\n}\n";
	CUdevice device;
	CUcontext context;
	CUmodule module;

	return driver_open(&driver, "libcuda.so.1") || driver_check((CUresult)driver_start(&driver, &device, &context), "start") ||
	       driver_check(driver.module_load(&module, text), "cuModuleLoadData") ||
	       driver_check(driver.module_function(&function, module, "nothing"), "cuModuleGetFunction");
}

int main(int argc, char **argv)
{
	char line[128];

	if (argc == 3 && strcmp(argv[1], "echo") == 0)
		return echo(argv[2]);
	if (argc == 3 && strcmp(argv[1], "bare") == 0 ? open_bare(argv[2]) : open_driver())
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		unsigned long length = 0, count = 0;
		uint64_t ns = 0;
		int result = -1;

		if (sscanf(line, "copy %lu %lu", &length, &count) == 2 && length >= ASKED_BYTES && length <= MOST_BYTES && count <= MOST_ROUNDS)
			result = copies(length, count, &ns);
		else if (sscanf(line, "sync %lu", &count) == 1 && count && count <= MOST_ROUNDS)
			result = syncs(count, &ns);
		else if (sscanf(line, "launch %lu", &count) == 1 && count <= 100 * MOST_ROUNDS)
			result = launches(count, &ns);
		if (result) {
			fprintf(stderr, "remotecalls: %s: result %d\n", strtok(line, "\n"), result);
			return 1;
		}
		printf("%llu\n", (unsigned long long)ns);
		fflush(stdout);
	}
	return 0;
}
