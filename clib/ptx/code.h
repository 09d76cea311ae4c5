/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code.h: a module made ready to run, and running its kernels. Knows nothing of
 * the rest of the stand-in: who launches gives what a kernel may reach.
 *
 *	ptx_compile(module, all, &log, &code)   -EBADMSG and a log for what cannot be run here
 *	ptx_run(&launch, &outcome)         returns when the grid has ended
 */
#ifndef DIVVY_STANDIN_PTX_CODE_H
#define DIVVY_STANDIN_PTX_CODE_H

#include "ast.h"

struct ptx_code;

/* all: what cannot be run here is refused at once; else each function by itself, and with it
 * those that call it. */
int ptx_compile(struct ptx_module *module, bool all, struct ptx_log *log, struct ptx_code **out);
void ptx_code_free(struct ptx_code *code);

/* Why the function cannot be run, with the line; NULL: it can. */
const char *ptx_code_refused(const struct ptx_code *code, const struct ptx_function *function);
/* 32 bit registers of a thread that a compiler for hardware would use when nothing
 * keeps it to fewer (docs/simulated-kernels.md). */
uint32_t ptx_code_registers(const struct ptx_code *code, const struct ptx_function *function);
/* Bytes of local memory of a thread, without callees. */
uint32_t ptx_code_local(const struct ptx_code *code, const struct ptx_function *function);

/* Addresses [start, start + bytes) that a kernel may reach: the same bytes are
 * at start + delta here. Sorted by start, none overlap. */
struct ptx_range {
	uint64_t start;
	uint64_t bytes;
	uint64_t delta;
	bool readonly;
};

enum ptx_fault {
	PTX_FAULT_NONE,
	PTX_FAULT_ADDRESS,     /* no such memory */
	PTX_FAULT_MISALIGNED,
	PTX_FAULT_TRAP,        /* trap, or what the card cannot go on from */
	PTX_FAULT_ASSERT,
	PTX_FAULT_PC,          /* call of what is no function */
	PTX_FAULT_SPACE,       /* operation that this memory does not have */
	PTX_FAULT_MEMORY,      /* of the host: none left */
	PTX_FAULT_STACK,
};

enum ptx_texture_wrap { PTX_WRAP, PTX_CLAMP, PTX_MIRROR, PTX_BORDER };

/* A texture or a surface, resolved: texels at host + y * pitch + x * bytes. */
struct ptx_texture {
	unsigned char *host;
	uint64_t width;
	uint64_t height; /* 0: one dimension */
	uint64_t depth;  /* 0: no third; layers of a layered one */
	uint64_t pitch;
	uint64_t slice;
	uint8_t channels;     /* 1, 2 or 4 */
	uint8_t channelbytes; /* 1, 2 or 4 */
	bool real;            /* channels are f16 or f32 */
	bool sign;
	bool normalized;      /* coordinates */
	bool integers;        /* values are read as they are, not as fractions */
	bool linear;          /* filter */
	bool layered;
	bool buffer;          /* linear memory: only by integers, no filter */
	uint8_t wrap[3];      /* enum ptx_texture_wrap */
	float border[4];
};

struct ptx_launch {
	const struct ptx_code *code;
	const struct ptx_function *function;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared;        /* dynamic */
	bool cooperative;
	const void *parameters; /* function->parameterbytes of them */
	uint32_t stackbytes;    /* per thread, for calls of unknown depth */
	uint32_t multiprocessors;
	uint32_t resident;      /* blocks the card holds at once */
	uint32_t clockmhz;
	uint64_t gridid;
	unsigned int workers;   /* threads that may help; 0: as many as there are cores */
	const struct ptx_range *ranges;
	size_t rangecount;
	/* What it gives stays valid for the launch. NULL: no such texture. Any thread. */
	const struct ptx_texture *(*texture)(void *who, uint64_t handle, bool surface);
	/* so many bytes were written: 0, or negative errno to stop. Any thread. */
	int (*touch)(void *who, uint64_t bytes);
	/* text that vprintf made. Any thread, one at a time. */
	void (*print)(void *who, const char *text, size_t size);
	void *who;
	/* Outside the caller's lock. NULL: not wanted. */
	uint64_t *left;    /* counts blocks down that have ended */
	const bool *stop;  /* set: the grid is to end at once */
};

struct ptx_outcome {
	enum ptx_fault fault;
	uint64_t address;     /* that was asked for */
	uint32_t line;        /* of the PTX */
	uint64_t threads;     /* thread-instructions done */
	uint64_t bytes;       /* of global memory, loaded and stored */
	const char *engine;   /* that ran it: avx512, avx2 or plain */
};

void ptx_run(const struct ptx_launch *launch, struct ptx_outcome *outcome);

#endif
