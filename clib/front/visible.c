/* SPDX-License-Identifier: Apache-2.0 */
#include "visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "lock.h"

static void name_of(const uint8_t uuid[16], char text[VISIBLE_NAME_BYTES])
{
	int at = snprintf(text, VISIBLE_NAME_BYTES, "GPU");

	for (int i = 0; i < 16; i++)
		at += snprintf(text + at, (size_t)(VISIBLE_NAME_BYTES - at), i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			       uuid[i]);
}

static unsigned cards_of(const struct divvy_limits *limits)
{
	return limits->cards < DIVVY_MAX_CARDS ? limits->cards : DIVVY_MAX_CARDS;
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The slot that an entry names, or -1. */
static int named(const struct divvy_limits *limits, const char *entry, size_t length)
{
	char name[VISIBLE_NAME_BYTES];
	unsigned number = 0;
	int found = -1;

	if (length == 0 || length >= sizeof(name))
		return -1;
	if (digit(entry[0])) {
		for (size_t i = 0; i < length; i++) {
			if (!digit(entry[i]) || number >= DIVVY_MAX_CARDS)
				return -1;
			number = number * 10 + (unsigned)(entry[i] - '0');
		}
		return number < cards_of(limits) ? (int)number : -1;
	}
	if (length < 4 || strncasecmp(entry, "GPU-", 4) != 0)
		return -1;
	for (unsigned slot = 0; slot < cards_of(limits); slot++) {
		name_of(limits->card[slot].uuid, name);
		if (strncasecmp(entry, name, length) != 0)
			continue;
		if (found >= 0)
			return -1; /* which of them? */
		found = (int)slot;
	}
	return found;
}

void visible_choose(const struct divvy_limits *limits, const char *list, struct visible *chosen)
{
	chosen->count = 0;
	if (list == NULL) {
		for (; chosen->count < cards_of(limits); chosen->count++)
			chosen->slot[chosen->count] = (uint8_t)chosen->count;
		return;
	}
	for (;;) {
		list += strspn(list, " ");
		size_t length = strcspn(list, ","), used = length;

		while (used > 0 && list[used - 1] == ' ')
			used--;
		int slot = named(limits, list, used);

		if (slot < 0)
			return;
		for (unsigned i = 0; i < chosen->count; i++) {
			if (chosen->slot[i] == slot) {
				chosen->count = 0;
				return;
			}
		}
		chosen->slot[chosen->count++] = (uint8_t)slot;
		if (list[length] == 0)
			return;
		list += length + 1;
	}
}

bool visible_hides(const char *list)
{
	if (list == NULL)
		return false;
	list += strspn(list, " ");
	return *list == 0 || *list == '-';
}

void visible_entry(const struct divvy_limits *limits, const struct visible *chosen, char text[VISIBLE_TEXT_BYTES])
{
	char *end = stpcpy(text, VISIBLE_VARIABLE "=");

	for (unsigned i = 0; i < chosen->count; i++) {
		if (i > 0)
			*end++ = ',';
		name_of(limits->card[chosen->slot[i]].uuid, end);
		end += VISIBLE_NAME_BYTES - 1;
	}
}

/*
 * The driver reads the environment by getenv. Where the variable is set, its entry
 * is another one meanwhile: one store each. Where it is not, a copy of the
 * program's array gets one more in front, and afterwards the array begins at the
 * second: again one store each, and no array is freed that somebody may be reading,
 * as setenv would; that allocates anew when it finds an array that is not its own.
 */
static struct {
	struct front_lock lock;
	unsigned users;
	char *original; /* the program's entry; NULL: it has none */
	size_t count;   /* entries that were copied */
	char **array;   /* ours: entry, the copy, NULL; then the copy once more, as it was, and the array before this one */
	char entry[VISIBLE_TEXT_BYTES];
} told;

static char **environ_now(void)
{
	return __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
}

static char *at(char *const *place)
{
	return __atomic_load_n(place, __ATOMIC_RELAXED);
}

/* Whatever setenv was at work has ended: this takes the lock of the C library's environment and changes nothing. */
static void settle(void)
{
	unsetenv("DIVVY_NO_SUCH_VARIABLE");
}

/* Where the environment has our entry, or NULL. */
static char **entry_now(void)
{
	char **now = environ_now();

	while (now != NULL && at(now) != NULL && at(now) != told.entry)
		now++;
	return now != NULL && at(now) != NULL ? now : NULL;
}

/* Puts our entry in the place of the program's; false: it has none. */
static bool replaced(void)
{
	char *value = getenv(VISIBLE_VARIABLE);
	char *entry = value == NULL ? NULL : value - sizeof(VISIBLE_VARIABLE); /* name and = */

	if (entry == NULL || entry == told.entry)
		return entry != NULL;
	told.original = entry;
	for (char **now = environ_now(); now != NULL && at(now) != NULL; now++) {
		if (at(now) == entry) {
			__atomic_compare_exchange_n(now, &entry, told.entry, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
			break;
		}
	}
	return true;
}

/* Makes told.array: our entry, then what now has. */
static bool copied(char **now)
{
	size_t count = 0;
	char **array;

	while (now != NULL && at(&now[count]) != NULL)
		count++;
	array = malloc((2 * count + 3) * sizeof(*array));
	if (array == NULL)
		return false;
	array[0] = told.entry;
	for (size_t i = 0; i < count; i++)
		array[1 + i] = array[2 + count + i] = at(&now[i]);
	array[1 + count] = NULL;
	array[2 + 2 * count] = (char *)told.array; /* somebody may still be reading it */
	told.array = array;
	told.count = count;
	return true;
}

/* What another thread changed in the old array while it was copied: until now it was as before. */
static void catch_up(char **old)
{
	for (size_t i = 0; i < told.count; i++) {
		char *was = told.array[2 + told.count + i];
		char *is = at(&old[i]);

		if (is != was)
			__atomic_compare_exchange_n(&told.array[1 + i], &was, is, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
}

static bool put_entry(void)
{
	do {
		told.original = NULL;
		if (replaced()) {
			settle();
			continue;
		}
		char **now = environ_now(), **expected = now;
		/* left from before: the program has no new array since */
		bool again = told.array != NULL && now == told.array + 1;
		bool published;

		if (!again && !copied(now))
			return false;
		published = __atomic_compare_exchange_n(&environ, &expected, told.array, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
		settle();
		if (published && !again && environ_now() == told.array)
			catch_up(now);
	} while (entry_now() == NULL);
	return true;
}

/* Not found: another thread has set or unset the very variable, and that holds. */
static void take_entry(void)
{
	char **found;

	while ((found = entry_now()) != NULL) {
		if (told.original != NULL)
			__atomic_store_n(found, told.original, __ATOMIC_RELEASE);
		else if (found == told.array && environ_now() == found)
			__atomic_store_n(&environ, found + 1, __ATOMIC_RELEASE);
		else
			for (; at(found) != NULL; found++)
				__atomic_store_n(found, at(found + 1), __ATOMIC_RELAXED);
		settle();
	}
}

bool visible_tell(const char *entry)
{
	bool done = true;

	front_lock_take(&told.lock);
	if (told.users == 0) {
		snprintf(told.entry, sizeof(told.entry), "%s", entry);
		done = put_entry();
	}
	told.users += done;
	front_lock_drop(&told.lock);
	return done;
}

void visible_told(void)
{
	front_lock_take(&told.lock);
	if (--told.users == 0)
		take_entry();
	front_lock_drop(&told.lock);
}
