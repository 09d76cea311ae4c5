/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy-worker: makes the calls of a program on a machine without a GPU. The server
 * starts it in the program's share with the connection as descriptor 3; it loads the
 * driver that the loader finds, which is the front, and ends with the connection.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "session.h"
#include "symbols.h"
#include "worker.h"

static void *cuda, *nvml;
static void *functions[CALL_NUMBERS][2];

void *worker_driver(const char *name)
{
	void *library = name[0] == 'n' ? nvml : cuda;

	return library ? dlsym(library, name) : NULL;
}

void *worker_function(unsigned int number, bool twin)
{
	static const char *const suffixes[] = { "_ptsz", "_ptds", "" };
	char name[128];

	if (number >= CALL_NUMBERS)
		return NULL;
	void *function = __atomic_load_n(&functions[number][twin], __ATOMIC_ACQUIRE);

	for (int i = twin ? 0 : 2; i < 3 && !function; i++) {
		snprintf(name, sizeof(name), "%s%s", call_name(number), suffixes[i]);
		function = worker_driver(name);
	}
	__atomic_store_n(&functions[number][twin], function, __ATOMIC_RELEASE);
	return function;
}

bool worker_asks(unsigned int number)
{
	static signed char asks[CALL_NUMBERS]; /* 0: not looked up */

	if (number >= CALL_NUMBERS)
		return false;
	if (!asks[number]) {
		int symbol = divvy_symbol_find(call_name(number));

		asks[number] = symbol >= 0 && divvy_symbol_class((unsigned int)symbol) == DIVVY_CLASS_QUERIES ? 1 : -1;
	}
	return asks[number] > 0;
}

int main(void)
{
	enum { CONNECTION = 3 };

	if (fcntl(CONNECTION, F_GETFD) < 0) {
		fprintf(stderr, "divvy-worker: descriptor %d is no connection: divvy serve starts this program\n", CONNECTION);
		return 2;
	}
	cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_GLOBAL);
	return session_run(CONNECTION, cuda ? NULL : dlerror());
}
