/* SPDX-License-Identifier: Apache-2.0 */
#include "names.h"

#include <string.h>

#include "symbols.h"

_Static_assert((FRONT_NAMES_SLOTS & (FRONT_NAMES_SLOTS - 1)) == 0, "a power of two");
_Static_assert(FRONT_NAMES_SLOTS > 2 * DIVVY_SYMBOLS, "room to search quickly");

static const struct {
	const char *name;
	int symbol;
	int version;
	int twin; /* its per-thread-stream twin, or -1 */
} meanings[] = {
#include "procaddress.inc"
};

static size_t place(const void *address)
{
	return (size_t)(((uintptr_t)address >> 4) * 0x9e3779b97f4a7c15ull >> 40) & (FRONT_NAMES_SLOTS - 1);
}

void front_names_add(struct front_names *names, const void *address, uint32_t symbol, bool hooked)
{
	size_t i = place(address);

	while (names->slot[i].address != NULL && names->slot[i].address != address)
		i = (i + 1) & (FRONT_NAMES_SLOTS - 1);
	if (names->slot[i].address == address) {
		names->slot[i].many = true;
		names->slot[i].hooked |= hooked;
		return;
	}
	names->slot[i].address = address;
	names->slot[i].symbol = symbol;
	names->slot[i].hooked = hooked;
}

enum front_found front_names_find(const struct front_names *names, const void *address, uint32_t *symbol)
{
	size_t i = place(address);

	while (names->slot[i].address != NULL && names->slot[i].address != address)
		i = (i + 1) & (FRONT_NAMES_SLOTS - 1);
	if (names->slot[i].address == NULL)
		return FRONT_FOUND_BY_NAME;
	if (!names->slot[i].hooked)
		return FRONT_FOUND_PASSED;
	if (names->slot[i].many)
		return FRONT_FOUND_BY_NAME;
	*symbol = names->slot[i].symbol;
	return FRONT_FOUND_HOOKED;
}

int front_names_choose(const char *name, int version, bool perthread, bool (*has)(unsigned symbol))
{
	int best = -1;

	/* rows of one name stand together, oldest first */
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		int symbol = perthread && meanings[i].twin >= 0 ? meanings[i].twin : meanings[i].symbol;

		if (strcmp(meanings[i].name, name) == 0 && meanings[i].version <= version && has((unsigned)symbol))
			best = symbol;
	}
	return best;
}
