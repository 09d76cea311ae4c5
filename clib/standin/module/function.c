/* SPDX-License-Identifier: Apache-2.0 */
/* function.c: functions and kernels, and their attributes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/enter.h"
#include "module.h"

CUresult sd_function_new(struct sd_image *image, const char *name, struct sd_object *owner,
			 struct sd_function **out)
{
	struct sd_entrypoint *entry = sd_image_entry(image, name);

	if (!entry)
		return CUDA_ERROR_NOT_FOUND;
	char *copy = strdup(name);
	struct sd_function *function = copy ? sd_object_new(SD_FUNCTION, sizeof(*function), owner) : NULL;

	if (!function) {
		free(copy);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	function->name = copy;
	function->block[0] = function->block[1] = function->block[2] = 1;
	function->carveout = -1;
	function->entry = entry;
	*out = function;
	return CUDA_SUCCESS;
}

/* A kernel's variables in memory of the card. */
struct places {
	struct sd_module *module;
	CUresult result;
};

static int place(void *who, struct ptx_module *tree)
{
	struct places *places = who;

	places->result = sd_globals_place(places->module, tree);
	if (places->result == CUDA_SUCCESS)
		places->result = sd_globals_fill(tree);
	return places->result == CUDA_SUCCESS ? 0 : -ENOMEM;
}

CUresult sd_function_ready(struct sd_function *function)
{
	struct sd_entrypoint *entry = function->entry;
	struct places places = { .module = function->module };
	struct ptx_log log = { 0 };

	if (function->ready)
		return CUDA_SUCCESS;
	int result = sd_image_load(function->module ? &function->module->image : &function->library->image, entry,
				   function->module ? place : NULL, &places, &log);

	if (places.result != CUDA_SUCCESS)
		return places.result;
	if (result < 0) {
		if (log.text[0] && !entry->told)
			dprintf(STDERR_FILENO, "divvy: simulated GPU: kernel '%s' cannot be run: %s\n", function->name, log.text);
		entry->told = true;
		return sd_image_error(result);
	}
	function->ready = true;
	function->parameters = entry->parameters;
	function->parametercount = entry->count;
	function->parameterbytes = entry->bytes;
	return CUDA_SUCCESS;
}

void sd_function_end(struct sd_function *function)
{
	free(function->name);
	free(function->oldparameters);
	sd_object_free(function);
}

static struct sd_card *card_of(const struct sd_function *function)
{
	return function->module ? function->module->context->card : sd_card(0);
}

static CUresult attribute(struct sd_function *function, const struct sd_card *card, CUfunction_attribute which,
			  int *value)
{
	CUresult ready = sd_function_ready(function);

	if (ready != CUDA_SUCCESS)
		return ready;
	const struct sd_image *image = function->module ? &function->module->image : &function->library->image;
	const struct sd_entrypoint *entry = function->entry;
	int binary = (int)sd_capability(card);

	switch (which) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)entry->maxthreads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)entry->shared;
		break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = (int)entry->constant;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = (int)entry->local;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = (int)entry->registers;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value = (int)image->target;
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = binary;
		break;
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
		*value = 0;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = function->maxdynamic ? function->maxdynamic : 49152 - (int)entry->shared;
		if (*value < 0)
			*value = 0;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = function->carveout;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*value = function->clusterneeded;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*value = function->cluster[which - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*value = function->clusterlarge;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*value = function->clusterpolicy;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult set_attribute(struct sd_function *function, const struct sd_card *card, CUfunction_attribute which,
			      int value)
{
	CUresult ready = sd_function_ready(function);

	if (ready != CUDA_SUCCESS)
		return ready;
	int fixed = (int)function->entry->shared;

	switch (which) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > (int)card->facts->sharedperblockoptin - fixed)
			return CUDA_ERROR_INVALID_VALUE;
		function->maxdynamic = value;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		function->carveout = value;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		if (value < 0)
			return CUDA_ERROR_INVALID_VALUE;
		function->cluster[which - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		function->clusterlarge = value != 0;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		function->clusterpolicy = value;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* The function behind a handle, with the lock taken; unlocked unless it is found. */
static CUresult enter(const void *handle, struct sd_function **function)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*function = sd_object_get(handle, SD_FUNCTION);
	return *function ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	return sd_leave(pi ? attribute(function, card_of(function), attrib, pi) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	return result == CUDA_SUCCESS ? sd_leave(set_attribute(function, card_of(function), attrib, value)) : result;
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
	struct sd_function *function = NULL;
	CUresult result = enter(kernel, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_card(dev))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	return sd_leave(pi ? attribute(function, sd_card(dev), attrib, pi) : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
	struct sd_function *function = NULL;
	CUresult result = enter(kernel, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_card(dev))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	return sd_leave(set_attribute(function, sd_card(dev), attrib, val));
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	function->cache = config;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	bool known = sd_card(dev) != NULL;

	sd_unlock();
	return known ? cuFuncSetCacheConfig((CUfunction)(void *)kernel, config) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	function->banks = config;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!hmod || !function->module)
		return sd_leave(hmod ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
	*hmod = (CUmodule)function->module;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
	struct sd_function *function = NULL;
	CUresult result = enter(hfunc, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!name)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*name = function->name;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
	return cuFuncGetName(name, (CUfunction)(void *)hfunc);
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	struct sd_function *function = NULL;
	CUresult result = enter(func, &function);

	if (result != CUDA_SUCCESS)
		return result;
	result = sd_function_ready(function);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	if (!paramOffset || paramIndex >= function->parametercount)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*paramOffset = function->parameters[paramIndex].offset;
	if (paramSize)
		*paramSize = function->parameters[paramIndex].bytes;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	return cuFuncGetParamInfo((CUfunction)(void *)kernel, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	struct sd_function *found = NULL;
	CUresult result = enter(function, &found);

	if (result != CUDA_SUCCESS)
		return result;
	if (!state)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*state = found->ready ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuFuncLoad(CUfunction function)
{
	struct sd_function *found = NULL;
	CUresult result = enter(function, &found);

	return result == CUDA_SUCCESS ? sd_leave(sd_function_ready(found)) : result;
}
