/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h: what cuGetProcAddress hands out. The driver chooses, and its answer
 * is then replaced: a table tells which symbols live at an address. Where
 * several names share one address, or the address is none of the known ones,
 * the name, the version and the stream flag decide. Needs no driver.
 */
#ifndef DIVVY_FRONT_NAMES_H
#define DIVVY_FRONT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define FRONT_NAMES_SLOTS 4096u /* a power of two, well above twice the symbols */

struct front_names {
	struct {
		const void *address;
		uint32_t symbol; /* of the first name at this address */
		bool many;       /* there are more names */
		bool hooked;     /* at least one of them is hooked */
	} slot[FRONT_NAMES_SLOTS];
};

enum front_found {
	FRONT_FOUND_PASSED,  /* hand out the driver's own address */
	FRONT_FOUND_HOOKED,  /* hand out the wrapper of *symbol */
	FRONT_FOUND_BY_NAME, /* the address does not tell */
};

void front_names_add(struct front_names *names, const void *address, uint32_t symbol, bool hooked);
enum front_found front_names_find(const struct front_names *names, const void *address, uint32_t *symbol);

/*
 * The symbol that name means for a program of CUDA version, with or without
 * per-thread default streams, among those that has() says the driver exports;
 * -1 for none.
 */
int front_names_choose(const char *name, int version, bool perthread, bool (*has)(unsigned symbol));

#pragma GCC visibility pop

#endif
