/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interpreter: how fast a simulated card runs kernels, for divvy bench interpreter.
 *
 * Two loops with a known number of instructions: one that all 32 lanes of a warp
 * run together, and one of which each lane has a copy of its own; arithmetic of
 * both kinds, and a store to and a load from shared memory. One block is run
 * by one thread of the host, and what counts is the processor time of the process,
 * so that the figures are of one core. Then the matrix multiplication of
 * examples/matmul, 512 by 512, on all cores and by the clock on the wall.
 *
 *	interpreter [ROUNDS]
 *
 * prints a line for each round: M/S CONVERGED, M/S DIVERGENT, MILLISECONDS MATMUL.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 256, LANES = 32, IN_LOOP = 16, SIDE = 512, TILE = 16, CONVERGED = 60000, DIVERGENT = 3000 };

extern const char example_ptx[]; /* matmul */

static struct driver driver;

static const char head[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
			   ".visible .entry loop(.param .u64 to, .param .u32 times)\n{\n"
			   "\t.reg .pred %p;\n\t.reg .u32 %a, %b, %c, %i, %lane, %s;\n\t.reg .f32 %x, %y, %z;\n\t.reg .u64 %to;\n"
			   "\t.shared .align 4 .b8 own[1024];\n"
			   "\tld.param.u32 %i, [times];\n\tld.param.u64 %to, [to];\n\tmov.u32 %a, %tid.x;\n\tand.b32 %lane, %a, 31;\n"
			   "\tmov.u32 %s, own;\n\tmad.lo.u32 %s, %a, 4, %s;\n"
			   "\tmov.u32 %b, 77;\n\tmov.u32 %c, 5;\n\tmov.f32 %x, 0f3F800000;\n\tmov.f32 %y, 0f3F000000;\n\tmov.f32 %z, 0f3E800000;\n";
/* IN_LOOP instructions */
static const char body[] = "\tfma.rn.f32 %x, %x, %y, %z;\n\tmad.lo.u32 %a, %a, %b, %c;\n\txor.b32 %b, %b, %a;\n"
			   "\tfma.rn.f32 %z, %y, %x, %y;\n\tadd.u32 %c, %c, %i;\n\tmul.f32 %x, %x, %y;\n\tshl.b32 %b, %b, 1;\n"
			   "\tadd.f32 %z, %z, %x;\n\tadd.u32 %a, %a, %c;\n\tfma.rn.f32 %x, %z, %y, %y;\n\tand.b32 %c, %c, %b;\n"
			   "\tst.shared.f32 [%s], %x;\n\tld.shared.f32 %z, [%s];\n\tsub.u32 %i, %i, 1;\n\tsetp.ne.u32 %p, %i, 0;\n";
static const char tail[] = "end:\n\tcvt.rn.f32.u32 %y, %a;\n\tadd.f32 %x, %x, %y;\n\tst.global.f32 [%to], %x;\n\tret;\n}\n";

/* The loop once, or one for each lane. */
static char *source(int copies)
{
	char *text = malloc(sizeof head + sizeof tail + (size_t)copies * (sizeof body + 128) + 1024), *at = text;

	if (!text)
		exit(1);
	at = stpcpy(at, head);
	if (copies > 1) {
		at = stpcpy(at, "table: .branchtargets ");
		for (int i = 0; i < copies; i++)
			at += sprintf(at, "%sL%d", i ? ", " : "", i);
		at = stpcpy(at, ";\n\tbrx.idx %lane, table;\n");
	}
	for (int i = 0; i < copies; i++) {
		at += sprintf(at, "L%d:\n", i);
		at = stpcpy(at, body);
		at += sprintf(at, "\t@%%p bra L%d;\n%s", i, i + 1 < copies ? "\tbra end;\n" : "");
	}
	stpcpy(at, tail);
	return text;
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static CUfunction load(const char *text, const char *name)
{
	CUmodule module;
	CUfunction function;

	if (driver_check(driver.module_load(&module, text), "cuModuleLoadData") ||
	    driver_check(driver.module_function(&function, module, name), "cuModuleGetFunction"))
		exit(1);
	return function;
}

/* Million instructions of a thread per second of processor time. */
static double loop(CUfunction function, uint32_t times, CUdeviceptr to)
{
	void *arguments[] = {&to, &times};
	float result = 0;
	uint64_t start = cpu_ns();

	if (driver_check(driver.launch(function, 1, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel") ||
	    driver_check(driver.to_host(&result, to, sizeof result), "cuMemcpyDtoH"))
		exit(1);
	if (!isfinite(result))
		exit(1);
	return (double)THREADS * times * IN_LOOP * 1e3 / (double)(cpu_ns() - start);
}

static double matmul(CUfunction function, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c)
{
	uint32_t n = SIDE;
	float result = 0;
	void *arguments[] = {&a, &b, &c, &n};
	uint64_t start = driver_now_ns();

	if (driver_check(driver.launch(function, SIDE / TILE, SIDE / TILE, 1, TILE, TILE, 1, 0, NULL, arguments, NULL),
			 "cuLaunchKernel") ||
	    driver_check(driver.to_host(&result, c, sizeof result), "cuMemcpyDtoH"))
		exit(1);
	if (result != SIDE) { /* of ones by ones */
		fprintf(stderr, "interpreter: the product is wrong: %g\n", (double)result);
		exit(1);
	}
	return (double)(driver_now_ns() - start) / 1e6;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 5;
	size_t count = (size_t)SIDE * SIDE;
	float *ones = malloc(count * sizeof *ones);
	CUdevice device;
	CUcontext context;
	CUdeviceptr a, b, c;

	if (!ones || driver_open(&driver, "libcuda.so.1") || driver_check((CUresult)driver_start(&driver, &device, &context), "start"))
		return 1;
	for (size_t i = 0; i < count; i++)
		ones[i] = 1;
	if (driver_check(driver.alloc(&a, count * 4), "cuMemAlloc") || driver_check(driver.alloc(&b, count * 4), "cuMemAlloc") ||
	    driver_check(driver.alloc(&c, count * 4), "cuMemAlloc") || driver_check(driver.to_device(a, ones, count * 4), "cuMemcpyHtoD") ||
	    driver_check(driver.to_device(b, ones, count * 4), "cuMemcpyHtoD"))
		return 1;

	CUfunction converged = load(source(1), "loop"), divergent = load(source(LANES), "loop"), product = load(example_ptx, "matmul");

	for (int i = 0; i < rounds; i++) {
		double together = loop(converged, CONVERGED, c), apart = loop(divergent, DIVERGENT, c), ms = matmul(product, a, b, c);

		printf("%.1f %.1f %.2f\n", together, apart, ms);
		fflush(stdout);
	}
	free(ones);
	return 0;
}
