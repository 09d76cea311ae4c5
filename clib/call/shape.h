/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.h: what each call is made of, as the library encodes and the worker decodes it.
 * The table is made from data/remote.tsv and the types of the one list (clib/gen).
 *
 * A call's payload is a word of 8 bytes for each parameter, then the bytes of those that
 * are sent: of a pointer the word says how many bytes it shows (sent for IN, BOTH and
 * STRING; room for OUT), or that it is null. A reply's payload is the result and, after
 * success, for each OUT and BOTH that is not null how many bytes were written, and these;
 * after failure those of BOTH alone. All bytes are padded to words.
 */
#ifndef CALL_SHAPE_H
#define CALL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote_calls.h"

#pragma GCC visibility push(hidden)

#define CALL_ARGUMENTS 16 /* of any call */
#define CALL_NUMBERS 1024 /* numbers of calls are smaller */
#define CALL_NULL UINT64_MAX
#define CALL_HANDLES (1u << 22) /* that a worker gives at once; their places are from CALL_FIRST_PLACE on */
#define CALL_FIRST_PLACE 16u
#define CALL_ELEMENTS (1u << 20) /* of an array, at most */

enum { HOW_VALUE, HOW_HANDLE, HOW_STRING, HOW_IN, HOW_OUT, HOW_BOTH };
enum { COUNT_ONE, COUNT_BYTES, COUNT_BY, COUNT_POINTED };

struct call_argument {
	uint8_t how;
	uint8_t count;
	uint16_t by;   /* COUNT_BYTES: how many; COUNT_BY, COUNT_POINTED: of which argument; HOW_HANDLE: 1 if it is gone after success */
	uint16_t width; /* COUNT_POINTED: bytes of what the argument points to */
	uint16_t type; /* of an element: call_type */
	uint8_t kind;  /* HOW_HANDLE: enum divvy_remote_kind */
};

struct call_shape {
	uint8_t known; /* 0: no call of this number travels by its row alone */
	uint8_t oneway;
	uint8_t arguments;
	struct call_argument argument[CALL_ARGUMENTS];
};

/* The shape of a call, or NULL. */
const struct call_shape *call_shape(unsigned int number);

/* Name of any call, special ones too; "a call" for numbers that are not of this version. */
const char *call_name(unsigned int number);

/* Whether a call is of NVML, not of the driver: its results are an nvmlReturn_t. */
bool call_is_nvml(unsigned int number);

/* Bytes of an element. */
size_t call_type_bytes(unsigned int type);

/* Calls found for each handle inside count elements at bytes; stops at and returns the
 * first result that is not 0. A resource's handle has the kind that its own type says. */
int call_each_handle(unsigned int type, void *bytes, size_t count,
		     int (*found)(void *context, unsigned int kind, uint64_t *handle), void *context);

/*
 * How many bytes an argument shows, by the values of the others; CALL_NULL: more than
 * may be. For COUNT_POINTED what the argument by points to is read.
 */
uint64_t call_bytes(const struct call_shape *shape, unsigned int i, const uint64_t *values);

/* What a driver says of a handle that is none of its kind, or of something gone. */
unsigned int call_wrong_handle(unsigned int kind);

/* The kind of a number that a worker gave for a handle. */
static inline unsigned int call_kind(uint64_t handle)
{
	return (unsigned int)(handle >> 56);
}

static inline size_t call_padded(size_t bytes)
{
	return (bytes + 7) & ~(size_t)7;
}

#pragma GCC visibility pop

#endif
