/* SPDX-License-Identifier: Apache-2.0 */
/* Two cards that reach each other, and occupancy by its written formula, over a simulator at $DIVVY_SIMULATOR. */
#include "driver.h"

#define WORDS 1024

static const char store[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
			    ".visible .entry store(.param .u64 at)\n{\n	.reg .u64 %rd<2>;\n	.reg .u32 %r<2>;\n"
			    "	ld.param.u64 %rd0, [at];\n	mov.u32 %r0, 42;\n	st.global.u32 [%rd0], %r0;\n	ret;\n}\n";

/* A kernel reaches the other card's memory once its context has asked for it, and
 * faults without. */
static void kernels(CUcontext first, CUcontext second, CUdeviceptr there)
{
	void *arguments[] = { &there };
	uint32_t word = 0;

	for (int turn = 0; turn < 2; turn++) {
		CUcontext own = NULL;
		CUmodule module = NULL;
		CUfunction function = NULL;

		OK(cuCtxSetCurrent(first));
		OK(cuCtxCreate_v2(&own, 0, 0));
		if (turn == 0)
			OK(cuCtxEnablePeerAccess(second, 0));
		OK(cuModuleLoadData(&module, store));
		OK(cuModuleGetFunction(&function, module, "store"));
		OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
		GIVES(cuCtxSynchronize(), turn == 0 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
		OK(cuCtxDestroy_v2(own));
	}
	OK(cuCtxSetCurrent(second));
	OK(cuMemcpyDtoH_v2(&word, there, 4));
	CHECK(word == 42);
	OK(cuMemsetD32_v2(there, 11, 1));
}

/* Access has to be asked for, in each direction, and copies between contexts need
 * none; a box copies like a line, in a stream like at once. */
static void peers(void)
{
	static uint32_t out[WORDS];
	CUcontext first = start(), second = NULL, same = NULL;
	CUdeviceptr here = 0, there = 0;
	CUstream stream = NULL;
	int can = 0;

	OK(cuMemAlloc_v2(&here, sizeof(out)));
	OK(cuMemsetD32_v2(here, 77, WORDS));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuDeviceCanAccessPeer(&can, 0, 1));
	CHECK(can == 1);
	OK(cuDeviceCanAccessPeer(&can, 1, 0));
	CHECK(can == 1);
	OK(cuDeviceCanAccessPeer(&can, 0, 0));
	CHECK(can == 0);
	GIVES(cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	OK(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
	CHECK(can == 1);
	OK(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
	CHECK(can == 0);
	OK(cuCtxCreate_v2(&same, 0, 0));
	GIVES(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	OK(cuCtxDestroy_v2(same));
	OK(cuCtxSetCurrent(first));
	GIVES(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_INVALID_CONTEXT);
	GIVES(cuCtxEnablePeerAccess(second, 1), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	OK(cuCtxEnablePeerAccess(second, 0));
	GIVES(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	OK(cuCtxDisablePeerAccess(second));
	OK(cuCtxSetCurrent(second));
	OK(cuMemAlloc_v2(&there, sizeof(out)));
	OK(cuMemsetD32_v2(there, 5, WORDS));
	OK(cuMemcpyPeer(there, second, here, first, sizeof(out) / 2));
	OK(cuMemcpyDtoH_v2(out, there, sizeof(out)));
	CHECK(out[0] == 77 && out[WORDS / 2 - 1] == 77 && out[WORDS / 2] == 5);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD32Async(there, 11, WORDS, stream));
	OK(cuMemcpyPeerAsync(here, first, there, second, sizeof(out), stream));
	OK(cuMemcpyDtoHAsync_v2(out, here, sizeof(out), stream));
	OK(cuStreamSynchronize(stream));
	CHECK(out[0] == 11 && out[WORDS - 1] == 11);
	/* 16 words of each of 8 rows of 32 */
	const CUDA_MEMCPY3D_PEER box = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = here, .srcContext = first, .srcPitch = 128, .srcHeight = 8,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = there, .dstContext = second, .dstPitch = 128, .dstHeight = 8,
		.WidthInBytes = 64, .Height = 8, .Depth = 1,
	};

	OK(cuMemsetD32_v2(there, 3, WORDS));
	OK(cuMemcpy3DPeer(&box));
	OK(cuMemcpyDtoH_v2(out, there, sizeof(out)));
	for (size_t i = 0; i < WORDS; i++)
		CHECK(out[i] == (i < 256 && i % 32 < 16 ? 11u : 3u));
	OK(cuMemsetD32_v2(there, 3, WORDS));
	OK(cuMemcpy3DPeerAsync(&box, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH_v2(out, there, sizeof(out)));
	CHECK(out[0] == 11 && out[16] == 3);
	kernels(first, second, there);
	OK(cuCtxSetCurrent(second));
	/* a wrong length, and contexts that are none */
	GIVES(cuMemcpyPeer(there, second, here, first, sizeof(out) + 1), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuMemcpyPeer(there, (CUcontext)&box, here, first, 4), CUDA_ERROR_INVALID_CONTEXT);
	GIVES(cuMemcpyPeer(there, second, here, NULL, 4), CUDA_ERROR_INVALID_CONTEXT);
}

#define ROW(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20)
#define LOAD(n) "	ld.shared.f64 %e" #n ", [" #n "*8];\n"
#define STORE(n) "	st.shared.f64 [" #n "*8], %e" #n ";\n"
static const char source[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
			     ".visible .entry plain(.param .u64 out)\n{\n	ret;\n}\n"
			     ".visible .entry sharing(.param .u64 out)\n{\n	.shared .align 4 .b8 tile[4096];\n	ret;\n}\n"
			     ".visible .entry needy(.param .u64 out)\n{\n	.reg .f64 %e<33>;\n" ROW(LOAD) ROW(STORE) "	ret;\n}\n";

/* docs/simulated-gpu.md, block by block: one more fits as long as none of the four
 * runs out. */
static int twin(int device, int registers, size_t shared, int threads)
{
	int threadsleft = 0, blocksleft = 0, registersleft = 0, sharedleft = 0, optin = 0;
	int warps = (threads + 31) / 32, fitting = 0, parts[4], part = 0;

	OK(cuDeviceGetAttribute(&threadsleft, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device));
	OK(cuDeviceGetAttribute(&blocksleft, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, device));
	OK(cuDeviceGetAttribute(&registersleft, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, device));
	OK(cuDeviceGetAttribute(&sharedleft, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device));
	OK(cuDeviceGetAttribute(&optin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
	if (shared > (size_t)optin)
		return 0;
	int each = (registers * 32 + 255) / 256 * 256;
	long need = shared ? (long)shared + 1024 : 0;

	for (int i = 0; i < 4; i++)
		parts[i] = registersleft / 4;
	while (threadsleft >= warps * 32 && blocksleft >= 1 && sharedleft >= need) {
		for (int i = 0; i < warps; i++, part = (part + 1) % 4) {
			parts[part] -= each;
			if (parts[part] < 0)
				return fitting;
		}
		threadsleft -= warps * 32;
		blocksleft--;
		sharedleft -= (int)need;
		fitting++;
	}
	return fitting;
}

static void occupancy(void)
{
	static const char *const names[] = { "plain", "sharing", "needy" };
	CUmodule module = NULL;
	int multiprocessors = 0;

	start();
	OK(cuModuleLoadData(&module, source));
	OK(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	for (size_t i = 0; i < COUNT(names); i++) {
		CUfunction function = NULL;
		int registers = 0, fixed = 0, got = 0, grid = 0, block = 0, best = 0;
		size_t room = 0;

		OK(cuModuleGetFunction(&function, module, names[i]));
		OK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
		OK(cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
		CHECK(fixed == (i == 1 ? 4096 : 0));
		CHECK(registers == (i == 2 ? 42 : 2));
		for (int threads = 1; threads <= 1024; threads += 13) {
			for (size_t dynamic = 0; dynamic < 170000; dynamic += 4999) {
				OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&got, function, threads, dynamic));
				CHECK(got == twin(0, registers, dynamic + (size_t)fixed, threads));
			}
		}
		/* the block that keeps most threads resident, and as many blocks as all of the card holds */
		OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
		for (int threads = 32; threads <= 1024; threads += 32) {
			int resident = threads * twin(0, registers, (size_t)fixed, threads);

			best = resident > best ? resident : best;
		}
		CHECK(block * twin(0, registers, (size_t)fixed, block) == best);
		CHECK(grid == best / block * multiprocessors);
		/* with as much shared memory as is said to be left so many blocks fit, and not with more */
		OK(cuOccupancyAvailableDynamicSMemPerBlock(&room, function, 4, 128));
		CHECK(twin(0, registers, room + (size_t)fixed, 128) >= 4);
		CHECK(twin(0, registers, room + (size_t)fixed + 4, 128) < 4);
		GIVES(cuOccupancyMaxActiveBlocksPerMultiprocessor(&got, function, 1025, 0), CUDA_ERROR_INVALID_VALUE);
		GIVES(cuOccupancyMaxActiveBlocksPerMultiprocessor(&got, function, 0, 0), CUDA_ERROR_INVALID_VALUE);
	}
}

static const struct scenario list[] = {
	{ "peers", peers },
	{ "occupancy", occupancy },
};

RUN_SCENARIOS(list)
