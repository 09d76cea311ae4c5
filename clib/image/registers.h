/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registers.h: how many registers a thread of a kernel has, and how many threads
 * that leaves room for. Facts: the table of technical specifications in the CUDA
 * C++ Programming Guide (a block has 64 K registers at most, a thread 255, from
 * compute capability 5.0 to 9.0 but for 5.3 and 6.2), and NVIDIA's occupancy
 * calculator (a warp takes its registers in units of 256, from one of the four
 * parts of a multiprocessor). ptxas says itself that from compute capability 7.0
 * it raises a limit below 24 registers to that, that the directives of a kernel go
 * before its options, and that it ignores a .minnctapersm that is out of range.
 */
#ifndef DIVVY_STANDIN_REGISTERS_H
#define DIVVY_STANDIN_REGISTERS_H

#include <stdint.h>

#include "ptx/ast.h"

enum { SD_BLOCK_THREADS = 1024, SD_BLOCK_REGISTERS = 65536 };

/* What the options of a call that compiles ask for; 0: nothing. */
struct sd_register_wish {
	uint32_t most;    /* CU_JIT_MAX_REGISTERS: of a thread */
	uint32_t threads; /* CU_JIT_THREADS_PER_BLOCK: a block of so many must fit */
};

/* Registers of a thread of the kernel, when it needs so many. As a compiler does
 * that puts the rest in local memory, this keeps to .maxnreg, and to what blocks of
 * .maxntid or .reqntid threads, .minnctapersm of them at once, can have; without
 * these directives to what is wished. */
uint32_t sd_registers_given(const struct ptx_function *kernel, uint32_t needed, const struct sd_register_wish *wish);
/* Warps that so many registers are enough for. */
uint32_t sd_registers_warps(uint32_t registers, uint32_t perthread);
/* Threads of the largest block. */
uint32_t sd_registers_threads(uint32_t perthread);

#endif
