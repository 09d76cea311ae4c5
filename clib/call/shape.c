/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c: the table of calls, and what follows from it. */
#include "shape.h"

#include <string.h>

#include "cuda_abi.h"
#include "nvml_abi.h"

enum { MOST_OWN_BYTES = 65536, LONGEST_NAME = 64 };

enum {
#define REMOTE_TYPE(id, type) id,
#define REMOTE_VERSIONED(id, type) id,
#define REMOTE_PLACE(id, type, offset, kind)
#include "remote_types.inc"
#undef REMOTE_TYPE
#undef REMOTE_VERSIONED
#undef REMOTE_PLACE
};

/* A structure of NVML may begin with its own size and version. */
static const struct {
	uint32_t bytes;
	bool versioned;
} types[] = {
#define REMOTE_TYPE(id, type) [id] = { sizeof(type), false },
#define REMOTE_VERSIONED(id, type) [id] = { sizeof(type), true },
#define REMOTE_PLACE(id, type, offset, kind)
#include "remote_types.inc"
#undef REMOTE_TYPE
#undef REMOTE_VERSIONED
#undef REMOTE_PLACE
};

static const struct {
	uint16_t type;
	uint16_t offset;
	uint8_t kind;
} places[] = {
#define REMOTE_TYPE(id, type)
#define REMOTE_VERSIONED(id, type)
#define REMOTE_PLACE(id, type, offset, kind) { id, offset, kind },
#include "remote_types.inc"
#undef REMOTE_TYPE
#undef REMOTE_VERSIONED
#undef REMOTE_PLACE
};

static const struct call_shape shapes[CALL_NUMBERS] = {
#define REMOTE_CALL(name, number, oneway, arguments, ...) [number] = { 1, oneway, arguments, { __VA_ARGS__ } },
#include "remote_calls.inc"
#undef REMOTE_CALL
};

const struct call_shape *call_shape(unsigned int number)
{
	return number < CALL_NUMBERS && shapes[number].known ? &shapes[number] : NULL;
}

const char *call_name(unsigned int number)
{
	static const char names[CALL_NUMBERS][LONGEST_NAME] = {
#define REMOTE_NAME(name, number) [number] = #name,
#include "remote_names.inc"
#undef REMOTE_NAME
	};

	return number < CALL_NUMBERS && names[number][0] ? names[number] : "a call";
}

bool call_is_nvml(unsigned int number)
{
	return call_name(number)[0] == 'n';
}

size_t call_type_bytes(unsigned int type)
{
	return types[type].bytes;
}

/* The array or mipmapped array of a resource: which, its own type says. */
static int resource_handle(CUDA_RESOURCE_DESC *resource, int (*found)(void *, unsigned int, uint64_t *), void *context)
{
	uint64_t *handle = (uint64_t *)(void *)&resource->res;

	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return found(context, KIND_CUarray, handle);
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return found(context, KIND_CUmipmappedArray, handle);
	default:
		return 0;
	}
}

int call_each_handle(unsigned int type, void *bytes, size_t count,
		     int (*found)(void *context, unsigned int kind, uint64_t *handle), void *context)
{
	for (size_t place = 0; place < sizeof(places) / sizeof(places[0]); place++) {
		if (places[place].type != type)
			continue;
		for (size_t i = 0; i < count; i++) {
			char *element = (char *)bytes + i * types[type].bytes;
			int result = places[place].kind == KIND_RESOURCE
					     ? resource_handle((void *)element, found, context)
					     : found(context, places[place].kind, (void *)(element + places[place].offset));

			if (result)
				return result;
		}
	}
	return 0;
}

/* What the argument that counts points to. */
static uint64_t pointed(const struct call_argument *argument, const uint64_t *values)
{
	const void *at = (const void *)(uintptr_t)values[argument->by];
	uint64_t count = 0;

	if (at)
		memcpy(&count, at, argument->width);
	return count;
}

/* The size that a structure says of itself, in the low 24 bits of its first word. */
static uint64_t own_bytes(const struct call_argument *argument, uint64_t value)
{
	uint32_t version = 0;

	if (!value || argument->how != HOW_BOTH)
		return types[argument->type].bytes;
	memcpy(&version, (const void *)(uintptr_t)value, sizeof(version));
	version &= 0xffffff;
	return version >= sizeof(version) && version <= MOST_OWN_BYTES ? version : types[argument->type].bytes;
}

uint64_t call_bytes(const struct call_shape *shape, unsigned int i, const uint64_t *values)
{
	const struct call_argument *argument = &shape->argument[i];
	uint64_t count = 1;

	switch (argument->count) {
	case COUNT_BYTES:
		return argument->by;
	case COUNT_BY:
		count = values[argument->by];
		break;
	case COUNT_POINTED:
		count = pointed(argument, values);
		break;
	default:
		if (types[argument->type].versioned)
			return own_bytes(argument, values[i]);
		break;
	}
	return count > CALL_ELEMENTS ? CALL_NULL : count * types[argument->type].bytes;
}

unsigned int call_wrong_handle(unsigned int kind)
{
	switch (kind) {
	case KIND_CUcontext:
		return CUDA_ERROR_INVALID_CONTEXT;
	case KIND_nvmlComputeInstance_t:
	case KIND_nvmlDevice_t:
	case KIND_nvmlGpuInstance_t:
	case KIND_nvmlUnit_t:
		return NVML_ERROR_INVALID_ARGUMENT;
	case KIND_CUgraph:
	case KIND_CUgraphNode:
	case KIND_CUgraphExec:
	case KIND_CUmemoryPool:
	case KIND_CUmemGenericAllocationHandle:
		return CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_HANDLE;
	}
}
