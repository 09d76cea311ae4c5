/* SPDX-License-Identifier: Apache-2.0 */
/*
 * function.c: kernels: what the worker says of their parameters, and their launches, which
 * nobody waits for.
 */
#include "remote.h"

#include <pthread.h>
#include <stdlib.h>

#include "payload.h"

/* By the place in a handle. Tables grow by being replaced, rows are added and replaced, and
 * none of them is freed: launches look without a lock. */
struct table {
	uint32_t room;
	struct remote_function *at[];
};

static struct {
	pthread_mutex_t lock; /* of who changes it */
	struct table *table;
} functions = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint32_t place_of(uint64_t handle)
{
	return (uint32_t)handle;
}

struct remote_function *remote_function(uint64_t handle)
{
	const struct table *table = __atomic_load_n(&functions.table, __ATOMIC_ACQUIRE);
	uint32_t place = place_of(handle);
	struct remote_function *function = table && place < table->room ? __atomic_load_n(&table->at[place], __ATOMIC_ACQUIRE) : NULL;

	return function && function->handle == handle ? function : NULL;
}

/* A table with room for a place; the lock is held. NULL without memory. */
static struct table *room_for(uint32_t place)
{
	struct table *old = functions.table;

	if (old && place < old->room)
		return old;
	if (place >= CALL_FIRST_PLACE + CALL_HANDLES)
		return NULL;
	uint32_t room = 2 * place + 64;
	struct table *table = calloc(1, sizeof(*table) + room * sizeof(table->at[0]));

	if (!table)
		return NULL;
	table->room = room;
	if (old)
		memcpy(table->at, old->at, old->room * sizeof(old->at[0]));
	__atomic_store_n(&functions.table, table, __ATOMIC_RELEASE);
	return table;
}

static void keep(struct remote_function *function)
{
	uint32_t place = place_of(function->handle);

	pthread_mutex_lock(&functions.lock);
	struct table *table = room_for(place);

	if (table && (!table->at[place] || table->at[place]->handle != function->handle))
		__atomic_store_n(&table->at[place], function, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&functions.lock);
}

/* Takes in what a reply says of a function; returns its handle, or 0. */
static uint64_t learn(struct remote_lane *lane, size_t *at)
{
	size_t length = 0;
	const uint8_t *bytes = remote_next(lane, at, &length);
	struct call_function told;

	if (!bytes || length < sizeof(told))
		return 0;
	memcpy(&told, bytes, sizeof(told));
	size_t parameters = told.parameters;

	if (parameters > PARAMETERS || length - sizeof(told) < parameters * sizeof(struct call_parameter) + told.name ||
	    told.name > NAME_BYTES || told.bytes > PARAMETER_BYTES)
		return 0;
	if (remote_function(told.handle))
		return told.handle;
	struct remote_function *function = calloc(1, sizeof(*function) + parameters * sizeof(function->parameter[0]) + told.name + 1);

	if (!function)
		return 0;
	function->handle = told.handle;
	function->known = told.known;
	function->parameters = told.parameters;
	function->bytes = told.bytes;
	function->threads = told.threads;
	function->shared = told.shared;
	for (size_t i = 0; i < parameters; i++) {
		struct call_parameter parameter;

		memcpy(&parameter, bytes + sizeof(told) + i * sizeof(parameter), sizeof(parameter));
		if (parameter.offset > told.bytes || parameter.size > told.bytes - parameter.offset) {
			free(function);
			return 0;
		}
		function->parameter[i].offset = parameter.offset;
		function->parameter[i].size = parameter.size;
	}
	char *name = (char *)&function->parameter[parameters];

	memcpy(name, bytes + sizeof(told) + parameters * sizeof(struct call_parameter), told.name);
	function->name = name;
	keep(function);
	return told.handle;
}

/* Finding functions. */

