/* SPDX-License-Identifier: Apache-2.0 */
/* null.h: what the files of the null driver agree on. */
#ifndef DIVVY_NULL_H
#define DIVVY_NULL_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "cuda_abi.h"
#include "nvml_abi.h"
#include "symbols.h"

#define NULL_VERSION 12020
#define NULL_NAME "Null card (simulated)"
#define NULL_UUID "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
#define NULL_PCI "0000:01:00.0"
#define NULL_MEMORY (80ull << 30)

#pragma GCC visibility push(hidden)

/* The function of each symbol, NULL for later generations. */
extern void *const null_functions[DIVVY_SYMBOLS];

/* A handle, and the address of bytes, that no other call returned. */
unsigned long long null_handle(void);
unsigned long long null_address(unsigned long long bytes);

#pragma GCC visibility pop

/* Copies text into a caller's buffer, cut to fit; false without a buffer. */
static inline bool null_copy(char *buffer, long room, const char *text)
{
	size_t length = strlen(text);

	if (!buffer || room <= 0)
		return false;
	if (length >= (size_t)room)
		length = (size_t)room - 1;
	memcpy(buffer, text, length);
	buffer[length] = '\0';
	return true;
}

#endif
