/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "ptx/index.h"

struct sd_source *sd_source_new(const void *data, size_t size)
{
	struct sd_source *source = calloc(1, sizeof(*source));
	unsigned char *bytes = source ? malloc(size + 1) : NULL;

	if (!bytes) {
		free(source);
		return NULL;
	}
	memcpy(bytes, data, size);
	bytes[size] = '\0';
	*source = (struct sd_source){ .users = 1, .bytes = bytes, .size = size };
	return source;
}

struct sd_source *sd_source_share(struct sd_source *source)
{
	source->users++;
	return source;
}

void sd_source_drop(struct sd_source *source)
{
	if (!source || --source->users)
		return;
	ptx_index_free(source->index);
	free(source->made);
	free(source->bytes);
	free(source);
}

int sd_source_expand(struct sd_source *source, unsigned int capability, bool keep, struct ptx_log *log)
{
	if (source->text)
		return 0;
	int result = sd_image_text(source->bytes, source->size, capability, &source->text, &source->length, &source->made, log);

	if (result < 0)
		return result;
	source->length = strnlen(source->text, source->length);
	if (source->made && !keep) {
		free(source->bytes);
		source->bytes = NULL;
	}
	return 0;
}
