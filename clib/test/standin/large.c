/* SPDX-License-Identifier: Apache-2.0 */
/*
 * large [--first] FILE...: module images one kernel at a time: how much time of the
 * processor and memory it takes until the first kernel is ready, and all of them. Without
 * a FILE: a text of 300 MB with 6,700 kernels, made here. Figures; that one kernel takes
 * little memory is tested in standin_lazy.c (takes_little).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "image/image.h"
#include "ptx/index.h"

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static double peak(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)usage.ru_maxrss / 1024;
}

static char *made(size_t *size)
{
	enum { KERNELS = 6700, INSTRUCTIONS = 480 };
	size_t room = (size_t)300 << 20;
	char *text = malloc(room);
	size_t at = 0;

	if (!text)
		return NULL;
	at += (size_t)sprintf(text, ".version 8.2\n.target sm_80\n.address_size 64\n");
	for (int i = 0; i < KERNELS; i++) {
		at += (size_t)sprintf(text + at, ".visible .entry kernel_%d(\n\t.param .u64 kernel_%d_param_0\n)\n{\n"
				      "\t.reg .f32 \t%%f<8>;\n\t.reg .b64 \t%%rd<3>;\n"
				      "\tld.param.u64 \t%%rd1, [kernel_%d_param_0];\n\tcvta.to.global.u64 \t%%rd2, %%rd1;\n", i, i, i);
		for (int j = 0; j < INSTRUCTIONS; j++)
			at += (size_t)sprintf(text + at, "\tld.global.v4.f32 \t{%%f1, %%f2, %%f3, %%f4}, [%%rd2+%d];\n"
					      "\tfma.rn.f32 \t%%f5, %%f1, %%f2, %%f3; // %%f5\n", j * 16);
		at += (size_t)sprintf(text + at, "\tst.global.f32 \t[%%rd2], %%f5;\n\tret;\n\n}\n");
	}
	*size = at;
	return text;
}

static char *contents(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	char *bytes;

	if (!file)
		return NULL;
	fseek(file, 0, SEEK_END);
	*size = (size_t)ftell(file);
	rewind(file);
	bytes = malloc(*size + 1);
	if (bytes)
		bytes[fread(bytes, 1, *size, file)] = '\0';
	fclose(file);
	return bytes;
}

struct totals {
	double begin, expand, open, first, most, all;
	uint64_t bytes;
	size_t kernels, refused;
};

static bool first_only;

static int one(const char *path, struct totals *totals)
{
	const struct sd_reading reading = { .maxversion = 91, .capability = 90, .loading = SD_LOAD_LAZY };
	struct sd_image image;
	struct ptx_log log;
	size_t size = 0;
	char *bytes = path ? contents(path, &size) : made(&size);
	double start = now();
	int result = bytes ? sd_image_begin(bytes, size, &reading, &image, &log) : -1;

	free(bytes);
	if (result < 0) {
		printf("%s: %s\n", path, bytes ? log.text : "cannot be read");
		return 1;
	}
	totals->begin += now() - start;
	start = now();
	result = sd_source_expand(image.source, reading.capability, false, &log);
	totals->expand += now() - start;
	start = now();
	if (result == 0)
		result = sd_image_open(&image, &log);
	double opened = now() - start;

	if (result == 0 && image.entrycount)
		(void)sd_image_load(&image, &image.entries[image.entrycount / 2], NULL, NULL, &log);
	double first = now() - start;

	totals->open += opened;
	totals->first += first;
	totals->most = first > totals->most ? first : totals->most;
	totals->bytes += result == 0 ? image.source->length : 0;
	totals->kernels += image.entrycount;
	if (!path)
		printf("peak with one kernel %.0f MiB\n", peak());
	start = now();
	for (size_t i = 0; result == 0 && path && !first_only && i < image.entrycount; i++) {
		log = (struct ptx_log){ 0 };
		if (sd_image_load(&image, &image.entries[i], NULL, NULL, &log) < 0) {
			totals->refused++;
			printf("refused: %s\n", log.text);
		}
	}
	totals->all += now() - start;
	if (result < 0)
		printf("%s: %s\n", path ? path : "made", log.text);
	sd_image_free(&image);
	return result < 0;
}

int main(int argc, char **argv)
{
	struct totals totals = { 0 };
	int failed = 0;

	first_only = argc > 1 && strcmp(argv[1], "--first") == 0;
	if (argc < 2)
		failed = one(NULL, &totals);
	for (int i = 1 + first_only; i < argc; i++)
		failed |= one(argv[i], &totals);
	printf("%.1f MB of text, %zu kernels, %zu refused\n", (double)totals.bytes / 1e6, totals.kernels, totals.refused);
	printf("load %.1f ms, expansion %.1f ms, then: kernels found %.1f ms, the first ready %.1f ms (most of one image %.1f), "
	       "all %.0f ms; peak %.0f MiB\n", totals.begin, totals.expand, totals.open, totals.first, totals.most, totals.all,
	       peak());
	return failed;
}
