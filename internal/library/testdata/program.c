/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the front given and asks ld.so for names, calls what it finds where it
 * knows how, and prints one line each.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	void *front = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);

	if (!front) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (int i = 2; i < argc; i++) {
		const char *name = argv[i];
		void *function = dlsym(front, name);

		if (!function) {
			printf("%s: none\n", name);
		} else if (strcmp(name, "cuDeviceGetName") == 0) {
			printf("%s: %d %d\n", name, ((int (*)(char *, int, int))function)(NULL, 40, 2), ((int (*)(char *, int, int))function)(NULL, 41, 2));
		} else if (strcmp(name, "cuDriverGetVersion") == 0 || strcmp(name, "nvmlDeviceGetMinorNumber") == 0) {
			int value = 0;

			if (name[0] == 'c')
				((int (*)(int *))function)(&value);
			else
				((int (*)(void *, int *))function)(NULL, &value);
			printf("%s: %d\n", name, value);
		} else if (strcmp(name, "cuBrandNew") == 0 || strcmp(name, "nvmlBrandNew") == 0) {
			printf("%s: %d\n", name, ((int (*)(int))function)(10));
		} else if (strcmp(name, "cuBrandNewSum") == 0) {
			double (*sum)(int, int, int, int, int, int, int, int, double, double, double, double, double, double, double, double, double, double) =
				(double (*)(int, int, int, int, int, int, int, int, double, double, double, double, double, double, double, double, double, double))function;

			printf("%s: %.1f\n", name, sum(1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10.5));
		} else {
			printf("%s: found\n", name);
		}
	}
	return 0;
}
