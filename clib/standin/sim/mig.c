/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mig.c: MIG of the simulated cards, and where these sit. What its devices are is kept until the
 * process ends, because pointers to it are handles; whether they still are is asked
 * each time.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct device {
	struct divvy_sim_card facts; /* first: its address is the handle */
	struct device *next;
};

static struct device *_Atomic devices; /* grows at the front, never shrinks */

/* Entries off the front of what was told; NULL: there are not so many, or not so much. */
static const unsigned char *take(void *out, size_t each, uint64_t count, uint32_t most, const unsigned char *from, size_t *left)
{
	if (!from || count > most || count * each > *left)
		return NULL;
	memcpy(out, from, count * each);
	*left -= count * each;
	return from + count * each;
}

int sim_mig(uint32_t card, struct sim_mig *out)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_MIG_LIST, .card = card};
	unsigned char told[sizeof(out->profiles) + sizeof(out->gpus) + sizeof(out->computes)];
	int result = sim_request(&header, told, sizeof(told), -1, NULL);
	const unsigned char *next = told;
	size_t left = header.payloadbytes;

	if (result != 0)
		return result;
	next = take(out->profiles, sizeof(out->profiles[0]), header.count, SIM_MIG_PROFILES, next, &left);
	next = take(out->gpus, sizeof(out->gpus[0]), header.kind, SIM_MIG_INSTANCES, next, &left);
	next = take(out->computes, sizeof(out->computes[0]), header.cursor, SIM_MIG_INSTANCES, next, &left);
	if (!next || left != 0)
		return -EIO;
	out->current = header.bytes != 0;
	out->pending = header.offset != 0;
	out->profilecount = header.count;
	out->gpucount = header.kind;
	out->computecount = (uint32_t)header.cursor;
	for (uint32_t p = 0; p < out->profilecount; p++)
		out->profiles[p].name[sizeof(out->profiles[p].name) - 1] = 0;
	return 0;
}

int sim_mig_change(uint32_t card, uint32_t change, uint64_t value, uint64_t start, uint64_t *number, uint32_t *done)
{
	struct divvy_sim_header header = {
		.type = DIVVY_SIM_MIG_CHANGE, .card = card, .kind = change, .bytes = value, .offset = start,
		.object = number ? *number : 0,
	};
	int result = sim_request(&header, NULL, 0, -1, NULL);

	if (result == 0 && number)
		*number = header.object;
	if (result == 0 && done)
		*done = header.count;
	return result;
}

int sim_mig_use(const uint8_t uuid[16], uint32_t *card)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_MIG_USE, .payloadbytes = 16};
	unsigned char copy[16];
	int result;

	memcpy(copy, uuid, sizeof(copy));
	result = sim_request(&header, copy, sizeof(copy), -1, NULL);
	*card = header.card;
	return result;
}

/* What is constant of a card. */
static bool same(const struct divvy_sim_card *a, const struct divvy_sim_card *b)
{
	return memcmp(a, b, offsetof(struct divvy_sim_card, usedbytes)) == 0;
}

const struct divvy_sim_card *sim_mig_facts(uint32_t card, const uint8_t uuid[16])
{
	struct divvy_sim_card now;
	struct device *fresh;

	if (sim_card(card, &now) != 0 || !(now.flags & DIVVY_SIM_CARD_DEVICE) || memcmp(now.uuid, uuid, 16) != 0)
		return NULL;
	for (struct device *d = atomic_load(&devices); d; d = d->next)
		if (same(&d->facts, &now))
			return &d->facts;
	fresh = malloc(sizeof(*fresh));
	if (!fresh)
		return NULL;
	fresh->facts = now;
	fresh->next = atomic_load(&devices);
	while (!atomic_compare_exchange_weak(&devices, &fresh->next, fresh))
		;
	return &fresh->facts;
}

bool sim_mig_known(const void *facts)
{
	for (struct device *d = atomic_load(&devices); d; d = d->next)
		if ((const void *)&d->facts == facts)
			return true;
	return false;
}

bool sim_mig_current(const struct divvy_sim_card *facts)
{
	struct divvy_sim_card now;

	return sim_card(facts->index, &now) == 0 && same(facts, &now);
}

int sim_topology(uint32_t card, struct divvy_sim_topology *out)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_TOPOLOGY, .card = card};
	int result = sim_request(&header, out, sizeof(*out), -1, NULL);

	if (result == 0 && (header.payloadbytes != sizeof(*out) || out->links > sizeof(out->peers)))
		result = -EIO;
	return result;
}
