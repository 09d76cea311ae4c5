/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procaddress: what cuGetProcAddress answers, one line per question:
 *
 *	CALL NAME VERSION FLAGS RESULT STATUS SYMBOL FILE
 *
 * CALL is 1 or 2 (cuGetProcAddress, cuGetProcAddress_v2), STATUS is - where the
 * call has none, SYMBOL is the exported name at the returned address ("-" for no
 * address, "?" for an address without a name) and FILE the library it lies in.
 * Names come one per line on the standard input. Run over a driver and over the
 * front library the first seven columns must be the same.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda_abi.h"

static const int versions[] = {2000, 3020, 4000, 6050, 10000, 11020, 11030, 11040, 11060, 11080,
			       12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 13000, 13010};
static const cuuint64_t flags[] = {0, 1, 2, 3, 4, 8};

static void tell(int call, const char *name, int version, cuuint64_t flag, int result, int status, void *function)
{
	Dl_info info;
	const char *symbol = "-", *file = "-";

	memset(&info, 0, sizeof info);
	if (function) {
		symbol = "?";
		if (dladdr(function, &info)) {
			if (info.dli_sname && info.dli_saddr == function)
				symbol = info.dli_sname;
			if (info.dli_fname)
				file = info.dli_fname;
		}
	}
	if (call == 1)
		printf("1 %s %d %llu %d - %s %s\n", name, version, (unsigned long long)flag, result, symbol, file);
	else
		printf("2 %s %d %llu %d %d %s %s\n", name, version, (unsigned long long)flag, result, status, symbol,
		       file);
}

int main(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(&cuInit) init;
	__typeof__(&cuGetProcAddress) first;
	__typeof__(&cuGetProcAddress_v2) second;
	char name[256];

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	init = (__typeof__(init))dlsym(library, "cuInit");
	first = (__typeof__(first))dlsym(library, "cuGetProcAddress");
	second = (__typeof__(second))dlsym(library, "cuGetProcAddress_v2");
	if (!init || !first || init(0) != 0) {
		fprintf(stderr, "no driver\n");
		return 1;
	}
	while (fgets(name, sizeof name, stdin)) {
		name[strcspn(name, "\n")] = '\0';
		for (size_t v = 0; v < sizeof versions / sizeof versions[0]; v++) {
			for (size_t f = 0; f < sizeof flags / sizeof flags[0]; f++) {
				CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
				void *function = NULL;
				int result = (int)first(name, &function, versions[v], flags[f]);

				tell(1, name, versions[v], flags[f], result, 0, function);
				if (!second)
					continue;
				function = NULL;
				result = (int)second(name, &function, versions[v], flags[f], &status);
				tell(2, name, versions[v], flags[f], result, (int)status, function);
			}
		}
	}
	return 0;
}
