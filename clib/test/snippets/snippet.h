/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snippet.h: one short program per hooked call.
 *
 * Every case exercises one exported symbol by its exact name and says what it
 * saw, one line on stdout:
 *
 *	ok SYMBOL
 *	absent SYMBOL                 (the driver of this run does not export it)
 *	not ok SYMBOL FILE:LINE: TEXT
 *
 * The same cases run plain and under a share: with --control there is no
 * front, an allocation over the quota must succeed then, which shows that the
 * case can fail. The program is built twice: linked with the driver's library,
 * and with SNIPPET_BY_NAME, where every call is found with dlopen and dlsym.
 */
#ifndef DIVVY_TEST_SNIPPET_H
#define DIVVY_TEST_SNIPPET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weak.h"

#include "cuda_abi.h"
#include "nvml_abi.h"

#define MIB ((uint64_t)1 << 20)

#ifdef SNIPPET_BY_NAME
#define ADDRESS(symbol) NULL
#define DRIVER(symbol) ((__typeof__(&symbol))snippet_lookup(#symbol))
#else
#define ADDRESS(symbol) ((void *)symbol)
#define DRIVER(symbol) (symbol)
#endif

struct snippet {
	const char *symbol;
	void *address; /* NULL: look it up by name */
	void (*run)(void);
};

#define SNIPPET(symbol, run)                     \
	{                                        \
		#symbol, ADDRESS(symbol), run    \
	}

/* What an allocating call gave; take fills it, give gives it back. */
struct holding {
	uint64_t address; /* device memory */
	uint64_t pitch;   /* rows of pitched memory */
	uint64_t bytes;
	void *handle;
	void *second;
};

enum snippet_cost {
	COST_EXACT,    /* free memory falls by the bytes asked for, no more and no less */
	COST_AT_LEAST, /* the driver reserves in larger steps */
};

enum snippet_data {
	DATA_NONE,
	DATA_LINEAR, /* holding.address, holding.bytes */
	DATA_PITCH,  /* rows of holding.pitch */
	DATA_ARRAY,  /* holding.handle: CUarray of ROW_BYTES rows */
};

/*
 * A call that allocates: the runner checks that free memory falls and comes
 * back, that data survives, and that a request over the quota is refused with
 * the results untouched.
 */
struct allocator {
	const char *symbol;
	void *address;
	int (*take)(struct holding *h, size_t bytes);
	int (*give)(struct holding *h);
	enum snippet_cost cost;
	enum snippet_data data;
};

#define ALLOCATOR(symbol, take, give, cost, data)                \
	{                                                        \
		#symbol, ADDRESS(symbol), take, give, cost, data \
	}

#define ROW_BYTES 32768u /* of arrays and pitched memory */

struct area {
	const char *name;
	const struct allocator *allocators;
	size_t allocators_count;
	const struct snippet *snippets;
	size_t snippets_count;
	bool bare; /* its cases want no context made for them */
};

extern const struct area area_linear;
extern const struct area area_array;
extern const struct area area_virtual;
extern const struct area area_pool;
extern const struct area area_graph;
extern const struct area area_exchange;
extern const struct area area_context;
extern const struct area area_module;
extern const struct area area_launch;
extern const struct area area_view;
extern const struct area area_nvml;

/* Where a run stands. */
struct snippet_run {
	uint64_t quota; /* bytes of the share */
	uint64_t limit; /* most bytes a request over the quota may ask for; 0: no bound */
	bool control;   /* no front: nothing holds this process to the quota */
	const char *self;
	CUcontext context;
	CUdevice device;
};
extern struct snippet_run snippet_run;

void *snippet_lookup(const char *symbol);
bool snippet_has(const char *symbol);
void snippet_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool snippet_failed(void);
/* Names the case that a part of this program works for. */
void snippet_name(const char *symbol);
/* Waits until that many bytes are free again after another process has died; false after 20 s. */
bool snippet_room_back(uint64_t room);
/* Allocates all but spare bytes of the quota that is left; 0 bytes left unless spare is more. */
int snippet_fill(uint64_t spare, uint64_t *address);

/* Free bytes as the driver tells them, UINT64_MAX on error. */
uint64_t snippet_room(void);
/* More bytes than the quota leaves, fewer than the card has. */
uint64_t snippet_too_much(void);

/* Writes a pattern and reads it back; both return 0 or a CUresult, -1 for wrong data. */
int snippet_linear_data(uint64_t address, size_t bytes);
int snippet_pitch_data(uint64_t address, size_t pitch, size_t rows);
int snippet_array_data(CUarray array, size_t rows);

/* What this program does when one of its cases runs it again; see exchange.c. */
int snippet_part(int argc, char **argv);

#define CHECK(condition)                                                         \
	do {                                                                     \
		if (!(condition)) {                                              \
			snippet_fail(__FILE__, __LINE__, "%s", #condition);      \
			return;                                                  \
		}                                                                \
	} while (0)

#define EQUAL(got, want)                                                                   \
	do {                                                                               \
		unsigned long long got_ = (unsigned long long)(got);                       \
		unsigned long long want_ = (unsigned long long)(want);                     \
		if (got_ != want_) {                                                       \
			snippet_fail(__FILE__, __LINE__, "%s = %llu, want %s = %llu",      \
				     #got, got_, #want, want_);                            \
			return;                                                            \
		}                                                                          \
	} while (0)

#define OK(call) EQUAL(call, 0)

/* What a request over the quota must answer; a bare card has the room. */
#define OVER (snippet_run.control ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY)

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#endif
