/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h: the two pages of an attached process, mapped side by side so that
 * one pointer tells both: the limits page, read-only, then the client page.
 */
#ifndef DIVVY_FRONT_PAGE_H
#define DIVVY_FRONT_PAGE_H

#include "divvy_wire.h"

#pragma GCC visibility push(hidden)

struct front_pages {
	_Alignas(DIVVY_PAGE_BYTES) struct divvy_limits limits;
	_Alignas(DIVVY_PAGE_BYTES) struct divvy_client client;
};

_Static_assert(offsetof(struct front_pages, client) == DIVVY_PAGE_BYTES, "client page follows");
_Static_assert(sizeof(struct front_pages) == 2 * DIVVY_PAGE_BYTES, "two pages");

/*
 * Maps what the two descriptors hold. 0, or -EPROTO when it is not what
 * divvy_wire.h says (kind, version, size, seals), or another negative errno.
 */
int front_pages_map(int limitsfd, int clientfd, struct front_pages **pages);
void front_pages_unmap(struct front_pages *pages);

/* The contents alone, as front_pages_map checks them: 0 or -EPROTO. */
int front_limits_check(const struct divvy_limits *limits);
int front_client_check(const struct divvy_client *client);

#pragma GCC visibility pop

#endif
