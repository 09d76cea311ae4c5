/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memload: a plain driver-API program for the demo. It knows nothing of shares:
 * it takes all the device memory it can get, writes to it, copies back what it
 * wrote and compares, asks for more than there is, and goes on doing so.
 *
 *	memload SECONDS
 *
 * It prints one line of JSON at its end. Exit code 0: it ran to its end,
 * whatever the numbers say; 1: it could not.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1024ull * 1024)
#define WINDOW_BYTES (64ull * 1024)
#define WINDOWS 3
#define BLOCKS_MAX 4096

static struct driver driver;

struct block {
	CUdeviceptr address;
	size_t bytes;
	uint64_t seed;
};

static struct {
	struct block blocks[BLOCKS_MAX];
	size_t count;
	uint64_t bytes;
	uint64_t seed;
	uint64_t denials;
	uint64_t compared;
	int wrong;
} load;

/* What stands in word i of a window. */
static uint64_t word(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed + i) * 0x9e3779b97f4a7c15ull;

	x ^= x >> 31;
	return x * 0xbf58476d1ce4e5b9ull;
}

/* Start of a window in a block: its begin, middle and end. */
static size_t window_at(const struct block *block, unsigned window)
{
	return (block->bytes - WINDOW_BYTES) / (WINDOWS - 1) * window / 512 * 512;
}

static int write_block(struct block *block)
{
	static uint64_t words[WINDOW_BYTES / sizeof(uint64_t)];

	block->seed = ++load.seed << 32;
	for (unsigned window = 0; window < WINDOWS; window++) {
		for (size_t i = 0; i < WINDOW_BYTES / sizeof words[0]; i++)
			words[i] = word(block->seed + window, i);
		if (driver_check(driver.to_device(block->address + window_at(block, window), words, sizeof words), "cuMemcpyHtoD"))
			return -1;
	}
	return 0;
}

static int compare_block(const struct block *block)
{
	static uint64_t words[WINDOW_BYTES / sizeof(uint64_t)];

	for (unsigned window = 0; window < WINDOWS; window++) {
		memset(words, 0, sizeof words);
		if (driver_check(driver.to_host(words, block->address + window_at(block, window), sizeof words), "cuMemcpyDtoH"))
			return -1;
		for (size_t i = 0; i < WINDOW_BYTES / sizeof words[0]; i++)
			load.wrong |= words[i] != word(block->seed + window, i);
		load.compared += sizeof words;
	}
	return 0;
}

/* 1: got it, 0: refused for want of memory, -1: another error. */
static int take(size_t bytes)
{
	struct block *block = &load.blocks[load.count];
	CUresult result;

	if (load.count == BLOCKS_MAX)
		return 0;
	result = driver.alloc(&block->address, bytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		load.denials++;
		return 0;
	}
	if (driver_check(result, "cuMemAlloc"))
		return -1;
	block->bytes = bytes;
	load.count++;
	load.bytes += bytes;
	return write_block(block) ? -1 : 1;
}

static int give_back(void)
{
	struct block *block = &load.blocks[load.count - 1];

	if (compare_block(block) || driver_check(driver.free(block->address), "cuMemFree"))
		return -1;
	load.bytes -= block->bytes;
	load.count--;
	return 0;
}

/* Takes pieces, then smaller ones, until not even a MiB is left. */
static int fill(size_t piece)
{
	while (piece >= MIB) {
		int got = take(piece);

		if (got < 0)
			return -1;
		if (!got)
			piece = piece / 2 / MIB * MIB;
	}
	return 0;
}

static double seconds_now(void)
{
	return (double)driver_now_ns() * 1e-9;
}

/* Gives a third back and takes it again, and asks for more than there is. */
static int turn(size_t total)
{
	const struct timespec breath = {.tv_nsec = 50 * 1000 * 1000};
	size_t keep = load.count - load.count / 3;

	while (load.count > keep)
		if (give_back())
			return -1;
	if (take(total) < 0 || fill(total / 16 / MIB * MIB))
		return -1;
	nanosleep(&breath, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	double end = seconds_now() + (argc > 1 ? strtod(argv[1], NULL) : 1);
	size_t free_bytes, total;
	uint64_t most;
	CUdevice device;
	CUcontext context;

	if (driver_open(&driver, "libcuda.so.1") || driver_check(driver.init(0), "cuInit") || driver_check(driver.device_get(&device, 0), "cuDeviceGet") ||
	    driver_check(driver.create(&context, 0, device), "cuCtxCreate") ||
	    driver_check(driver.info(&free_bytes, &total), "cuMemGetInfo") || fill(total / 16 / MIB * MIB))
		return 1;
	most = load.bytes;
	while (seconds_now() < end) {
		if (turn(total))
			return 1;
		if (load.bytes > most)
			most = load.bytes;
	}
	for (size_t i = 0; i < load.count; i++)
		if (compare_block(&load.blocks[i]))
			return 1;
	printf("{\"totalBytes\":%zu,\"allocatedBytes\":%llu,\"comparedBytes\":%llu,\"denials\":%llu,\"correct\":%s}\n",
	       total, (unsigned long long)most, (unsigned long long)load.compared, (unsigned long long)load.denials,
	       load.wrong ? "false" : "true");
	fflush(stdout);
	while (load.count)
		if (give_back())
			return 1;
	return driver_check(driver.destroy(context), "cuCtxDestroy") ? 1 : 0;
}
