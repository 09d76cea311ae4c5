/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c: what one-way calls have failed with, until the next call on their context
 * returns it; what has ended a context every call does.
 */
#include "remote.h"

#include <pthread.h>

enum { MOST = 64 };

static struct {
	pthread_mutex_t lock;
	uint32_t count; /* read without the lock */
	struct divvy_remote_failure at[MOST];
} failures = { .lock = PTHREAD_MUTEX_INITIALIZER };

void remote_failed(const struct divvy_remote_failure *failure)
{
	pthread_mutex_lock(&failures.lock);
	if (failures.count < MOST) {
		failures.at[failures.count] = *failure;
		__atomic_store_n(&failures.count, failures.count + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&failures.lock);
}

uint64_t remote_failure(struct remote_lane *lane)
{
	uint64_t result = 0, current = remote_current(lane);

	if (__atomic_load_n(&failures.count, __ATOMIC_ACQUIRE) == 0)
		return 0;
	pthread_mutex_lock(&failures.lock);
	for (uint32_t i = 0; i < failures.count && !result; i++) {
		struct divvy_remote_failure *one = &failures.at[i];

		if (one->context && one->context != current)
			continue;
		result = one->result;
		if (!one->sticky) {
			*one = failures.at[failures.count - 1];
			__atomic_store_n(&failures.count, failures.count - 1, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&failures.lock);
	return result;
}
