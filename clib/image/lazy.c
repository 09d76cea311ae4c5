/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lazy.c: images whose kernels are read one at a time. Builds of llama.cpp have 6,700
 * kernels in 270 MB of text, and a program uses a few dozen of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "ptx/index.h"

static int list_kernels(struct sd_image *image)
{
	const struct ptx_index *index = image->source->index;
	uint32_t count = ptx_index_kernels(index);
	uint32_t constant = sd_constant_bytes(image->module);

	image->entries = calloc(count ? count : 1, sizeof(*image->entries));
	if (!image->entries)
		return -ENOMEM;
	for (; image->entrycount < count; image->entrycount++) {
		struct sd_entrypoint *entry = &image->entries[image->entrycount];
		uint32_t length = 0;
		const char *name = ptx_index_kernel(index, (uint32_t)image->entrycount, &length);

		entry->text = strndup(name, length);
		if (!entry->text)
			return -ENOMEM;
		entry->name = entry->text;
		entry->constant = constant;
	}
	return 0;
}

static int read_variables(struct sd_image *image, struct ptx_log *log)
{
	struct sd_source *source = image->source;
	int result = source->index ? 0 : ptx_index_make(source->text, source->length, &source->index);

	if (result == -ENOSYS) {
		image->lazy = false;
		return sd_image_parse(image, source->text, source->length, log);
	}
	if (result < 0)
		return result;
	image->module = ptx_module_new();
	if (!image->module)
		return -ENOMEM;
	result = ptx_index_parse(source->index, image->module, PTX_NONE, image->reading.maxversion, log);
	if (result == 0)
		result = ptx_link(image->module, log);
	if (result < 0)
		return log->version ? -ENOTSUP : result;
	if (image->module->wishedregisters || image->module->wishedthreads)
		image->wish = (struct sd_register_wish){ image->module->wishedregisters, image->module->wishedthreads };
	return list_kernels(image);
}

int sd_image_open(struct sd_image *image, struct ptx_log *log)
{
	if (image->failed || image->module || !image->lazy) {
		if (image->failed)
			ptx_fail(log, 0, "this image could not be read before");
		return image->failed;
	}
	int result = sd_source_expand(image->source, image->reading.capability, image->reading.mixed, log);

	if (result == 0)
		result = read_variables(image, log);
	if (result < 0) {
		for (size_t i = 0; i < image->entrycount; i++)
			free(image->entries[i].text);
		free(image->entries);
		ptx_module_free(image->module);
		image->entries = NULL;
		image->entrycount = 0;
		image->module = NULL;
		image->failed = result == -ENOMEM ? 0 : result; /* another time there may be some */
	}
	return result;
}

static const struct ptx_function *find(const struct ptx_module *tree, const char *name)
{
	for (uint32_t i = 0; i < tree->functioncount; i++) {
		if (tree->functions[i]->entry && strcmp(tree->functions[i]->name, name) == 0)
			return tree->functions[i];
	}
	return NULL;
}

static int load(struct sd_image *image, struct sd_entrypoint *entry, int (*place)(void *, struct ptx_module *), void *who,
		struct ptx_log *log)
{
	uint32_t number = (uint32_t)(entry - image->entries);
	int result;

	entry->tree = ptx_module_new();
	if (!entry->tree)
		return -ENOMEM;
	result = ptx_index_parse(image->source->index, entry->tree, number, image->reading.maxversion, log);
	if (result == 0)
		result = ptx_link(entry->tree, log);
	if (result == 0 && place)
		result = place(who, entry->tree);
	if (result == 0)
		result = ptx_compile(entry->tree, true, log, &entry->made);
	const struct ptx_function *function = result == 0 ? find(entry->tree, entry->name) : NULL;

	if (result == 0 && !function)
		result = -EBADMSG; /* the linker preferred another input's, which is none */
	if (result == 0)
		result = sd_entrypoint_enter(entry, function, entry->constant);
	if (result == 0)
		sd_entrypoint_compiled(entry, entry->made, &image->wish);
	return result;
}

int sd_image_load(struct sd_image *image, struct sd_entrypoint *entry, int (*place)(void *who, struct ptx_module *tree),
		  void *who, struct ptx_log *log)
{
	if (!entry->ready) {
		int result = load(image, entry, place, who, log);

		if (result == 0)
			return 0;
		ptx_code_free(entry->made);
		ptx_module_free(entry->tree);
		entry->made = NULL;
		entry->tree = NULL;
		if (result != -EBADMSG)
			return result; /* of memory: another time it may be there */
		entry->ready = true;
		entry->reason = strdup(log->text[0] ? log->text : "it makes no sense");
		entry->refused = entry->reason ? entry->reason : "it makes no sense";
		return result;
	}
	if (!entry->refused)
		return 0;
	return ptx_fail(log, 0, "%s", entry->refused);
}
