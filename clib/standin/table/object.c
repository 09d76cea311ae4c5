/* SPDX-License-Identifier: Apache-2.0 */
#include "object.h"

#include <stdlib.h>

static struct {
	struct sd_object **slots;
	size_t size; /* power of two */
	size_t used;
	uint64_t lastid;
	uint64_t count[SD_KINDS];
} table;

static size_t slot_of(const void *object, size_t size)
{
	uint64_t bits = (uint64_t)(uintptr_t)object >> 4;

	bits *= 0x9e3779b97f4a7c15ull;
	return (size_t)(bits >> 32) & (size - 1);
}

static int grow(void)
{
	size_t size = table.size ? table.size * 2 : 256;
	struct sd_object **slots = calloc(size, sizeof(*slots));

	if (!slots)
		return -1;
	for (size_t i = 0; i < table.size; i++) {
		while (table.slots[i]) {
			struct sd_object *object = table.slots[i];
			size_t slot = slot_of(object, size);

			table.slots[i] = object->bucket;
			object->bucket = slots[slot];
			slots[slot] = object;
		}
	}
	free(table.slots);
	table.slots = slots;
	table.size = size;
	return 0;
}

uint64_t sd_next_id(void)
{
	return ++table.lastid;
}

void *sd_object_new(enum sd_kind kind, size_t size, struct sd_object *owner)
{
	if (table.used >= table.size && grow() < 0)
		return NULL;
	struct sd_object *object = calloc(1, size);

	if (!object)
		return NULL;
	size_t slot = slot_of(object, table.size);

	object->kind = kind;
	object->id = sd_next_id();
	object->bucket = table.slots[slot];
	table.slots[slot] = object;
	table.used++;
	table.count[kind]++;
	if (owner) {
		object->owner = owner;
		object->next = owner->first;
		if (owner->first)
			owner->first->prev = object;
		owner->first = object;
	}
	return object;
}

void *sd_object_get(const void *handle, enum sd_kind kind)
{
	if (!handle || !table.size)
		return NULL;
	for (struct sd_object *object = table.slots[slot_of(handle, table.size)]; object; object = object->bucket) {
		if (object == handle)
			return object->kind == kind ? object : NULL;
	}
	return NULL;
}

void sd_object_end(void *which)
{
	struct sd_object *object = which;

	if (object->end)
		object->end(object);
	else
		sd_object_free(object);
}

void sd_object_free(void *which)
{
	struct sd_object *object = which;
	struct sd_object **link = &table.slots[slot_of(object, table.size)];

	while (*link && *link != object)
		link = &(*link)->bucket;
	if (!*link)
		return;
	*link = object->bucket;
	table.used--;
	table.count[object->kind]--;
	if (object->next)
		object->next->prev = object->prev;
	if (object->prev)
		object->prev->next = object->next;
	else if (object->owner)
		object->owner->first = object->next;
	object->kind = SD_FREE;
	free(object);
}

uint64_t sd_object_count(enum sd_kind kind)
{
	return table.count[kind];
}
