/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workerfuzz.c: calls as nobody's library would send them, decoded and made by a worker
 * over the null driver. Whatever comes, the worker reads and writes only what is its own
 * (the sanitizers say) and has an answer that fits a frame.
 *
 *	workerfuzz DRIVER ROUNDS SEED
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker.h"

static void *driver;
static uint64_t state;

static uint64_t dice(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* What the other files of the worker do for calls. */

void *worker_function(unsigned int number, bool twin)
{
	(void)twin;
	return number < CALL_NUMBERS ? dlsym(driver, call_name(number)) : NULL;
}

void *worker_driver(const char *name)
{
	return dlsym(driver, name);
}

unsigned int worker_program(void)
{
	return 1;
}

bool worker_end_data(struct worker_lane *lane)
{
	return lane->data != NULL;
}

bool worker_send_data(struct worker_lane *lane, uint64_t seq, const void *bytes, size_t length)
{
	unsigned char sum = 0;

	(void)lane;
	(void)seq;
	for (size_t i = 0; i < length; i += 4096)
		sum ^= ((const unsigned char *)bytes)[i];
	return sum != 1 && dice() % 4; /* the connection may be lost */
}

uint64_t worker_callback(const struct worker_call *call, const struct call_callback *want, uint64_t stream)
{
	return call->number + want->cookie + stream == 0;
}

/* A payload: words that a call may have, lengths that are right, nearly right or absurd. */
static size_t compose(unsigned int number, uint8_t *payload, size_t room)
{
	const struct call_shape *shape = call_shape(number);
	size_t at = 0;

	if (!shape || dice() % 8 == 0) {
		size_t length = dice() % 512;

		for (size_t i = 0; i < length; i++)
			payload[i] = dice() % 4 ? 0 : (uint8_t)dice();
		return length;
	}
	uint64_t words[CALL_ARGUMENTS] = { 0 };

	for (unsigned int i = 0; i < shape->arguments; i++) {
		const struct call_argument *argument = &shape->argument[i];

		switch (argument->how) {
		case HOW_VALUE:
			words[i] = dice() % 2 ? dice() % 8 : dice();
			break;
		case HOW_HANDLE:
			words[i] = dice() % 4 == 0 ? dice() : worker_handle(argument->kind, dice() % 64 * 16 + 4096);
			break;
		default:
			words[i] = dice() % 8 == 0 ? CALL_NULL : dice() % 8 == 0 ? dice() : call_type_bytes(argument->type) * (dice() % 3 ? 1 : dice() % 8);
			break;
		}
	}
	/* an array's length by its count, so that some calls get through */
	for (unsigned int i = 0; i < shape->arguments; i++) {
		const struct call_argument *argument = &shape->argument[i];

		if (argument->how >= HOW_IN && argument->count == COUNT_BY && dice() % 4)
			words[i] = call_bytes(shape, i, words);
		if (argument->how >= HOW_IN && argument->count == COUNT_BYTES && dice() % 4)
			words[i] = argument->by;
	}
	memcpy(payload, words, shape->arguments * sizeof(words[0]));
	at = shape->arguments * sizeof(words[0]);
	for (unsigned int i = 0; i < shape->arguments; i++) {
		unsigned int how = shape->argument[i].how;

		if (how < HOW_STRING || how == HOW_OUT || words[i] == CALL_NULL || words[i] > 4096 || at + words[i] + 8 > room)
			continue;
		for (size_t j = 0; j < call_padded(words[i]); j++)
			payload[at + j] = how == HOW_STRING ? (uint8_t)(j + 1 < words[i] ? 'a' : 0) : dice() % 3 ? 0 : (uint8_t)dice();
		at += call_padded(words[i]);
	}
	return dice() % 16 == 0 ? dice() % (at + 1) : at;
}

int main(int argc, char **argv)
{
	enum { ROOM = 1 << 16, DATA = 4096 };
	struct worker_lane lane = { .number = 1 };
	uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000, succeeded = 0;

	state = argc > 3 ? strtoull(argv[3], NULL, 10) | 1 : 1;
	driver = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!driver) {
		fprintf(stderr, "workerfuzz: %s\n", argc > 1 ? dlerror() : "usage: workerfuzz DRIVER ROUNDS SEED");
		return 2;
	}
	lane.data = malloc(DATA + 8);
	lane.dataroom = DATA;
	for (uint64_t i = 0; i < rounds; i++) {
		unsigned int number = (unsigned int)(dice() % CALL_NUMBERS);
		uint8_t scratch[ROOM];
		size_t length = compose(number, scratch, ROOM);
		uint8_t *payload = malloc(length ? length : 1); /* exactly: what reads past it is found */

		memcpy(payload, scratch, length);
		lane.datalength = dice() % 4 ? 0 : dice() % DATA;
		memset(lane.data, (int)dice(), lane.datalength);
		memset(lane.data + lane.datalength, 0, 8);
		struct worker_call call = { .lane = &lane, .number = number, .seq = i, .payload = payload, .length = length };

		succeeded += worker_call(&call) == 0;
		if (lane.reply.length < sizeof(struct divvy_remote_frame) + sizeof(uint64_t) ||
		    lane.reply.length - sizeof(struct divvy_remote_frame) > DIVVY_REMOTE_MAX_PAYLOAD + (1 << 16)) {
			printf("not ok %s: a reply of %zu bytes\n", call_name(number), lane.reply.length);
			return 1;
		}
		free(payload);
	}
	free(lane.data);
	free(lane.reply.at);
	printf("ok %llu of %llu succeeded\n", (unsigned long long)succeeded, (unsigned long long)rounds);
	return succeeded == 0;
}