/* A handle into *found, after success only. */
static CUresult find(unsigned int number, void *found, uint64_t of, const char *name)
{
	struct remote_lane *lane = remote_lane();
	struct call_find want = { .of = of, .bytes = name ? strlen(name) + 1 : 0 };
	size_t at = sizeof(uint64_t);

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (want.bytes > NAME_BYTES)
		return CUDA_ERROR_NOT_FOUND;
	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)) || !remote_put(&lane->out, name, want.bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = (CUresult)remote_finish(lane, number);

	if (result != CUDA_SUCCESS)
		return result;
	uint64_t handle = learn(lane, &at);

	if (!handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(found, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	if (!hfunc || !name)
		return CUDA_ERROR_INVALID_VALUE;
	return find(CALL_cuModuleGetFunction, hfunc, WORD(hmod), name);
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	if (!pKernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	return find(CALL_cuLibraryGetKernel, pKernel, WORD(library), name);
}

EXPORT CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	if (!pFunc)
		return CUDA_ERROR_INVALID_VALUE;
	return find(CALL_cuKernelGetFunction, pFunc, WORD(kernel), NULL);
}

static CUresult enumerate(unsigned int number, uint64_t *found, unsigned int count, uint64_t of)
{
	struct remote_lane *lane = remote_lane();
	const struct call_enumerate want = { .of = of, .count = count };
	size_t at = sizeof(uint64_t);

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!found && count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = (CUresult)remote_finish(lane, number);

	for (unsigned int i = 0; result == CUDA_SUCCESS && i < count && at < lane->in.length; i++)
		found[i] = learn(lane, &at);
	return result;
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions_, unsigned int numFunctions, CUmodule mod)
{
	return enumerate(CALL_cuModuleEnumerateFunctions, (uint64_t *)(void *)functions_, numFunctions, WORD(mod));
}

EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	return enumerate(CALL_cuLibraryEnumerateKernels, (uint64_t *)(void *)kernels, numKernels, WORD(lib));
}

static CUresult name_of(const char **name, uint64_t handle)
{
	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	const struct remote_function *function = remote_function(handle);

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = function->name;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
	return name_of(name, WORD(hfunc));
}

EXPORT CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
	return name_of(name, WORD(hfunc));
}

static CUresult parameter_of(uint64_t handle, size_t index, size_t *offset, size_t *size)
{
	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	const struct remote_function *function = remote_function(handle);

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!offset || !function->known || index >= function->parameters)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = function->parameter[index].offset;
	if (size)
		*size = function->parameter[index].size;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	return parameter_of(WORD(func), paramIndex, paramOffset, paramSize);
}

EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	return parameter_of(WORD(kernel), paramIndex, paramOffset, paramSize);
}

/* Launching. */

