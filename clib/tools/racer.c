/* SPDX-License-Identifier: Apache-2.0 */
/*
 * racer: processes that race for the last room of a share.
 *
 *	racer FILE INDEX RACERS ROUNDS BYTES
 *
 * All racers share FILE (of at least 4096 zero bytes). In each round all ask
 * for BYTES at the same moment; who gets them gives them back before the next
 * round. The share must have room for exactly one. Racer 0 prints at the end:
 *
 *	rounds N none A one B more C errors E
 *
 * Exit code 0: it ran to its end, whatever the numbers say; 1: it could not.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct board {
	_Atomic uint32_t arrived; /* racers that wait, over all barriers */
	_Atomic uint32_t gone;    /* a racer could not go on */
	_Atomic uint32_t winners[2]; /* by parity of the round */
	_Atomic uint64_t errors;
};

/* A barrier that is passed when all racers have come once more. */
static int meet(struct board *board, uint32_t racers, uint32_t *passed)
{
	const uint32_t goal = (*passed += racers);
	uint32_t turns = 0;

	atomic_fetch_add(&board->arrived, 1);
	while ((int32_t)(atomic_load(&board->arrived) - goal) < 0) {
		if (atomic_load(&board->gone))
			return -1;
		if (++turns > 200)
			sched_yield();
	}
	return 0;
}

static int race(struct driver *driver, struct board *board, uint32_t index, uint32_t racers, uint64_t rounds,
		size_t bytes)
{
	uint64_t none = 0, one = 0, more = 0;
	uint32_t passed = 0;

	for (uint64_t round = 0; round < rounds; round++) {
		CUdeviceptr address = 0;
		CUresult result;

		if (meet(board, racers, &passed) != 0)
			return 1;
		result = driver->alloc(&address, bytes);
		if (result == CUDA_SUCCESS)
			atomic_fetch_add(&board->winners[round & 1], 1);
		else if (result != CUDA_ERROR_OUT_OF_MEMORY)
			atomic_fetch_add(&board->errors, 1);
		if (meet(board, racers, &passed) != 0)
			return 1;
		if (index == 0) {
			uint32_t winners = atomic_exchange(&board->winners[round & 1], 0);

			none += winners == 0;
			one += winners == 1;
			more += winners > 1;
		}
		if (result == CUDA_SUCCESS && driver->free(address) != CUDA_SUCCESS)
			atomic_fetch_add(&board->errors, 1);
	}
	if (meet(board, racers, &passed) != 0)
		return 1;
	if (index == 0)
		printf("rounds %llu none %llu one %llu more %llu errors %llu\n", (unsigned long long)rounds,
		       (unsigned long long)none, (unsigned long long)one, (unsigned long long)more,
		       (unsigned long long)atomic_load(&board->errors));
	return 0;
}

int main(int argc, char **argv)
{
	struct driver driver;
	struct board *board;
	CUcontext context;
	CUdevice device;
	int fd, result;

	if (argc != 6) {
		fprintf(stderr, "usage: racer FILE INDEX RACERS ROUNDS BYTES\n");
		return 2;
	}
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	board = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED) {
		perror(argv[1]);
		return 1;
	}
	result = driver_open(&driver, "libcuda.so.1");
	if (result == 0)
		result = driver_start(&driver, &device, &context);
	if (result == 0)
		result = race(&driver, board, (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]),
			      strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
	else
		fprintf(stderr, "racer: start: %d\n", result);
	if (result != 0)
		atomic_store(&board->gone, 1);
	fflush(stdout);
	return result ? 1 : 0;
}
