/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c: cuLink*. Only PTX can be linked; the result is the texts, one after
 * the other, which loads like any PTX. Programs that only hand it on to
 * cuModuleLoadData see no difference.
 */
#include <stdlib.h>
#include <string.h>

#include "module.h"

struct link {
	struct sd_object object;
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
	sd_jit_logs(numOptions, options, optionValues, NULL);
	*stateOut = (CUlinkState)link;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuLinkCreate(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
			  unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	struct sd_image image;
	CUresult result = sd_enter();

	(void)name;
	if (result != CUDA_SUCCESS)
		return result;
	struct link *link = sd_object_get(state, SD_LINK);

	if (!link)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!data || !size)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (type != CU_JIT_INPUT_PTX)
		return sd_leave(type < CU_JIT_NUM_INPUT_TYPES ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
	result = sd_image_error(sd_image_read(data, size, sd_ptx_version(), &image));
	sd_jit_logs(numOptions, options, optionValues,
		    result == CUDA_ERROR_INVALID_PTX ? "the PTX text could not be read" : NULL);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	char *text = image.kind == SD_IMAGE_PTX ? realloc(link->text, link->size + image.size + 2) : NULL;

	if (text) {
		memcpy(text + link->size, image.bytes, image.size);
		link->size += image.size;
		text[link->size++] = '\n';
		text[link->size] = '\0';
		link->text = text;
	} else {
		result = image.kind == SD_IMAGE_PTX ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
	}
	sd_image_free(&image);
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
