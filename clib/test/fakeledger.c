/* SPDX-License-Identifier: Apache-2.0 */
/* fakeledger.c: see fakedriver.h. One share of one card, which never hears from an agent. */
#include "fakedriver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct front_pages pages;
struct front_pages *front_pages_now = &pages;
static uint32_t live = 1;
uint32_t *front_live = &live;
static const uint32_t ungated;
const uint32_t front_several = 1;
const uint32_t *front_gated = &ungated;
__thread struct front_thread front_thread;
void (*front_yield)(void);
static _Atomic unsigned denials;
static bool secretive;

static struct divvy_client_card *card(void)
{
	return &pages.client.card[0];
}

static bool take(uint64_t bytes)
{
	uint64_t used;

	return front_credit_take(card(), bytes, &used);
}

int front_tell(struct divvy_message *message)
{
	(void)message;
	return -ENOTCONN;
}

bool front_there(void)
{
	return true;
}

void front_watch(void) {}

/* An agent that knows of this process only. */
static struct {
	uint64_t name;
	uint64_t bytes;
	unsigned holders;
} numbers[64];

unsigned fake_numbers(void)
{
	unsigned count = 0;

	for (unsigned i = 1; i < 64; i++)
		count += numbers[i].holders != 0;
	return count;
}

int front_ask_surely(struct divvy_message *message, int fd)
{
	uint64_t name = (uint64_t)fd;
	unsigned i = 1;

	if (fd < 0)
		memcpy(&name, message->text, sizeof(name));
	message->status = DIVVY_STATUS_OK;
	switch (message->type) {
	case DIVVY_NAME:
		i = (unsigned)message->token;
		for (unsigned free = 1; !i && free < 64; free++) {
			if (!numbers[free].holders)
				i = free;
		}
		if (!message->token) {
			numbers[i].bytes = message->amount;
			numbers[i].holders = 1;
		}
		numbers[i].name = name;
		message->type = DIVVY_NAMED;
		message->token = i;
		return 0;
	case DIVVY_IMPORT:
		message->type = DIVVY_IMPORTED;
		message->token = 0;
		for (; i < 64; i++) {
			if (numbers[i].holders && numbers[i].name == name) {
				numbers[i].holders++;
				message->token = i;
				message->amount = numbers[i].bytes;
				return 0;
			}
		}
		return 0;
	default:
		message->type = DIVVY_RELEASED;
		i = (unsigned)message->token;
		if (!numbers[i].holders)
			abort();
		if (--numbers[i].holders == 0)
			__atomic_sub_fetch(&card()->memory, divvy_memory_units(numbers[i].bytes) << DIVVY_MEMORY_BITS, __ATOMIC_ACQ_REL);
		return 0;
	}
}

static int charge(uint64_t bytes)
{
	void (*yield)(void) = __atomic_load_n(&front_yield, __ATOMIC_ACQUIRE);

	if (take(bytes))
		return 0;
	if (yield) {
		yield();
		if (take(bytes))
			return 0;
	}
	denials++;
	return -ENOMEM;
}

int front_charge(int slot, uint64_t bytes, const char *call)
{
	int rc;

	if (slot < 0)
		return 0;
	if (!call)
		abort();
	fake_turn(__func__, false);
	rc = charge(bytes);
	fake_turn(__func__, true);
	return rc;
}

void front_refund(int slot, uint64_t bytes)
{
	uint64_t word;

	if (slot < 0)
		return;
	fake_turn(__func__, false);
	word = __atomic_add_fetch(&card()->memory, divvy_memory_units(bytes), __ATOMIC_ACQ_REL);
	fake_turn(__func__, true);
	if (divvy_memory_credit(word) > divvy_memory_granted(word)) {
		fprintf(stderr, "refunded more than was charged\n");
		abort();
	}
}

void front_uncharge(int slot, uint64_t bytes)
{
	front_refund(slot, bytes);
}

void front_context_held(int slot, int64_t bytes)
{
	if (slot >= 0)
		__atomic_fetch_add(&pages.client.card[0].contextbytes, (uint64_t)bytes, __ATOMIC_RELAXED);
}

uint64_t fake_charged(void)
{
	return front_in_use(card());
}

uint64_t fake_contexts(void)
{
	return pages.client.card[0].contextbytes;
}

unsigned fake_denials(void)
{
	return denials;
}

void front_driver_oom(int slot, uint64_t bytes, const char *call)
{
	(void)slot, (void)bytes, (void)call;
}

int front_measure(int slot, uint64_t *bytes)
{
	(void)slot;
	if (secretive)
		return -ENODATA;
	*bytes = fake_held();
	return 0;
}

void fake_secretive(bool yes)
{
	secretive = yes;
}

uint64_t front_context_bytes(int slot)
{
	return slot < 0 ? 0 : FAKE_CONTEXT;
}

void front_log(const char *format, ...)
{
	(void)format;
}

void front_count_launches(int slot, uint64_t launches)
{
	(void)slot, (void)launches;
}

bool front_has(unsigned symbol)
{
	return symbol < DIVVY_SYMBOLS && front_real[symbol] != NULL;
}

int front_slot(CUdevice device)
{
	return device == FAKE_CARD ? 0 : -1;
}

CUdevice front_device(int slot)
{
	return slot == 0 ? FAKE_CARD : -1;
}

int front_current_slot(void)
{
	return 0;
}

int front_context_slot(CUcontext context)
{
	(void)context;
	return 0;
}

unsigned front_cards(void)
{
	return 1;
}

void fake_grant(uint64_t limitbytes)
{
	pages.client.card[0].memory = divvy_memory_granted_units(limitbytes) + divvy_memory_units(limitbytes);
}
