/* SPDX-License-Identifier: Apache-2.0 */
/* pointer.c: what an address is. Host memory is known here; the rest the driver is asked. */
#include "remote.h"

#include "payload.h"

/* How many bytes a program's variable for an attribute has. */
static size_t bytes_of(unsigned int attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return 8;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return 16;
	default:
		return 4;
	}
}

/* Of host memory that this library pinned, or would have. */
static CUresult of_host(void *data, unsigned int attribute, uint64_t address, uint64_t start, uint64_t bytes)
{
	struct remote_lane *lane = remote_lane();
	uint64_t word = 0;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		word = lane ? remote_current(lane) : 0;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		word = CU_MEMORYTYPE_HOST;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		word = address;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		word = start;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		word = bytes;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		word = 1;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: /* a kernel there cannot reach it */
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		break;
	}
	memcpy(data, &word, bytes_of(attribute));
	return CUDA_SUCCESS;
}

static CUresult ask(unsigned int number, unsigned int count, const CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	struct remote_lane *lane = remote_lane();
	const struct call_pointer want = { .address = ptr, .count = count };
	size_t at = sizeof(uint64_t), length = 0;

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)) ||
	    !remote_put(&lane->out, attributes, count * sizeof(*attributes)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = (CUresult)remote_finish(lane, number);
	const uint8_t *bytes = result == CUDA_SUCCESS ? remote_next(lane, &at, &length) : NULL;

	for (unsigned int i = 0; bytes && i < count && length >= (i + 1) * POINTER_BYTES; i++)
		memcpy(data[i], bytes + i * POINTER_BYTES, bytes_of((unsigned int)attributes[i]));
	return result;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	uint64_t start = 0, bytes = 0;

	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	if (remote_host_range(ptr, &start, &bytes))
		return of_host(data, (unsigned int)attribute, ptr, start, bytes);
	return ask(CALL_cuPointerGetAttribute, 1, &attribute, &data, ptr);
}

EXPORT CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
	uint64_t start = 0, bytes = 0;

	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!numAttributes || !attributes || !data || numAttributes > POINTER_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	if (!remote_host_range(ptr, &start, &bytes))
		return ask(CALL_cuPointerGetAttributes, numAttributes, attributes, data, ptr);
	for (unsigned int i = 0; i < numAttributes; i++) {
		if (of_host(data[i], (unsigned int)attributes[i], ptr, start, bytes) != CUDA_SUCCESS)
			memset(data[i], 0, bytes_of((unsigned int)attributes[i]));
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct remote_lane *lane = remote_lane();
	const struct call_pointer want = { .address = ptr, .attribute = (uint32_t)attribute };

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)) || !remote_put(&lane->out, value, bytes_of((unsigned int)attribute)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return (CUresult)remote_finish(lane, CALL_cuPointerSetAttribute);
}

/* What is not known here the driver is asked. */
bool remote_is_device(uint64_t address)
{
	unsigned int type = 0;

	switch (remote_place_of(address)) {
	case REMOTE_DEVICE:
		return true;
	case REMOTE_HOST:
		return false;
	default:
		return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
	}
}
