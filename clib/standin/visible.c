/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visible.c: CUDA_VISIBLE_DEVICES as the hardware driver reads it: a list of
 * indices or of unique prefixes of GPU-<uuid>, in the program's order; the list
 * ends at the first entry that names no card; one card named twice hides all.
 */
#include "visible.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim.h"

enum { TEXT_BYTES = 48 };

static void uuid_text(const uint8_t *uuid, char text[TEXT_BYTES])
{
	char *end = text + sprintf(text, "GPU-");

	for (int i = 0; i < 16; i++)
		end += sprintf(end, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
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
		return index < cards ? (int)index : -1;
	}
	if (length < 4 || strncasecmp(entry, "GPU-", 4) != 0)
		return -1;
	for (unsigned int i = 0; i < cards; i++) {
		const struct divvy_sim_card *facts = sim_card_facts(i);

		if (!facts)
			continue;
		uuid_text(facts->uuid, text);
		if (strncasecmp(entry, text, length) != 0)
			continue;
		if (found >= 0)
			return -1; /* names more than one */
		found = (int)i;
	}
	return found;
}

unsigned int sd_visible(unsigned int cards, uint32_t *visible, unsigned int room)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	unsigned int count = 0;

	if (!list) {
		for (; count < cards && count < room; count++)
			visible[count] = count;
		return count;
	}
	while (count < room) {
		while (*list == ' ')
			list++;
		size_t length = strcspn(list, ",");
		size_t used = length;

		while (used && list[used - 1] == ' ')
			used--;
		int card = named(list, used, cards);

		if (card < 0)
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
