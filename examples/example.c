/* SPDX-License-Identifier: Apache-2.0 */
#include "example.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void example_check(CUresult result, const char *call)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return;
	if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "unknown error";
	fprintf(stderr, "%s: %s (%d)\n", call, name, (int)result);
	exit(1);
}

static void usage(const struct example *example)
{
	fprintf(stderr, "usage: %s [--size N] [--json] [--ptx FILE]\n", example->name);
	exit(2);
}

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "r");
	size_t room = 1 << 20, length;
	char *text = example_host(room, 1);

	if (!file) {
		perror(path);
		exit(1);
	}
	length = fread(text, 1, room, file);
	if (ferror(file) || length == room) {
		fprintf(stderr, "%s: cannot be read, or is too large\n", path);
		exit(1);
	}
	fclose(file);
	return text; /* example_host made it zeros, so it ends */
}

/* Loads the module; if that fails, says what the driver's compiler said. */
static void load(struct example *example)
{
	static char log[4096];
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)sizeof log};
	char *text = example->ptxfile ? read_file(example->ptxfile) : NULL;
	CUresult result = cuModuleLoadDataEx(&example->module, text ? text : example_ptx, 2, options, values);

	if (result != CUDA_SUCCESS && log[0])
		fprintf(stderr, "%s\n", log);
	CHECK(result);
	free(text);
}

void example_start(struct example *example, int argc, char **argv)
{
	CUdevice device;
	CUcontext context;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			example->json = true;
		} else if (strcmp(argv[i], "--ptx") == 0 && i + 1 < argc) {
			example->ptxfile = argv[++i];
		} else if (strcmp(argv[i], "--size") == 0 && i + 1 < argc) {
			long size = strtol(argv[++i], NULL, 10);

			if (size < 1 || size > 1 << 28)
				usage(example);
			example->size = (uint32_t)size;
		} else {
			usage(example);
		}
	}
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetName(example->device, sizeof example->device, device));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	load(example);
}

CUfunction example_kernel(const struct example *example, const char *name)
{
	CUfunction function;

	CHECK(cuModuleGetFunction(&function, example->module, name));
	return function;
}

int example_end(const struct example *example, const struct comparison *comparison)
{
	bool correct = comparison->wrong == 0 && comparison->values > 0;

	if (example->json) {
		printf("{\"schema\":\"divvy.example/v1\",\"example\":\"%s\",\"device\":\"%s\",\"values\":%" PRIu64
		       ",\"wrong\":%" PRIu64 ",\"maxRelativeError\":%.3g,\"checksum\":\"%016" PRIx64 "\",\"correct\":%s}\n",
		       example->name, example->device, comparison->values, comparison->wrong, comparison->worst,
		       comparison->checksum, correct ? "true" : "false");
	} else {
		printf("%s on %s: %" PRIu64 " %s, ", example->name, example->device, comparison->values, example->what);
		if (!correct)
			printf("%" PRIu64 " WRONG", comparison->wrong);
		else if (comparison->worst > 0)
			printf("all as on the CPU (relative error at most %.2g)", comparison->worst);
		else
			printf("all equal to the CPU's");
		printf(", checksum %016" PRIx64 "\n", comparison->checksum);
	}
	return correct ? 0 : 1;
}

CUdeviceptr example_memory(size_t bytes)
{
	CUdeviceptr memory;

	CHECK(cuMemAlloc(&memory, bytes));
	return memory;
}

CUdeviceptr example_upload(const void *from, size_t bytes)
{
	CUdeviceptr memory = example_memory(bytes);

	CHECK(cuMemcpyHtoD(memory, from, bytes));
	return memory;
}

void *example_host(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	if (!memory) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return memory;
}

uint32_t example_random(void)
{
	static uint32_t state = 2463534242;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

float example_random_float(void)
{
	return 0.5f + (float)(example_random() >> 8) / (float)(1 << 24);
}

/* FNV-1a, one result after the other */
static void sum_up(struct comparison *comparison, const void *bytes, size_t count)
{
	uint64_t sum = comparison->values ? comparison->checksum : 14695981039346656037u;

	for (const unsigned char *byte = bytes, *end = byte + count; byte < end; byte++)
		sum = (sum ^ *byte) * 1099511628211u;
	comparison->checksum = sum;
}

void example_compare_ints(struct comparison *comparison, const uint32_t *got, const uint32_t *want, size_t count)
{
	sum_up(comparison, got, count * sizeof *got);
	comparison->values += count;
	for (size_t i = 0; i < count; i++)
		comparison->wrong += got[i] != want[i];
}

void example_compare_bytes(struct comparison *comparison, const uint8_t *got, const uint8_t *want, size_t count)
{
	sum_up(comparison, got, count);
	comparison->values += count;
	for (size_t i = 0; i < count; i++)
		comparison->wrong += got[i] != want[i];
}

void example_compare_floats(struct comparison *comparison, const float *got, const float *want, size_t count)
{
	sum_up(comparison, got, count * sizeof *got);
	comparison->values += count;
	for (size_t i = 0; i < count; i++) {
		double error = fabs((double)got[i] - (double)want[i]);

		if (error != 0)
			error /= fmax(fabs((double)want[i]), 1e-30);
		if (!(error <= EXAMPLE_TOLERANCE)) /* a NaN is wrong too */
			comparison->wrong++;
		if (error > comparison->worst)
			comparison->worst = error;
	}
}
