/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holder: a program that does with the card what it is told, line by line.
 *
 *	start              the first card's primary context        ok
 *	gpu NUMBER         the same of another card, and what follows is there   ok
 *	context            one more context                        ok HANDLE
 *	alloc BYTES        device memory                           ok ADDRESS
 *	free ADDRESS                                               ok
 *	write ADDRESS N    a pattern                               ok
 *	check ADDRESS N    the pattern is still there              ok
 *	info                                                       ok FREE TOTAL
 *	cards              what is visible                         ok COUNT UUID...
 *	grab BYTES         asks again and again until it gets it   ok ADDRESS NANOSECONDS
 *	churn BYTES [MS]   allocates, copies and frees pieces of up to BYTES / 8,
 *	                   at most BYTES together, each MS (0), until the next line
 *	                   comes                                   ok CALLS FAILED DENIED MAXNS
 *	threads N ROUNDS   N threads allocate and free             ok FAILED
 *	resident BYTES     host memory, touched                    ok
 *	fork               a child that waits to be killed         ok PID
 *	close              closes every descriptor above 2         ok
 *	exec               this program starts anew                ok (then: ready PID)
 *	scribble SEED      random bytes over its own page of the ledger   ok PAGES
 *	past BYTES         device memory, by the driver that the front opens   ok ADDRESS
 *	punch              a hole in its own page of the ledger    ok PAGES
 *	exit                                                       ok
 *
 * It greets with "ready PID". A failure answers "error CODE TEXT". Times are
 * CLOCK_MONOTONIC. The end of its input ends it.
 */
#define _GNU_SOURCE
#include "driver.h"
#include "divvy_wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct driver driver;
static CUdevice device;
static CUcontext context;

static void answer(int result)
{
	if (result == 0)
		printf("ok\n");
	else
		printf("error %d\n", result);
}

static void past(unsigned long long bytes)
{
	struct driver bare;
	CUdeviceptr address = 0;
	char path[4096];
	int result = -1;

	snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("DIVVY_DRIVER_DIR"));
	if (driver_open(&bare, path) == 0)
		result = (int)bare.alloc(&address, bytes);
	if (result == 0)
		printf("ok %llu\n", (unsigned long long)address);
	else
		answer(result);
}

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void fill(uint8_t *bytes, size_t count, uint64_t address)
{
	uint32_t state = (uint32_t)(address >> 9) | 1u;

	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)next(&state);
}

static void move_pattern(uint64_t address, size_t count, int check)
{
	uint8_t *bytes = malloc(count), *back = malloc(count);
	int result = -1;

	if (bytes && back) {
		fill(bytes, count, address);
		if (check) {
			result = (int)driver.to_host(back, address, count);
			if (result == 0 && memcmp(bytes, back, count) != 0)
				result = -1;
		} else {
			result = (int)driver.to_device(address, bytes, count);
		}
	}
	free(bytes);
	free(back);
	answer(result);
}

static void cards(void)
{
	int count = 0;
	int result = (int)driver.init(0);

	if (result == 0)
		result = (int)driver.device_count(&count);
	if (result != 0) {
		answer(result);
		return;
	}
	printf("ok %d", count);
	for (int i = 0; i < count; i++) {
		CUdevice card = 0;
		CUuuid uuid;

		memset(&uuid, 0, sizeof uuid);
		if (driver.device_get(&card, i) != 0 || driver.device_uuid(&uuid, card) != 0)
			break;
		printf(" GPU-");
		for (int k = 0; k < 16; k++)
			printf("%s%02x", k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "",
			       (unsigned int)(uint8_t)uuid.bytes[k]);
	}
	printf("\n");
}

static void grab(size_t bytes)
{
	CUdeviceptr address = 0;
	int result;

	do
		result = (int)driver.alloc(&address, bytes);
	while (result == (int)CUDA_ERROR_OUT_OF_MEMORY);
	if (result == 0)
		printf("ok %llu %llu\n", address, (unsigned long long)driver_now_ns());
	else
		answer(result);
}

static int line_waits(int milliseconds)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};

	return poll(&input, 1, milliseconds) > 0;
}

