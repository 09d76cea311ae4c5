/* SPDX-License-Identifier: Apache-2.0 */
/* special.c: calls whose payload has a form of its own (clib/call/payload.h). */
#include "special.h"

void *worker_next(struct reader *reader, size_t length)
{
	size_t padded = call_padded(length);
	uint8_t *at = reader->at;

	if (length > reader->left || padded > reader->left)
		return NULL;
	reader->at += padded;
	reader->left -= padded;
	return at;
}

uint64_t worker_real_of(unsigned int kind, uint64_t handle, unsigned int *wrong)
{
	uint64_t real = 0;

	if (!worker_real(kind, handle, &real) && !*wrong)
		*wrong = call_wrong_handle(kind);
	return real;
}

bool worker_is_capturing(uint64_t stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return DRIVER(cuStreamIsCapturing)((CUstream)(uintptr_t)stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void worker_array_of(CUmemorytype type, CUarray *array, unsigned int *wrong)
{
	*array = type == CU_MEMORYTYPE_ARRAY ? (CUarray)(uintptr_t)worker_real_of(KIND_CUarray, (uint64_t)(uintptr_t)*array, wrong) : NULL;
}

/* Launches. */

static uint64_t launch(struct worker_call *call, struct reader *reader)
{
	const struct call_launch *want = worker_next(reader, sizeof(*want));
	unsigned int wrong = 0;

	if (!want || want->bytes > PARAMETER_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	void *block = worker_next(reader, want->bytes);
	CUlaunchAttribute *attributes = want->attributes ? worker_next(reader, want->attributes * sizeof(*attributes)) : NULL;
	CUfunction function = (CUfunction)(uintptr_t)worker_real_of(KIND_CUfunction, want->function, &wrong);
	CUstream stream = (CUstream)(uintptr_t)worker_real_of(KIND_CUstream, want->stream, &wrong);
	size_t bytes = want->bytes;
	void *packed[] = CALL_EXTRA(block, &bytes);
	void **extra = want->given ? packed : NULL;
	const uint32_t *g = want->grid, *b = want->block;

	if (wrong)
		return wrong;
	if (!block || (want->attributes && !attributes))
		return CUDA_ERROR_INVALID_VALUE;
	if (call->number == CALL_cuLaunchKernel) {
		__typeof__(&cuLaunchKernel) go = (__typeof__(&cuLaunchKernel))worker_function(call->number, call->twin);

		return go(function, g[0], g[1], g[2], b[0], b[1], b[2], want->shared, stream, NULL, extra);
	}
	/* a cooperative launch takes no packed block; the general one does, with the attribute */
	CUlaunchAttribute cooperative = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = { .cooperative = 1 } };
	const CUlaunchConfig config = {
		.gridDimX = g[0], .gridDimY = g[1], .gridDimZ = g[2],
		.blockDimX = b[0], .blockDimY = b[1], .blockDimZ = b[2],
		.sharedMemBytes = want->shared,
		.hStream = stream,
		.attrs = call->number == CALL_cuLaunchKernelEx ? attributes : &cooperative,
		.numAttrs = call->number == CALL_cuLaunchKernelEx ? want->attributes : 1,
	};
	__typeof__(&cuLaunchKernelEx) go = (__typeof__(&cuLaunchKernelEx))worker_function(CALL_cuLaunchKernelEx, call->twin);

	return go ? go(&config, function, NULL, extra) : CUDA_ERROR_NOT_SUPPORTED;
}

/* Addresses. */

/* A handle among what is told of an address is a number over there. */
static void number_handles(const CUpointer_attribute *attributes, unsigned int count, uint8_t *told)
{
	for (unsigned int i = 0; i < count; i++) {
		unsigned int kind = attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT	      ? KIND_CUcontext
				    : attributes[i] == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ? KIND_CUmemoryPool
											  : KIND_NONE;
		uint64_t word;

		if (!kind)
			continue;
		memcpy(&word, told + i * POINTER_BYTES, sizeof(word));
		word = worker_handle(kind, word);
		memcpy(told + i * POINTER_BYTES, &word, sizeof(word));
	}
}

static uint64_t pointer(struct worker_call *call, struct reader *reader)
{
	const struct call_pointer *want = worker_next(reader, sizeof(*want));
	uint64_t told[POINTER_ATTRIBUTES * POINTER_BYTES / sizeof(uint64_t)] = { 0 };
	CUpointer_attribute *attributes = want && want->count <= POINTER_ATTRIBUTES ? worker_next(reader, want->count * sizeof(*attributes)) : NULL;
	void *data[POINTER_ATTRIBUTES];
	CUresult result;

	if (!want || !attributes)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < want->count; i++)
		data[i] = (uint8_t *)told + i * POINTER_BYTES;
	switch (call->number) {
	case CALL_cuPointerSetAttribute: {
		const void *value = worker_next(reader, sizeof(uint64_t));

		return value ? DRIVER(cuPointerSetAttribute)(value, (CUpointer_attribute)want->attribute, want->address) : CUDA_ERROR_INVALID_VALUE;
	}
	case CALL_cuPointerGetAttribute:
		if (want->count != 1)
			return CUDA_ERROR_INVALID_VALUE;
		result = DRIVER(cuPointerGetAttribute)(told, attributes[0], want->address);
		break;
	default:
		result = DRIVER(cuPointerGetAttributes)(want->count, attributes, data, want->address);
		break;
	}
	if (result == CUDA_SUCCESS) {
		number_handles(attributes, want->count, (uint8_t *)told);
		worker_add(call->lane, told, want->count * POINTER_BYTES);
	}
	return result;
}

/* The rest. */

static uint64_t occupancy(struct worker_call *call, struct reader *reader)
{
	const struct call_occupancy *want = worker_next(reader, sizeof(*want));
	unsigned int wrong = 0;
	int numbers[2] = { 0 };

	if (!want)
		return CUDA_ERROR_INVALID_VALUE;
	CUfunction function = (CUfunction)(uintptr_t)worker_real_of(KIND_CUfunction, want->function, &wrong);
	CUresult result = wrong ? wrong
				: DRIVER(cuOccupancyMaxPotentialBlockSizeWithFlags)(&numbers[0], &numbers[1], function, NULL, want->shared,
										   (int)want->limit, want->flags);

	if (result == CUDA_SUCCESS)
		worker_add(call->lane, numbers, sizeof(numbers));
	return result;
}

static uint64_t clusters(struct worker_call *call, struct reader *reader)
{
	const struct call_launch *want = worker_next(reader, sizeof(*want));
	CUlaunchAttribute *attributes = want && want->attributes <= JIT_OPTIONS ? worker_next(reader, want->attributes * sizeof(*attributes)) : NULL;
	unsigned int wrong = 0;
	int numbers[2] = { 0 };

	if (!want || !attributes)
		return CUDA_ERROR_INVALID_VALUE;
	CUfunction function = (CUfunction)(uintptr_t)worker_real_of(KIND_CUfunction, want->function, &wrong);
	const CUlaunchConfig config = {
		.gridDimX = want->grid[0], .gridDimY = want->grid[1], .gridDimZ = want->grid[2],
		.blockDimX = want->block[0], .blockDimY = want->block[1], .blockDimZ = want->block[2],
		.sharedMemBytes = want->shared,
		.hStream = (CUstream)(uintptr_t)worker_real_of(KIND_CUstream, want->stream, &wrong),
		.attrs = want->attributes ? attributes : NULL,
		.numAttrs = want->attributes,
	};

	if (wrong)
		return wrong;
	CUresult result = call->number == CALL_cuOccupancyMaxActiveClusters
				  ? DRIVER(cuOccupancyMaxActiveClusters)(&numbers[0], function, &config)
				  : DRIVER(cuOccupancyMaxPotentialClusterSize)(&numbers[0], function, &config);

	if (result == CUDA_SUCCESS)
		worker_add(call->lane, numbers, sizeof(numbers));
	return result;
}

static uint64_t set_floats(struct worker_call *call, struct reader *reader)
{
	const struct call_texture_floats *want = worker_next(reader, sizeof(*want));
	unsigned int wrong = 0;
	CUtexref texture = (CUtexref)(uintptr_t)(want ? worker_real_of(KIND_CUtexref, want->texture, &wrong) : 0);

	if (!want || wrong)
		return wrong ? wrong : CUDA_ERROR_INVALID_VALUE;
	return call->number == CALL_cuTexRefSetMipmapLevelBias ? DRIVER(cuTexRefSetMipmapLevelBias)(texture, want->first)
							       : DRIVER(cuTexRefSetMipmapLevelClamp)(texture, want->first, want->second);
}

static uint64_t call_back(struct worker_call *call, struct reader *reader)
{
	const struct call_callback *want = worker_next(reader, sizeof(*want));
	unsigned int wrong = 0;
	uint64_t stream = want ? worker_real_of(KIND_CUstream, want->stream, &wrong) : 0;

	if (!want || wrong)
		return wrong ? wrong : CUDA_ERROR_INVALID_VALUE;
	/* a graph would call it back each time it runs */
	return worker_is_capturing(stream) ? (uint64_t)CUDA_ERROR_NOT_SUPPORTED : worker_callback(call, want, stream);
}

static uint64_t open_shared(struct worker_call *call, struct reader *reader)
{
	const struct call_opened *want = worker_next(reader, sizeof(*want));
	CUipcMemHandle memory;
	CUipcEventHandle shared;
	CUdeviceptr address = 0;
	CUevent event = NULL;
	CUresult result;

	if (!want)
		return CUDA_ERROR_INVALID_VALUE;
	if (call->number == CALL_cuIpcOpenEventHandle) {
		memcpy(&shared, want->handle, sizeof(shared));
		result = DRIVER(cuIpcOpenEventHandle)(&event, shared);
		address = worker_handle(KIND_CUevent, (uint64_t)(uintptr_t)event);
	} else {
		memcpy(&memory, want->handle, sizeof(memory));
		result = DRIVER(cuIpcOpenMemHandle_v2)(&address, memory, (unsigned int)want->flags);
	}
	if (result == CUDA_SUCCESS)
		worker_add(call->lane, &address, sizeof(address));
	return result;
}

bool worker_special(struct worker_call *call, uint64_t *result)
{
	struct reader reader = { call->payload, call->length };
	uint64_t (*make)(struct worker_call *call, struct reader *reader);

	switch (call->number) {
	case CALL_cuLaunchKernel:
	case CALL_cuLaunchCooperativeKernel:
	case CALL_cuLaunchKernelEx:
		make = launch;
		break;
	case CALL_cuModuleGetFunction:
	case CALL_cuLibraryGetKernel:
	case CALL_cuKernelGetFunction:
		make = worker_find;
		break;
	case CALL_cuModuleEnumerateFunctions:
	case CALL_cuLibraryEnumerateKernels:
		make = worker_enumerate;
		break;
	case CALL_cuMemcpyHtoD_v2:
	case CALL_cuMemcpyHtoDAsync_v2:
	case CALL_cuMemcpyHtoA_v2:
	case CALL_cuMemcpyHtoAAsync_v2:
		make = worker_upload;
		break;
	case CALL_cuMemcpyDtoH_v2:
	case CALL_cuMemcpyDtoHAsync_v2:
	case CALL_cuMemcpyAtoH_v2:
	case CALL_cuMemcpyAtoHAsync_v2:
		make = worker_download;
		break;
	case CALL_cuMemcpy3D_v2:
	case CALL_cuMemcpy3DAsync_v2:
		make = worker_copy_box;
		break;
	case CALL_cuModuleLoadDataEx:
	case CALL_cuLibraryLoadData:
	case CALL_cuLinkAddData_v2:
		make = worker_load;
		break;
	case CALL_cuLinkCreate_v2:
		make = worker_create_link;
		break;
	case CALL_cuLinkComplete:
		make = worker_complete_link;
		break;
	case CALL_cuPointerGetAttribute:
	case CALL_cuPointerGetAttributes:
	case CALL_cuPointerSetAttribute:
		make = pointer;
		break;
	case CALL_cuGraphAddKernelNode:
	case CALL_cuGraphAddKernelNode_v2:
	case CALL_cuGraphKernelNodeSetParams:
	case CALL_cuGraphKernelNodeSetParams_v2:
	case CALL_cuGraphExecKernelNodeSetParams:
	case CALL_cuGraphExecKernelNodeSetParams_v2:
		make = worker_kernel_node;
		break;
	case CALL_cuGraphAddMemcpyNode:
	case CALL_cuGraphMemcpyNodeSetParams:
	case CALL_cuGraphExecMemcpyNodeSetParams:
		make = worker_copy_node;
		break;
	case CALL_cuGraphAddMemAllocNode:
		make = worker_allocation_node;
		break;
	case CALL_cuGraphAddBatchMemOpNode:
	case CALL_cuGraphBatchMemOpNodeSetParams:
	case CALL_cuGraphExecBatchMemOpNodeSetParams:
		make = worker_batch_node;
		break;
	case CALL_cuStreamGetCaptureInfo_v2:
	case CALL_cuStreamGetCaptureInfo_v3:
		make = worker_capture_info;
		break;
	case CALL_cuOccupancyMaxPotentialBlockSizeWithFlags:
		make = occupancy;
		break;
	case CALL_cuOccupancyMaxActiveClusters:
	case CALL_cuOccupancyMaxPotentialClusterSize:
		make = clusters;
		break;
	case CALL_cuTexRefSetMipmapLevelBias:
	case CALL_cuTexRefSetMipmapLevelClamp:
		make = set_floats;
		break;
	case CALL_cuIpcOpenMemHandle_v2:
	case CALL_cuIpcOpenEventHandle:
		make = open_shared;
		break;
	case CALL_cuLaunchHostFunc:
	case CALL_cuStreamAddCallback:
		make = call_back;
		break;
	default:
		return false;
	}
	worker_begin(call->lane, 0);
	*result = worker_function(call->number, call->twin) ? make(call, &reader) : (uint64_t)CUDA_ERROR_NOT_SUPPORTED;
	worker_set_result(call->lane, *result);
	return true;
}
