/* SPDX-License-Identifier: Apache-2.0 */
/* error.c: names and texts of all results, of every generation. */
#include "cuda_abi.h"

#define ERRORS \
	ERROR(CUDA_SUCCESS, "no error") \
	ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument") \
	ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory") \
	ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error") \
	ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down") \
	ERROR(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled") \
	ERROR(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized") \
	ERROR(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started") \
	ERROR(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped") \
	ERROR(CUDA_ERROR_STUB_LIBRARY, "stub library") \
	ERROR(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "call requires newer driver") \
	ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "device unavailable") \
	ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected") \
	ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal") \
	ERROR(CUDA_ERROR_DEVICE_NOT_LICENSED, "device not licensed") \
	ERROR(CUDA_ERROR_INVALID_IMAGE, "the image is not one a kernel can be loaded from") \
	ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context") \
	ERROR(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current") \
	ERROR(CUDA_ERROR_MAP_FAILED, "map failed") \
	ERROR(CUDA_ERROR_UNMAP_FAILED, "unmap failed") \
	ERROR(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped") \
	ERROR(CUDA_ERROR_ALREADY_MAPPED, "already mapped") \
	ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no binary for GPU") \
	ERROR(CUDA_ERROR_ALREADY_ACQUIRED, "already acquired") \
	ERROR(CUDA_ERROR_NOT_MAPPED, "not mapped") \
	ERROR(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "not mapped as array") \
	ERROR(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "not mapped as pointer") \
	ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "ECC uncorrectable") \
	ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "unsupported limit") \
	ERROR(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "context already in use") \
	ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access unsupported") \
	ERROR(CUDA_ERROR_INVALID_PTX, "the PTX text is invalid") \
	ERROR(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid graphics context") \
	ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE, "NVLink uncorrectable") \
	ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "JIT compiler not found") \
	ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the PTX version is newer than the driver") \
	ERROR(CUDA_ERROR_JIT_COMPILATION_DISABLED, "JIT compilation disabled") \
	ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "unsupported execution affinity") \
	ERROR(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "unsupported device-side synchronization") \
	ERROR(CUDA_ERROR_CONTAINED, "contained") \
	ERROR(CUDA_ERROR_INVALID_SOURCE, "invalid source") \
	ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found") \
	ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found") \
	ERROR(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object init failed") \
	ERROR(CUDA_ERROR_OPERATING_SYSTEM, "operating system") \
	ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle") \
	ERROR(CUDA_ERROR_ILLEGAL_STATE, "illegal state") \
	ERROR(CUDA_ERROR_LOSSY_QUERY, "lossy query") \
	ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found") \
	ERROR(CUDA_ERROR_NOT_READY, "device not ready") \
	ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal address") \
	ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "launch out of resources") \
	ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "launch timeout") \
	ERROR(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch incompatible texturing") \
	ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access already enabled") \
	ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access not enabled") \
	ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "primary context active") \
	ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed") \
	ERROR(CUDA_ERROR_ASSERT, "assert") \
	ERROR(CUDA_ERROR_TOO_MANY_PEERS, "too many peers") \
	ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory already registered") \
	ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory not registered") \
	ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error") \
	ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction") \
	ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address") \
	ERROR(CUDA_ERROR_INVALID_ADDRESS_SPACE, "invalid address space") \
	ERROR(CUDA_ERROR_INVALID_PC, "invalid program counter") \
	ERROR(CUDA_ERROR_LAUNCH_FAILED, "launch failed") \
	ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "cooperative launch too large") \
	ERROR(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory leak") \
	ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted") \
	ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported") \
	ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet ready") \
	ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system driver mismatch") \
	ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "compat not supported on device") \
	ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED, "MPS connection failed") \
	ERROR(CUDA_ERROR_MPS_RPC_FAILURE, "MPS RPC failure") \
	ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY, "MPS server not ready") \
	ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "MPS max clients reached") \
	ERROR(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "MPS max connections reached") \
	ERROR(CUDA_ERROR_MPS_CLIENT_TERMINATED, "MPS client terminated") \
	ERROR(CUDA_ERROR_CDP_NOT_SUPPORTED, "CDP not supported") \
	ERROR(CUDA_ERROR_CDP_VERSION_MISMATCH, "CDP version mismatch") \
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "stream capture unsupported") \
	ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "stream capture invalidated") \
	ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "stream capture merge") \
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "stream capture unmatched") \
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "stream capture unjoined") \
	ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "stream capture isolation") \
	ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "stream capture implicit") \
	ERROR(CUDA_ERROR_CAPTURED_EVENT, "captured event") \
	ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "stream capture wrong thread") \
	ERROR(CUDA_ERROR_TIMEOUT, "timeout") \
	ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "graph execution update failure") \
	ERROR(CUDA_ERROR_EXTERNAL_DEVICE, "external device") \
	ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size") \
	ERROR(CUDA_ERROR_FUNCTION_NOT_LOADED, "function not loaded") \
	ERROR(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type") \
	ERROR(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration") \
	ERROR(CUDA_ERROR_KEY_ROTATION, "key rotation") \
	ERROR(CUDA_ERROR_UNKNOWN, "unknown error")

static const char *name_of(CUresult error)
{
	switch (error) {
#define ERROR(name, text)                                                                    \
	case name:                                                                           \
		return #name;
		ERRORS
#undef ERROR
	default:
		return NULL;
	}
}

static const char *text_of(CUresult error)
{
	switch (error) {
#define ERROR(name, text)                                                                    \
	case name:                                                                           \
		return text;
		ERRORS
#undef ERROR
	default:
		return NULL;
	}
}

/* both work before cuInit; NULL and an error for what is no result */
static CUresult answer(const char *found, const char **out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = found;
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
	return answer(name_of(error), pStr);
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
	return answer(text_of(error), pStr);
}