/* What a driver says at once of a launch that no GPU, or not this kernel, can run. */
static CUresult check(const struct call_launch *launch)
{
	const struct remote_function *function = remote_function(launch->function);
	const int *can = remote_facts.device[0].attribute;
	uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];

	for (int i = 0; i < 3; i++) {
		if (!launch->grid[i] || !launch->block[i] || launch->grid[i] > (uint32_t)can[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i] ||
		    launch->block[i] > (uint32_t)can[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i])
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (threads > (uint32_t)can[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
		return CUDA_ERROR_INVALID_VALUE;
	if (launch->stream > 2 && call_kind(launch->stream) != KIND_CUstream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!function || !function->threads)
		return CUDA_SUCCESS;
	uint32_t dynamic = __atomic_load_n(&function->dynamic, __ATOMIC_RELAXED);
	uint32_t most = (uint32_t)can[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK];

	if ((uint64_t)launch->shared + function->shared > (dynamic > most ? dynamic : most))
		return CUDA_ERROR_INVALID_VALUE;
	return threads > function->threads ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

/* More shared memory than usual has to be asked for. */
static void asked(uint64_t handle, CUfunction_attribute attribute, int value)
{
	struct remote_function *function = remote_function(handle);

	if (function && attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > 0)
		__atomic_store_n(&function->dynamic, (uint32_t)value, __ATOMIC_RELAXED);
}

EXPORT CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	const uint64_t values[] = { WORD(hfunc), WORD(attrib), WORD(value) };
	CUresult result = (CUresult)remote_call(CALL_cuFuncSetAttribute, 0, values);

	if (result == CUDA_SUCCESS)
		asked(values[0], attrib, value);
	return result;
}

/* What is asked for a kernel holds for its function, whose handle is another. */
EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
	const uint64_t values[] = { WORD(attrib), WORD(val), WORD(kernel), WORD(dev) };
	CUfunction function = NULL;
	CUresult result = (CUresult)remote_call(CALL_cuKernelSetAttribute, 0, values);

	if (result == CUDA_SUCCESS) {
		asked(values[2], attrib, val);
		if (cuKernelGetFunction(&function, kernel) == CUDA_SUCCESS)
			asked(WORD(function), attrib, val);
	}
	return result;
}

/* Parameters as the kernel has them in memory, from pointers to each. */
static CUresult pack(struct remote_bytes *out, const struct remote_function *function, void **parameters)
{
	if (!remote_room(out, call_padded(function->bytes)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint8_t *block = out->at + out->length;

	memset(block, 0, call_padded(function->bytes));
	for (uint32_t i = 0; i < function->parameters; i++) {
		if (!parameters[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(block + function->parameter[i].offset, parameters[i], function->parameter[i].size);
	}
	out->length += call_padded(function->bytes);
	return CUDA_SUCCESS;
}

/* What extra says: a block that is packed already. */
static CUresult read_extra(void **extra, const void **block, size_t *bytes)
{
	for (; WORD(extra[0]) != EXTRA_END; extra += 2) {
		if (WORD(extra[0]) == EXTRA_BUFFER)
			*block = extra[1];
		else if (WORD(extra[0]) == EXTRA_SIZE)
			*bytes = *(const size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	return *bytes > PARAMETER_BYTES || (*bytes && !*block) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Puts a launch's parameters behind its structure, which it completes. */
CUresult remote_put_parameters(struct remote_lane *lane, size_t place, struct call_launch *launch, void **parameters, void **extra)
{
	const struct remote_function *function = remote_function(launch->function);
	const void *block = NULL;
	size_t bytes = 0;
	CUresult result = CUDA_SUCCESS;

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (parameters && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (parameters && !function->known)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (extra)
		result = read_extra(extra, &block, &bytes);
	else if (parameters)
		result = pack(&lane->out, function, parameters);
	else if (function->known && function->parameters)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && extra)
		result = (function->known && bytes > function->bytes) ? CUDA_ERROR_INVALID_VALUE
			 : remote_put(&lane->out, block, bytes)	       ? CUDA_SUCCESS
								       : CUDA_ERROR_OUT_OF_MEMORY;
	launch->given = parameters || extra;
	launch->bytes = extra ? (uint32_t)bytes : parameters ? function->bytes : 0;
	memcpy(lane->out.at + place, launch, sizeof(*launch));
	return result;
}

static CUresult launch(unsigned int number, struct call_launch *want, void **parameters, void **extra,
		       const CUlaunchAttribute *attributes)
{
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);
	size_t place = sizeof(struct divvy_remote_frame);

	if (result != CUDA_SUCCESS)
		return result;
	result = check(want);
	if (!remote_begin(lane) || !remote_put(&lane->out, want, sizeof(*want)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult given = remote_put_parameters(lane, place, want, parameters, extra);

	if (given != CUDA_SUCCESS)
		return given;
	if (result != CUDA_SUCCESS)
		return result;
	if (want->attributes && !remote_put(&lane->out, attributes, want->attributes * sizeof(*attributes)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return (CUresult)remote_finish_one_way(lane, number);
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
			       unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
			       unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
	struct call_launch want = {
		.function = WORD(f),
		.stream = WORD(hStream),
		.grid = { gridDimX, gridDimY, gridDimZ },
		.block = { blockDimX, blockDimY, blockDimZ },
		.shared = sharedMemBytes,
	};

	return launch(CALL_cuLaunchKernel, &want, kernelParams, extra, NULL);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
					  unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
					  unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)
{
	struct call_launch want = {
		.function = WORD(f),
		.stream = WORD(hStream),
		.grid = { gridDimX, gridDimY, gridDimZ },
		.block = { blockDimX, blockDimY, blockDimZ },
		.shared = sharedMemBytes,
	};

	return launch(CALL_cuLaunchCooperativeKernel, &want, kernelParams, NULL, NULL);
}

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices, unsigned int flags)
{
	enum { FLAGS = 3 };

	if (!launchParamsList || !numDevices || numDevices > remote_facts.devices || flags > FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < numDevices; i++) {
		const CUDA_LAUNCH_PARAMS *one = &launchParamsList[i];
		CUresult result = cuLaunchCooperativeKernel(one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX,
							    one->blockDimY, one->blockDimZ, one->sharedMemBytes, one->hStream, one->kernelParams);

		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

/* Attributes that hold handles name an event each; one of those would have to be found
 * by the attribute's number, which newer headers add to: they are refused. */
static bool carried(const CUlaunchAttribute *attribute)
{
	switch ((int)attribute->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return true;
	default:
		return false;
	}
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	enum { MOST_ATTRIBUTES = 64 };

	if (!config || (config->numAttrs && !config->attrs) || config->numAttrs > MOST_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		if (!carried(&config->attrs[i]))
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	struct call_launch want = {
		.function = WORD(f),
		.stream = WORD(config->hStream),
		.grid = { config->gridDimX, config->gridDimY, config->gridDimZ },
		.block = { config->blockDimX, config->blockDimY, config->blockDimZ },
		.shared = config->sharedMemBytes,
		.attributes = config->numAttrs,
	};

	return launch(CALL_cuLaunchKernelEx, &want, kernelParams, extra, config->attrs);
}
