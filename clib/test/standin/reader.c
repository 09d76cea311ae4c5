/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader FILE...: reads each file as a module image for a card of compute
 * capability 9.0, as cuModuleLoad does but without a driver, and says what is in
 * it. Exits with 1 if one of them cannot be run.
 */
#include <stdio.h>
#include <stdlib.h>

#include "image/image.h"

static unsigned char *contents(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	unsigned char *bytes = NULL;

	if (!file)
		return NULL;
	if (fseek(file, 0, SEEK_END) == 0) {
		*size = (size_t)ftell(file);
		rewind(file);
		bytes = malloc(*size + 1);
	}
	if (bytes)
		*size = fread(bytes, 1, *size, file);
	fclose(file);
	return bytes;
}

static int read_one(const char *path)
{
	struct sd_image image;
	struct ptx_log log = { 0 };
	size_t size = 0;
	unsigned char *bytes = contents(path, &size);
	int result = bytes && size ? sd_image_read(bytes, size, 90, 90, &image, &log) : -1;

	free(bytes);
	if (result == 0) {
		uint64_t instructions = 0;

		for (uint32_t i = 0; i < image.module->functioncount; i++)
			instructions += image.module->functions[i]->instructioncount;
		result = sd_image_compile(&image, &log);
		if (result == 0)
			printf("%s: %zu kernels, %u variables, %llu instructions\n", path, image.entrycount,
			       image.module->variablecount, (unsigned long long)instructions);
		for (size_t i = 0; result == 0 && i < image.entrycount; i++)
			printf("  %s: %u registers, %u threads\n", image.entries[i].name, image.entries[i].registers,
			       image.entries[i].maxthreads);
		sd_image_free(&image);
	}
	if (result != 0)
		printf("%s: %s\n", path, log.text[0] ? log.text : "this is no image");
	return result;
}

int main(int argc, char **argv)
{
	int failed = argc < 2;

	for (int i = 1; i < argc; i++)
		failed |= read_one(argv[i]) != 0;
	return failed;
}
