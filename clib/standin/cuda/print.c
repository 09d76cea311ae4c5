/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print.c: what kernels print. It is kept until the program waits for the card,
 * and comes out at once when there is too much of it: nothing is lost, unlike on
 * hardware, where the oldest is written over.
 */
#include "print.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

static struct {
	pthread_mutex_t lock;
	char *text;
	size_t used;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void write_out(void)
{
	size_t used = __atomic_load_n(&kept.used, __ATOMIC_RELAXED);

	if (!used)
		return;
	fwrite(kept.text, 1, used, stdout);
	fflush(stdout);
	__atomic_store_n(&kept.used, 0, __ATOMIC_RELAXED);
}

void sd_print_add(const char *text, size_t size)
{
	pthread_mutex_lock(&kept.lock);
	if (!kept.text)
		kept.text = malloc(MOST);
	if (kept.text) {
		if (size > MOST - kept.used)
			write_out();
		size = size > MOST ? MOST : size;
		memcpy(kept.text + kept.used, text, size);
		__atomic_store_n(&kept.used, kept.used + size, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&kept.lock);
}

void sd_print_flush(void)
{
	/* the usual case first: no kernel prints */
	if (!__atomic_load_n(&kept.used, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&kept.lock);
	write_out();
	pthread_mutex_unlock(&kept.lock);
}
