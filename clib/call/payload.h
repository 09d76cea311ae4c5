/* SPDX-License-Identifier: Apache-2.0 */
/*
 * payload.h: payloads of the calls whose row in data/remote.tsv says special. Handles and
 * addresses in them are as in other calls. Behind the structure, padded to words, come
 * the bytes that its comment names; replies begin with the result (u64).
 */
#ifndef CALL_PAYLOAD_H
#define CALL_PAYLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

#define COPY_MOST (1ull << 40) /* bytes of a copy to the host */
#define COPY_BYTES (1u << 20) /* of a copy in one frame; longer ones are several calls */
#define PARAMETER_BYTES 32764u /* of a kernel; CUDA 12.1 and up, 4096 before */
#define PARAMETERS 4096u
#define IMAGE_BYTES (1ull << 30)
#define JIT_OPTIONS 64u
#define NAME_BYTES 65536u /* of a kernel's or symbol's name */

/* cuLaunchKernel, cuLaunchCooperativeKernel, cuLaunchKernelEx: then the parameters, packed
 * as the kernel has them, then the attributes. */
struct call_launch {
	uint64_t function;
	uint64_t stream;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared;
	uint32_t bytes;      /* of the parameters */
	uint32_t attributes; /* CUlaunchAttribute */
	uint32_t given;      /* 0: the call has no parameters at all; 1: packed here */
};

/* Words of a launch's extra, of the public interface: pointers that are numbers. */
enum { EXTRA_END, EXTRA_BUFFER, EXTRA_SIZE };
#define CALL_EXTRA(block, bytes) { (void *)EXTRA_BUFFER, (block), (void *)EXTRA_SIZE, (bytes), (void *)EXTRA_END }

/* What a worker says of a function, in the reply to the calls that find one: then as many
 * offsets and sizes. */
struct call_function {
	uint64_t handle;
	uint32_t known; /* 0: nothing is known of its parameters */
	uint32_t parameters;
	uint32_t bytes;
	uint32_t name; /* bytes of its name, which comes last */
	uint32_t threads; /* most of a block; 0: not known */
	uint32_t shared;  /* static shared memory */
};

struct call_parameter {
	uint32_t offset, size;
};

/* cuModuleGetFunction, cuLibraryGetKernel (then the name), cuKernelGetFunction. */
struct call_find {
	uint64_t of;
	uint64_t bytes; /* of the name, with its end */
};

/* cuModuleEnumerateFunctions, cuLibraryEnumerateKernels: the reply has a call_function each. */
struct call_enumerate {
	uint64_t of;
	uint64_t count;
};

/* cuMemcpyHtoD and its like: then the bytes, unless the other side is to send them. */
struct call_copy {
	uint64_t device; /* address, or an array's handle */
	uint64_t offset; /* in the array */
	uint64_t bytes;
	uint64_t stream;
};

/* A box of a copy with one end on the host: rows without gaps. */
struct call_box {
	uint64_t box[25]; /* CUDA_MEMCPY3D, with handles in place of arrays */
	uint64_t stream;
	uint64_t bytes; /* of the host's end that follow, or are to come */
};

/* cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary, cuLibraryLoadData,
 * cuLinkAddData: the image came before in DATA frames of the lane; then the options. */
struct call_load {
	uint64_t link;    /* cuLinkAddData: the link */
	uint32_t type;    /* cuLinkAddData: CUjitInputType */
	uint32_t options; /* u32 number, u32 0, u64 value each */
	uint32_t name;    /* bytes of the image's name, with its end, or 0 */
	uint32_t library; /* options of a library, which follow */
};

struct call_option {
	uint32_t option;
	uint32_t padding;
	uint64_t value; /* of a buffer: how large it is */
};

static inline bool call_is_buffer(unsigned int option)
{
	return option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_ERROR_LOG_BUFFER;
}

/* cuPointerGetAttribute, cuPointerGetAttributes, cuPointerSetAttribute: then the numbers of
 * the attributes (u32 each), or the value that is to be set. The reply has 16 bytes each. */
struct call_pointer {
	uint64_t address;
	uint32_t count;
	uint32_t attribute; /* to be set */
};

#define POINTER_ATTRIBUTES 64u
#define POINTER_BYTES 16u

/* Kernel nodes: then the parameters, then the nodes that it depends on. */
struct call_kernel_node {
	uint64_t graph, node, exec; /* those that the call has */
	uint64_t context;
	uint64_t dependencies;
	struct call_launch launch;
};

/* Copy, allocation and batch nodes: then the structure of the node with its arrays of
 * count elements, then the dependencies. */
struct call_node {
	uint64_t graph, node, exec;
	uint64_t context;
	uint64_t dependencies;
	uint64_t count;
};

#define NODE_ELEMENTS 4096u

/* cuOccupancyMaxPotentialBlockSize and the like without a callback. */
struct call_occupancy {
	uint64_t function;
	uint64_t shared;
	uint32_t limit;
	uint32_t flags;
};

/* cuTexRefSetMipmapLevelBias, cuTexRefSetMipmapLevelClamp */
struct call_texture_floats {
	uint64_t texture;
	float first, second;
};

/* cuIpcOpenMemHandle_v2, cuIpcOpenEventHandle: what another process of the run has given
 * out. The reply has the address or the event. */
struct call_opened {
	uint8_t handle[64];
	uint64_t flags;
};

/* The reply to cuStreamGetCaptureInfo_v2 and _v3 (the stream's handle): then the nodes,
 * then, of the third, as many CUgraphEdgeData. */
struct call_capture {
	uint64_t id;
	uint64_t graph;
	uint64_t count;
	uint32_t status;
	uint32_t padding;
};

/* cuLaunchHostFunc and cuStreamAddCallback; CALLBACK and RETURNED frames. */
struct call_callback {
	uint64_t stream;
	uint64_t cookie; /* of the library */
	uint32_t result; /* CALLBACK of a stream's callback: how the stream fares */
	uint32_t flags;
};

#endif