/* Pieces of random size; each gets a word at its end, which must still be there at its free. */
static void churn(size_t bytes, int milliseconds)
{
	enum { PIECES = 32 };
	struct {
		CUdeviceptr address;
		size_t size;
	} pieces[PIECES] = {{0, 0}};
	uint32_t state = (uint32_t)getpid();
	uint64_t calls = 0, failed = 0, denied = 0, longest = 0;
	size_t held = 0;

	printf("ok\n");
	fflush(stdout);
	while (!line_waits(milliseconds)) {
		unsigned int i = next(&state) % PIECES;
		uint64_t word = 0, start = driver_now_ns(), took;
		int result;

		if (pieces[i].size) {
			result = (int)driver.to_host(&word, pieces[i].address + pieces[i].size - 8, 8);
			if (result != 0 || word != pieces[i].address)
				failed++;
			if (driver.free(pieces[i].address) != CUDA_SUCCESS)
				failed++;
			held -= pieces[i].size;
			pieces[i].size = 0;
			calls += 2;
		} else {
			size_t size = (next(&state) % (bytes / 8 / 512) + 1) * 512;

			if (held + size > bytes)
				continue;
			result = (int)driver.alloc(&pieces[i].address, size);
			calls++;
			if (result == 0) {
				word = pieces[i].address;
				calls++;
				if (driver.to_device(pieces[i].address + size - 8, &word, 8) != CUDA_SUCCESS)
					failed++;
				pieces[i].size = size;
				held += size;
			} else if (result == (int)CUDA_ERROR_OUT_OF_MEMORY) {
				denied++;
			} else {
				failed++;
			}
		}
		took = driver_now_ns() - start;
		if (took > longest)
			longest = took;
	}
	for (int i = 0; i < PIECES; i++)
		if (pieces[i].size && driver.free(pieces[i].address) != CUDA_SUCCESS)
			failed++;
	printf("ok %llu %llu %llu %llu\n", (unsigned long long)calls, (unsigned long long)failed,
	       (unsigned long long)denied, (unsigned long long)longest);
}

static void *one_thread(void *argument)
{
	uintptr_t failed = 0;
	uint32_t state = (uint32_t)(uintptr_t)&failed;

	if (driver.set_current(context) != 0)
		failed++;
	for (long rounds = *(long *)argument; rounds > 0; rounds--) {
		CUdeviceptr address = 0;

		if (driver.alloc(&address, (next(&state) % 64 + 1) * 4096) != 0 || driver.free(address) != 0)
			failed++;
	}
	return (void *)failed;
}

static void threads(long count, long rounds)
{
	pthread_t all[64];
	uintptr_t failed = 0;
	long started = 0;

	for (; started < count && started < 64; started++)
		if (pthread_create(&all[started], NULL, one_thread, &rounds) != 0)
			break;
	for (long i = 0; i < started; i++) {
		void *one = NULL;

		pthread_join(all[i], &one);
		failed += (uintptr_t)one;
	}
	printf("ok %llu\n", (unsigned long long)failed + (unsigned long long)(count - started));
}

static void split(void)
{
	pid_t child = fork();

	if (child == 0) {
		close(0);
		close(1);
		for (;;)
			pause();
	}
	if (child < 0)
		printf("error %d\n", errno);
	else
		printf("ok %d\n", (int)child);
}

/* Our own pages of the ledger: shared, writable, with the magic at the start. */
static int own_pages(void (*damage)(void *page, uint32_t *state), uint32_t state)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int found = 0;

	while (maps && fgets(line, sizeof line, maps)) {
		unsigned long start, end;
		char mode[8];

		if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) != 3 || strcmp(mode, "rw-s") != 0)
			continue;
		if (end - start > 16 * DIVVY_PAGE_BYTES)
			continue; /* a driver's memory: reading all of it would fill the host */
		for (; start < end; start += DIVVY_PAGE_BYTES) {
			if (*(uint64_t *)start != DIVVY_CLIENT_MAGIC) /* NOLINT: an address from the kernel */
				continue;
			damage((void *)start, &state);
			found++;
		}
	}
	if (maps)
		fclose(maps);
	return found;
}

