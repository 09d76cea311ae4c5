/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c: cuLink*. Texts of PTX are put one after the other and linked when the
 * result is loaded and, to tell errors where a program looks for them, when the
 * link is completed. Programs that only hand it on see no difference. What the
 * options say of registers follows the texts as pragmas.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/enter.h"
#include "jit.h"
#include "module.h"

struct link {
	struct sd_object object;
	const struct sd_card *card;
	struct sd_jit jit; /* of the caller of cuLinkCreate: valid until the link is destroyed */
	bool wished; /* its wish is at the end of the text */
	char *text;
	size_t size;
};

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!stateOut)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct link *link = sd_object_new(SD_LINK, sizeof(*link), NULL);

	if (!link)
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	link->card = context->card;
	link->jit = sd_jit_read(numOptions, options, optionValues);
	*stateOut = (CUlinkState)link;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuLinkCreate(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

/* Reads a text by itself, for its errors. */
static CUresult check(const struct link *link, const char *text, size_t length, bool whole, struct ptx_log *log)
{
	struct ptx_module *module = ptx_module_new();

	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	int result = ptx_parse(module, text, length, sd_ptx_version(), log);

	if (result == 0 && !sd_ptx_fits(module->target, module->only, sd_capability(link->card)))
		result = ptx_fail(log, 0, "PTX for sm_%u%.1s cannot be run by this card, which is sm_%u", module->target,
				  &module->only, sd_capability(link->card));
	else if (result == 0 && whole)
		result = ptx_link(module, log);
	ptx_module_free(module);
	return sd_image_error(result < 0 && log->version ? -ENOTSUP : result);
}

static CUresult append(struct link *link, const char *text, size_t length)
{
	char *more = link->size + length <= SD_IMAGE_MOST ? realloc(link->text, link->size + length + 2) : NULL;

	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(more + link->size, text, length);
	link->size += length;
	more[link->size++] = '\n';
	more[link->size] = '\0';
	link->text = more;
	return CUDA_SUCCESS;
}

static CUresult append_wish(struct link *link)
{
	const struct sd_register_wish *wish = &link->jit.wish;
	char text[128];

	if (link->wished || (!wish->most && !wish->threads))
		return CUDA_SUCCESS;
	int length = snprintf(text, sizeof(text), ".pragma \"divvy_max_registers %u\", \"divvy_threads_per_block %u\";",
			      wish->most, wish->threads);

	link->wished = true;
	return append(link, text, (size_t)length);
}

static CUresult add(struct link *link, CUjitInputType type, const void *data, size_t size, struct ptx_log *log)
{
	const char *text = NULL;
	unsigned char *made = NULL;
	size_t length = 0;

	if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY && type != CU_JIT_INPUT_CUBIN)
		return type < CU_JIT_NUM_INPUT_TYPES ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	if (size < sizeof(uint32_t)) {
		ptx_fail(log, 0, "this input has %zu bytes: it is no image", size);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	size = sd_image_size(data, size, log);
	if (!size)
		return CUDA_ERROR_INVALID_IMAGE;
	CUresult result = sd_image_error(
		sd_image_text(data, size, sd_capability(link->card), &text, &length, &made, log));

	if (result == CUDA_SUCCESS)
		result = check(link, text, length, false, log);
	if (result == CUDA_SUCCESS)
		result = append(link, text, strnlen(text, length));
	free(made);
	return result;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
			  unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	struct sd_jit jit = sd_jit_read(numOptions, options, optionValues);
	struct ptx_log log = { 0 };
	CUresult result = sd_enter();

	(void)name;
	if (result != CUDA_SUCCESS)
		return result;
	struct link *link = sd_object_get(state, SD_LINK);

	if (!link)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!data || !size)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = add(link, type, data, size, &log);
	sd_jit_tell(&jit, log.text);
	if (result != CUDA_SUCCESS)
		sd_jit_tell(&link->jit, log.text);
	return sd_leave(result);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
		       unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
			  CUjit_option *options, void **optionValues)
{
	unsigned char *bytes = NULL;
	size_t size = 0;
	CUresult result = sd_file_read(path, &bytes, &size);

	if (result != CUDA_SUCCESS)
		return result;
	result = cuLinkAddData_v2(state, type, bytes, size, path, numOptions, options, optionValues);
	free(bytes);
	return result;
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
		       CUjit_option *options, void **optionValues)
{
	return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct link *link = sd_object_get(state, SD_LINK);

	if (!link)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!cubinOut || !link->text)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	struct ptx_log log = { 0 };

	result = append_wish(link);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	result = check(link, link->text, link->size, true, &log);
	sd_jit_tell(&link->jit, log.text);
	if (result != CUDA_SUCCESS) /* as drivers call what their linker refuses */
		return sd_leave(CUDA_ERROR_UNKNOWN);
	*cubinOut = link->text;
	if (sizeOut)
		*sizeOut = link->size + 1; /* with its NUL: who copies it can load the copy */
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuLinkDestroy(CUlinkState state)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct link *link = sd_object_get(state, SD_LINK);

	if (!link)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	free(link->text);
	sd_object_free(link);
	return sd_leave(CUDA_SUCCESS);
}
