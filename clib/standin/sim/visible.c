/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visible.c: CUDA_VISIBLE_DEVICES as the hardware driver reads it: a list of
 * indices or of unique prefixes of GPU-<uuid>, in the program's order; the list
 * ends at the first entry that names no card; one card named twice hides all.
 * Indices count by address; with CUDA_DEVICE_ORDER=FASTEST_FIRST the fastest is 0.
 *
 * A process that uses a MIG device sees that one alone: the first entry, when it is
 * MIG-<uuid>, MIG-GPU-<uuid>/<GPU instance>/<compute instance>, or a divided card,
 * whose first device it means. Without a list, divided cards show only when there is
 * no other.
 */
#include "visible.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim.h"

enum { TEXT_BYTES = 96 };

static int uuid_text(const char *prefix, const uint8_t *uuid, char text[TEXT_BYTES])
{
	int n = sprintf(text, "%s", prefix);

	for (int i = 0; i < 16; i++)
		n += sprintf(text + n, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
	return n;
}

static uint64_t speed(unsigned int card)
{
	const struct divvy_sim_card *facts = sim_card_facts(card);

	return facts ? (uint64_t)facts->multiprocessors * facts->smclockmhz : 0;
}

/* the card with this index, of those that there are */
static unsigned int numbered(unsigned int index, unsigned int cards)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	unsigned int fastest = 0;

	if (!order || strcmp(order, "FASTEST_FIRST") != 0)
		return index;
	for (unsigned int i = 1; i < cards; i++) {
		if (speed(i) > speed(fastest))
			fastest = i;
	}
	return index == 0 ? fastest : index <= fastest ? index - 1 : index;
}

/* the card that an entry names, or -1 */
static int named(const char *entry, size_t length, unsigned int cards)
{
	char text[TEXT_BYTES];
	int found = -1;

	if (length == 0 || length >= sizeof(text))
		return -1;
	if (isdigit((unsigned char)entry[0])) {
		unsigned long index = 0;

		for (size_t i = 0; i < length; i++) {
			if (!isdigit((unsigned char)entry[i]) || index > 1000)
				return -1;
			index = index * 10 + (unsigned long)(entry[i] - '0');
		}
		return index < cards ? (int)numbered((unsigned int)index, cards) : -1;
	}
	if (length < 4 || strncasecmp(entry, "GPU-", 4) != 0)
		return -1;
	for (unsigned int i = 0; i < cards; i++) {
		const struct divvy_sim_card *facts = sim_card_facts(i);

		if (!facts)
			continue;
		uuid_text("GPU-", facts->uuid, text);
		if (strncasecmp(entry, text, length) != 0)
			continue;
		if (found >= 0)
			return -1; /* names more than one */
		found = (int)i;
	}
	return found;
}

/* whether a card is divided, and into what */
static bool divided(unsigned int card, struct sim_mig *mig)
{
	const struct divvy_sim_card *facts = sim_card_facts(card);

	return facts && facts->flags & DIVVY_SIM_CARD_MIG && sim_mig(card, mig) == 0 && mig->current;
}

/* opens a card's first device that an entry names, or its first (entry NULL) */
static bool open_device(unsigned int card, const char *entry, size_t length, uint32_t *visible)
{
	const struct divvy_sim_card *facts = sim_card_facts(card);
	struct sim_mig mig;
	char text[TEXT_BYTES];

	if (!divided(card, &mig))
		return false;
	for (uint32_t i = 0; i < mig.computecount; i++) {
		const struct divvy_sim_mig_compute *c = &mig.computes[i];
		bool match = !entry;

		if (entry) {
			uuid_text("MIG-", c->uuid, text);
			match = strlen(text) == length && strncasecmp(entry, text, length) == 0;
		}
		if (entry && !match) {
			int n = uuid_text("MIG-GPU-", facts->uuid, text);

			snprintf(text + n, sizeof(text) - (size_t)n, "/%u/%u", c->gpu, c->id);
			match = strlen(text) == length && strncasecmp(entry, text, length) == 0;
		}
		if (match)
			return sim_mig_use(c->uuid, visible) == 0;
	}
	return false;
}

/* without a list: the cards that are whole, else the first device of any */
static unsigned int all(unsigned int cards, uint32_t *visible, unsigned int room)
{
	struct sim_mig mig;
	unsigned int count = 0;

	for (unsigned int i = 0; i < cards && count < room; i++)
		if (!divided(numbered(i, cards), &mig))
			visible[count++] = numbered(i, cards);
	for (unsigned int i = 0; i < cards && count == 0; i++)
		count = open_device(numbered(i, cards), NULL, 0, visible);
	return count;
}

/* the device that the first entry means, if it means one */
static bool device(const char *entry, size_t length, unsigned int cards, uint32_t *visible)
{
	int card = named(entry, length, cards);

	if (card >= 0)
		return open_device((unsigned int)card, NULL, 0, visible);
	if (length < 4 || strncasecmp(entry, "MIG-", 4) != 0)
		return false;
	for (unsigned int i = 0; i < cards; i++)
		if (open_device(i, entry, length, visible))
			return true;
	return false;
}

unsigned int sd_visible(unsigned int cards, uint32_t *visible, unsigned int room)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	unsigned int count = 0;
	struct sim_mig mig;

	if (!list)
		return all(cards, visible, room);
	while (count < room) {
		while (*list == ' ')
			list++;
		size_t length = strcspn(list, ",");
		size_t used = length;

		while (used && list[used - 1] == ' ')
			used--;
		if (count == 0 && device(list, used, cards, visible))
			return 1;
		int card = named(list, used, cards);

		if (card < 0 || divided((unsigned int)card, &mig))
			break;
		for (unsigned int i = 0; i < count; i++) {
			if (visible[i] == (uint32_t)card)
				return 0;
		}
		visible[count++] = (uint32_t)card;
		if (list[length] != ',')
			break;
		list += length + 1;
	}
	return count;
}