static void random_bytes(void *page, uint32_t *state)
{
	for (size_t i = 0; i < DIVVY_PAGE_BYTES; i++)
		((volatile uint8_t *)page)[i] = (uint8_t)next(state);
}

static void hole(void *page, uint32_t *state)
{
	(void)state;
	madvise(page, DIVVY_PAGE_BYTES, MADV_REMOVE);
}

/* False when the program should end. */
static int obey(const char *line)
{
	unsigned long long a = 0, b = 0;
	CUdeviceptr address = 0;
	size_t room = 0, total = 0;
	int result, number = 0;

	if (strcmp(line, "start") == 0) {
		answer(driver_start(&driver, &device, &context));
	} else if (sscanf(line, "gpu %d", &number) == 1) {
		answer(driver_start_on(&driver, number, &device, &context));
	} else if (strcmp(line, "context") == 0) {
		CUcontext more = NULL;

		result = (int)driver.create(&more, 0, device);
		if (result == 0)
			printf("ok %p\n", (void *)more);
		else
			answer(result);
	} else if (sscanf(line, "alloc %llu", &a) == 1) {
		result = (int)driver.alloc(&address, a);
		if (result == 0)
			printf("ok %llu\n", address);
		else
			answer(result);
	} else if (sscanf(line, "free %llu", &a) == 1) {
		answer((int)driver.free(a));
	} else if (sscanf(line, "write %llu %llu", &a, &b) == 2) {
		move_pattern(a, b, 0);
	} else if (sscanf(line, "check %llu %llu", &a, &b) == 2) {
		move_pattern(a, b, 1);
	} else if (strcmp(line, "info") == 0) {
		result = (int)driver.info(&room, &total);
		if (result == 0)
			printf("ok %zu %zu\n", room, total);
		else
			answer(result);
	} else if (strcmp(line, "cards") == 0) {
		cards();
	} else if (sscanf(line, "grab %llu", &a) == 1) {
		grab(a);
	} else if (sscanf(line, "churn %llu %llu", &a, &b) >= 1) {
		churn(a, (int)b);
	} else if (sscanf(line, "threads %llu %llu", &a, &b) == 2) {
		threads((long)a, (long)b);
	} else if (sscanf(line, "resident %llu", &a) == 1) {
		void *bytes = malloc(a);

		if (bytes)
			memset(bytes, 0x5a, a);
		__asm__ volatile("" : : "r"(bytes) : "memory"); /* keep the writes */
		answer(bytes ? 0 : ENOMEM);
	} else if (strcmp(line, "fork") == 0) {
		split();
	} else if (strcmp(line, "close") == 0) {
		answer(syscall(SYS_close_range, 3u, ~0u, 0u) == 0 ? 0 : errno);
	} else if (strcmp(line, "exec") == 0) {
		printf("ok\n");
		fflush(stdout);
		execl("/proc/self/exe", "holder", (char *)NULL);
		printf("error %d\n", errno);
	} else if (sscanf(line, "scribble %llu", &a) == 1) {
		printf("ok %d\n", own_pages(random_bytes, (uint32_t)a));
	} else if (sscanf(line, "past %llu", &a) == 1) {
		past(a);
	} else if (strcmp(line, "punch") == 0) {
		printf("ok %d\n", own_pages(hole, 0));
	} else if (strcmp(line, "exit") == 0) {
		printf("ok\n");
		return 0;
	} else if (line[0] != '\0') {
		printf("error -22 no such command\n");
	}
	return 1;
}

int main(int argc, char **argv)
{
	/* stdio would read ahead and churn would not see its line */
	char line[256];
	size_t used = 0;
	ssize_t got;

	if (driver_open(&driver, argc > 1 ? argv[1] : "libcuda.so.1") != 0)
		return 1;
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	while ((got = read(0, line + used, 1)) == 1) {
		if (line[used] != '\n') {
			if (++used == sizeof line)
				return 2;
			continue;
		}
		line[used] = '\0';
		used = 0;
		if (!obey(line))
			break;
		fflush(stdout);
	}
	fflush(stdout);
	return 0;
}
