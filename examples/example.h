/* SPDX-License-Identifier: Apache-2.0 */
/*
 * example.h: what the examples share around the driver API: options, a context
 * with a module, random input, and how a result is compared and told.
 */
#ifndef DIVVY_EXAMPLES_EXAMPLE_H
#define DIVVY_EXAMPLES_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef EXAMPLE_VENDOR_HEADER
#include <cuda.h>
#else
/* Our own declarations; the vendor's header gives the current names like this. */
#include "cuda_abi.h"
#define cuCtxDestroy cuCtxDestroy_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemsetD32 cuMemsetD32_v2
#define cuMemcpy2D cuMemcpy2D_v2
#define cuArrayCreate cuArrayCreate_v2
#define CU_TRSF_READ_AS_INTEGER 1
#define CU_TRSF_NORMALIZED_COORDINATES 2
#endif

/* The PTX that the build put into this program. */
extern const char example_ptx[];

struct example {
	const char *name;
	const char *what;       /* it computes, for the line at the end */
	uint32_t size;          /* --size */
	bool json;              /* --json */
	const char *ptxfile;    /* --ptx: kernels from this file instead */
	char device[128];
	CUmodule module;
};

/* How a result compares with the CPU's. */
struct comparison {
	uint64_t values;
	uint64_t wrong;
	double worst;      /* relative error of floats */
	uint64_t checksum; /* of the card's result, bit by bit */
};

/* The largest relative error of a float that still counts as right. */
#define EXAMPLE_TOLERANCE 1e-5

/* Reads the options, makes a context on the first card and loads the module. */
void example_start(struct example *example, int argc, char **argv);
CUfunction example_kernel(const struct example *example, const char *name);
/* Prints the outcome; the exit code of the program. */
int example_end(const struct example *example, const struct comparison *comparison);

/* Ends the program with a message unless the call did well. */
#define CHECK(call) example_check(call, #call)
void example_check(CUresult result, const char *call);

/* Device memory, and the same with contents. */
CUdeviceptr example_memory(size_t bytes);
CUdeviceptr example_upload(const void *from, size_t bytes);
/* Host memory, or the end of the program. */
void *example_host(size_t count, size_t bytes);

/* The same numbers in every run. */
uint32_t example_random(void);
/* 0.5 to 1.5 */
float example_random_float(void);

void example_compare_ints(struct comparison *comparison, const uint32_t *got, const uint32_t *want, size_t count);
void example_compare_bytes(struct comparison *comparison, const uint8_t *got, const uint8_t *want, size_t count);
void example_compare_floats(struct comparison *comparison, const float *got, const float *want, size_t count);

#endif
