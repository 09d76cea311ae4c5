/* SPDX-License-Identifier: Apache-2.0 */
#include "thread.h"

#include <pthread.h>
#include <signal.h>

#include "compat.h"

#define STACK_BYTES (128 * 1024)

int guest_thread_start(void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int rc = pthread_attr_init(&attributes);

	if (rc != 0)
		return -rc;
	/* a program with much thread-local storage may need more: then the default it is */
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&thread, &attributes, run, argument);
	pthread_attr_destroy(&attributes);
	if (rc != 0) {
		rc = pthread_create(&thread, NULL, run, argument);
		if (rc == 0)
			pthread_detach(thread);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}
