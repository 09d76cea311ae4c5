/* SPDX-License-Identifier: Apache-2.0 */
/* Which address cuGetProcAddress hands out. */
#include "check.h"
#include "names.h"
#include "symbols.h"

static struct front_names names;
static unsigned lacking = DIVVY_SYMBOLS;

static bool has(unsigned symbol)
{
	return symbol != lacking;
}

static const void *at(uintptr_t address)
{
	return (const void *)address;
}

static void finds_by_address(void)
{
	uint32_t symbol = 0;

	for (uint32_t i = 0; i < DIVVY_SYMBOLS; i++)
		front_names_add(&names, at(0x7f0000000000 + 64ul * i), i, i % 3 == 0);
	for (uint32_t i = 0; i < DIVVY_SYMBOLS; i++) {
		enum front_found found = front_names_find(&names, at(0x7f0000000000 + 64ul * i), &symbol);

		CHECK(found == (i % 3 == 0 ? FRONT_FOUND_HOOKED : FRONT_FOUND_PASSED));
		CHECK(found == FRONT_FOUND_PASSED || symbol == i);
	}
	CHECK(front_names_find(&names, at(0x1000), &symbol) == FRONT_FOUND_BY_NAME);
}

static void goes_by_name_where_names_share_an_address(void)
{
	uint32_t symbol;

	front_names_add(&names, at(0x1000), 1, false);
	front_names_add(&names, at(0x1000), 2, true);
	CHECK(front_names_find(&names, at(0x1000), &symbol) == FRONT_FOUND_BY_NAME);
	front_names_add(&names, at(0x2000), 3, false);
	front_names_add(&names, at(0x2000), 4, false);
	CHECK(front_names_find(&names, at(0x2000), &symbol) == FRONT_FOUND_PASSED);
}

static void chooses_version_and_stream(void)
{
	CHECK(front_names_choose("cuMemAlloc", 2000, false, has) == SYM_cuMemAlloc);
	CHECK(front_names_choose("cuMemAlloc", 12020, false, has) == SYM_cuMemAlloc_v2);
	CHECK(front_names_choose("cuMemAlloc", 12020, true, has) == SYM_cuMemAlloc_v2);
	CHECK(front_names_choose("cuMemAllocAsync", 12020, false, has) == SYM_cuMemAllocAsync);
	CHECK(front_names_choose("cuMemAllocAsync", 12020, true, has) == SYM_cuMemAllocAsync_ptsz);
	CHECK(front_names_choose("cuGetProcAddress", 11040, false, has) == SYM_cuGetProcAddress);
	CHECK(front_names_choose("cuGetProcAddress", 12000, false, has) == SYM_cuGetProcAddress_v2);
	CHECK(front_names_choose("cuMemAllocX", 12020, false, has) == -1);
	CHECK(front_names_choose("cuMemAllo", 12020, false, has) == -1);
}

static void never_chooses_what_the_driver_lacks(void)
{
	lacking = SYM_cuGetProcAddress_v2;
	CHECK(front_names_choose("cuGetProcAddress", 13000, false, has) == SYM_cuGetProcAddress);
	lacking = SYM_cuInit;
	CHECK(front_names_choose("cuInit", 13000, false, has) == -1);
}

static const struct scenario scenarios[] = {
	{"finds by address", finds_by_address},
	{"goes by name where names share an address", goes_by_name_where_names_share_an_address},
	{"chooses version and stream", chooses_version_and_stream},
	{"never chooses what the driver lacks", never_chooses_what_the_driver_lacks},
};

RUN_SCENARIOS(scenarios)
