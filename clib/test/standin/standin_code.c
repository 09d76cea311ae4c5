/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, functions, launches, names and attributes, over a simulator at $DIVVY_SIMULATOR. */
#include "driver.h"

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .global .align 4 .u32 counter = 7;\n"
	".global .align 8 .b8 big[3000];\n"
	".visible .entry add(.param .u64 a, .param .u32 n) .maxntid 128, 1, 1\n"
	"{ .shared .align 4 .b8 tile[256]; ret; }\n"
	".visible .entry empty() { ret; }\n";

#define ROUND(bytes) (((bytes) + 511) / 512 * 512)

/* an image costs its size and its variables, and its variables have their values */
static void modules(void)
{
	CUmodule module = NULL;
	CUfunction function = NULL;
	CUdeviceptr at = 0;
	size_t bytes = 0;
	uint32_t word = 0;
	unsigned char zero[3000];
	char log[64] = "x";

	start();
	uint64_t before = room();

	OK(cuModuleLoadData(&module, ptx));
	CHECK(before - room() == ROUND(sizeof(ptx) - 1) + 512 + 3072);
	OK(cuModuleGetGlobal_v2(&at, &bytes, module, "counter"));
	CHECK(bytes == 4);
	OK(cuMemcpyDtoH_v2(&word, at, 4));
	CHECK(word == 7);
	OK(cuModuleGetGlobal_v2(&at, &bytes, module, "big"));
	CHECK(bytes == 3000);
	OK(cuMemcpyDtoH_v2(zero, at, 3000));
	for (size_t i = 0; i < sizeof(zero); i++)
		CHECK(zero[i] == 0);
	GIVES(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuModuleGetGlobal_v2(&at, &bytes, module, "none"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleGetFunction(&function, module, "add"));
	GIVES(cuModuleGetFunction(&function, module, "ad"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleUnload(module));
	CHECK(room() == before);
	GIVES(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	GIVES(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);

	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };

	GIVES(cuModuleLoadDataEx(&module, ".version 7.0\n.entry broken(", 2, options, values), CUDA_ERROR_INVALID_PTX);
	CHECK(log[0] && log[0] != 'x');
	GIVES(cuModuleLoadData(&module, ".version 99.0\n"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	GIVES(cuModuleLoadData(&module, "junk"), CUDA_ERROR_INVALID_IMAGE);
	GIVES(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
	finish(before);
}

static void libraries(void)
{
	CUlibrary library = NULL;
	CUkernel kernel = NULL;
	CUfunction function = NULL, again = NULL;
	CUmodule module = NULL;
	CUdeviceptr at = 0;
	size_t bytes = 0, offset = 0;
	unsigned int count = 0;

	start();
	uint64_t before = room();

	OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(room() == before); /* nothing yet in this context */
	OK(cuLibraryGetKernelCount(&count, library));
	CHECK(count == 2);
	OK(cuLibraryGetKernel(&kernel, library, "add"));
	OK(cuKernelGetFunction(&function, kernel));
	CHECK(before - room() == ROUND(sizeof(ptx) - 1) + 512 + 3072);
	OK(cuKernelGetFunction(&again, kernel));
	CHECK(again == function);
	OK(cuLibraryGetModule(&module, library));
	GIVES(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	OK(cuLibraryGetGlobal(&at, &bytes, library, "counter"));
	GIVES(cuLibraryGetManaged(&at, &bytes, library, "counter"), CUDA_ERROR_NOT_FOUND);
	OK(cuKernelGetParamInfo(kernel, 1, &offset, &bytes));
	CHECK(offset == 8 && bytes == 4);
	GIVES(cuKernelGetParamInfo(kernel, 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
	OK(cuLibraryUnload(library));
	GIVES(cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_HANDLE);
	finish(before);
}

static void linking(void)
{
	CUlinkState state = NULL;
	CUmodule module = NULL;
	CUfunction function = NULL;
	void *image = NULL;
	size_t size = 0;
	char more[] = ".version 6.0\n.target sm_60\n.address_size 64\n.visible .entry second() { ret; }\n";

	start();
	uint64_t before = room();

	OK(cuLinkCreate_v2(0, NULL, NULL, &state));
	GIVES(cuLinkComplete(state, &image, &size), CUDA_ERROR_INVALID_VALUE);
	OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, sizeof(ptx), "one", 0, NULL, NULL));
	OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, more, sizeof(more) - 1, "two", 0, NULL, NULL));
	GIVES(cuLinkAddData_v2(state, CU_JIT_INPUT_LIBRARY, more, 8, "three", 0, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuLinkComplete(state, &image, &size));
	OK(cuModuleLoadData(&module, image));
	OK(cuLinkDestroy(state));
	OK(cuModuleGetFunction(&function, module, "add"));
	OK(cuModuleGetFunction(&function, module, "second"));
	OK(cuModuleUnload(module));
	finish(before);
}

/* What one text leaves open another one has; what none has is told in the link's log. */
static void linked_names(void)
{
	CUlinkState state = NULL;
	CUmodule module = NULL;
	CUdeviceptr at = 0;
	void *image = NULL;
	size_t size = 0;
	char log[256] = "x";
	char user[] = ".version 6.0\n.target sm_60\n.address_size 64\n"
		      ".extern .func (.param .b32 r) twice(.param .b32 x);\n.extern .global .u32 seed;\n.global .u32 own = 1;\n"
		      ".visible .entry kernel() { .reg .b32 %r; .param .b32 x; .param .b32 r;\n"
		      "ld.global.u32 %r, [seed]; call (r), twice, (x); ret; }\n";
	char maker[] = ".version 6.0\n.target sm_60\n.address_size 64\n.visible .global .u32 seed = 9; .global .u32 own = 2;\n"
		       ".visible .func (.param .b32 r) twice(.param .b32 x) { ret; }\n";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	uint32_t word = 0;

	start();
	uint64_t before = room();

	OK(cuLinkCreate_v2(2, options, values, &state));
	OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, user, sizeof(user), "user", 0, NULL, NULL));
	GIVES(cuLinkComplete(state, &image, &size), CUDA_ERROR_UNKNOWN);
	CHECK(strstr(log, "unresolved extern") && (size_t)values[1] == strlen(log));
	OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, maker, sizeof(maker), "maker", 0, NULL, NULL));
	OK(cuLinkComplete(state, &image, &size));
	CHECK(!log[0] && !values[1]);
	OK(cuModuleLoadData(&module, image));
	OK(cuModuleGetGlobal_v2(&at, &size, module, "seed"));
	OK(cuMemcpyDtoH_v2(&word, at, 4));
	CHECK(word == 9);
	OK(cuModuleUnload(module));
	OK(cuLinkDestroy(state));

	OK(cuLinkCreate_v2(2, options, values, &state));
	values[1] = (void *)sizeof(log);
	GIVES(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, "\n\n.bogus", 9, "bad", 2, options, values), CUDA_ERROR_INVALID_PTX);
	CHECK(strstr(log, "line 3: "));
	values[1] = (void *)sizeof(log);
	GIVES(cuLinkAddData_v2(state, CU_JIT_INPUT_CUBIN, "\1\2\3\4", 4, "none", 2, options, values),
	      CUDA_ERROR_INVALID_IMAGE);
	CHECK(strstr(log, "neither PTX, an ELF file nor a fat binary"));
	values[1] = (void *)sizeof(log);
	GIVES(cuLinkAddData_v2(state, CU_JIT_INPUT_CUBIN, "\1\2", 2, "none", 2, options, values),
	      CUDA_ERROR_INVALID_IMAGE);
	CHECK(strcmp(log, "this input has 2 bytes: it is no image") == 0);
	OK(cuLinkDestroy(state));
	finish(before);
}

/* First contents with addresses in them, alignment, constants. */
static void variables(void)
{
	static const char text[] =
		".version 7.0\n.target sm_70\n.address_size 64\n"
		".visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};\n"
		".visible .global .align 8 .u64 at[2] = {table, generic(table)+8};\n"
		".visible .global .u8 bytes[8] = {0xff(table), 0xff00(table), 0xff0000(table), 0xff000000(table), 0xff00000000(table)};\n"
		".visible .const .f32 half = 0.5;\n.visible .global .align 4096 .b8 page[100];\n"
		".visible .global .texref picture;\n"
		".visible .entry kernel() { .global .u32 mine = 3; ret; }\n";
	CUmodule module = NULL;
	CUdeviceptr table = 0, at = 0;
	uint64_t words[2];
	size_t bytes = 0;
	float half = 0;

	start();
	uint64_t before = room();

	OK(cuModuleLoadData(&module, text));
	OK(cuModuleGetGlobal_v2(&table, NULL, module, "table"));
	OK(cuModuleGetGlobal_v2(&at, NULL, module, "at"));
	OK(cuMemcpyDtoH_v2(words, at, 16));
	CHECK(words[0] == table && words[1] == table + 8);
	OK(cuModuleGetGlobal_v2(&at, NULL, module, "bytes"));
	OK(cuMemcpyDtoH_v2(words, at, 8));
	CHECK(words[0] == (table & 0xffffffffff));
	OK(cuModuleGetGlobal_v2(&at, &bytes, module, "half"));
	OK(cuMemcpyDtoH_v2(&half, at, bytes));
	CHECK(bytes == 4 && half == 0.5f);
	OK(cuModuleGetGlobal_v2(&at, &bytes, module, "page"));
	CHECK(at % 4096 == 0 && bytes == 100);
	GIVES(cuModuleGetGlobal_v2(&at, &bytes, module, "mine"), CUDA_ERROR_NOT_FOUND);
	GIVES(cuModuleGetGlobal_v2(&at, &bytes, module, "picture"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleUnload(module));
	finish(before);
}

/* Code of two inputs runs together: a call by name, one by an address in memory, and one for
 * a result that there is not. */
static void linked_code(void)
{
	char user[] = ".version 6.0\n.target sm_60\n.address_size 64\n"
		      ".extern .func (.param .b32 r) twice(.param .b32 x);\n.extern .global .u32 seed;\n.extern .global .u64 table[2];\n"
		      ".extern .func (.param .b64 n) consume(.param .b32 x);\n"
		      ".visible .entry kernel(.param .u64 out) { .reg .b32 %r<4>; .reg .b64 %d<3>; .param .b32 x; .param .b32 r; .param .b64 n;\n"
		      "ld.global.u32 %r1, [seed]; st.param.b32 [x], %r1; call (r), twice, (x); ld.param.b32 %r2, [r];\n"
		      "ld.global.u64 %d1, [table+8]; st.param.b32 [x], %r2;\n"
		      "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
		      "call (r), %d1, (x), proto; call (n), consume, (x); ld.param.b32 %r3, [r]; ld.param.u64 %d2, [out];\n"
		      "st.global.v2.u32 [%d2], {%r2, %r3}; ret; }\n";
	char maker[] = ".version 6.0\n.target sm_60\n.address_size 64\n.visible .global .u32 seed = 9;\n"
		       ".visible .func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x];\n"
		       "add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }\n"
		       ".func (.param .b32 r) more(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x];\n"
		       "add.s32 %r2, %r1, 100; st.param.b32 [r], %r2; ret; }\n"
		       ".visible .func consume(.param .b32 x) { ret; }\n"
		       ".visible .global .u64 table[2] = {twice, more};\n";
	CUlinkState state = NULL;
	CUmodule module = NULL;
	CUfunction kernel = NULL;
	CUdeviceptr out = 0;
	uint32_t words[2] = { 0 };
	void *image = NULL;
	void *arguments[] = { &out };

	start();
	OK(cuLinkCreate_v2(0, NULL, NULL, &state));
	OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, user, sizeof(user), "user", 0, NULL, NULL));
	OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, maker, sizeof(maker), "maker", 0, NULL, NULL));
	OK(cuLinkComplete(state, &image, NULL));
	OK(cuModuleLoadData(&module, image));
	OK(cuModuleGetFunction(&kernel, module, "kernel"));
	OK(cuMemAlloc_v2(&out, sizeof(words)));
	OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	OK(cuMemcpyDtoH_v2(words, out, sizeof(words)));
	CHECK(words[0] == 18 && words[1] == 118);
}

/* A kernel reads through a texture and writes through a surface. */
static void textures(void)
{
	static const char text[] =
		".version 7.0\n.target sm_70\n.address_size 64\n"
		".visible .entry kernel(.param .u64 picture, .param .u64 canvas) {\n"
		".reg .b32 %r<6>; .reg .f32 %f<6>; .reg .b64 %d<3>; ld.param.u64 %d1, [picture]; ld.param.u64 %d2, [canvas];\n"
		"mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0.5;\n"
		"tex.2d.v4.u32.f32 {%r2, %r3, %r4, %r5}, [%d1, {%f1, %f1}];\n"
		"add.u32 %r2, %r2, 1; sust.b.2d.b8.trap [%d2, {%r1, %r1}], {%r2}; ret; }\n";
	CUDA_RESOURCE_DESC from = { .resType = CU_RESOURCE_TYPE_PITCH2D };
	CUDA_RESOURCE_DESC to = { .resType = CU_RESOURCE_TYPE_ARRAY };
	const CUDA_TEXTURE_DESC how = { .flags = 1 }; /* CU_TRSF_READ_AS_INTEGER */
	const CUDA_ARRAY3D_DESCRIPTOR shape = { 8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 2 };
	CUmodule module = NULL;
	CUfunction kernel = NULL;
	CUtexObject picture = 0;
	CUsurfObject canvas = 0;
	unsigned char pixels[8 * 512];
	unsigned char got[8 * 8];
	void *arguments[] = { &picture, &canvas };

	start();
	fill(pixels, sizeof(pixels));
	OK(cuModuleLoadData(&module, text));
	OK(cuModuleGetFunction(&kernel, module, "kernel"));
	OK(cuMemAlloc_v2(&from.res.pitch2D.devPtr, sizeof(pixels)));
	OK(cuMemcpyHtoD_v2(from.res.pitch2D.devPtr, pixels, sizeof(pixels)));
	from.res.pitch2D.format = CU_AD_FORMAT_UNSIGNED_INT8;
	from.res.pitch2D.numChannels = 1;
	from.res.pitch2D.width = from.res.pitch2D.height = 8;
	from.res.pitch2D.pitchInBytes = 512;
	OK(cuTexObjectCreate(&picture, &from, &how, NULL));
	OK(cuArray3DCreate_v2(&to.res.array.hArray, &shape));
	OK(cuSurfObjectCreate(&canvas, &to));
	OK(cuLaunchKernel(kernel, 1, 1, 1, 8, 1, 1, 0, NULL, arguments, NULL));
	OK(cuMemcpyAtoH_v2(got, to.res.array.hArray, 0, sizeof(got)));
	for (size_t i = 0; i < 8; i++)
		CHECK(got[9 * i] == (unsigned char)(pixels[513 * i] + 1));
	/* one step outside of the surface */
	OK(cuLaunchKernel(kernel, 1, 1, 1, 9, 1, 1, 0, NULL, arguments, NULL));
	GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* What a card cannot run does not load, and the log says why. */
static void refused(void)
{
	static const struct {
		const char *text;
		CUresult result;
		const char *says;
	} wanted[] = {
		{ ".version 7.8\n.target sm_90\n.entry k() { ret; }", CUDA_ERROR_INVALID_PTX, "sm_90" },
		{ ".version 7.0\n.target sm_80\n.entry k() {\nfrob.x32 a; }", CUDA_ERROR_INVALID_PTX,
		  "line 4: unknown instruction 'frob.x32'" },
		{ ".version 8.3\n.target sm_80\n", CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "line 1: PTX version 8.3" },
	};
	CUjit_option options[] = { CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
				   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	CUmodule module = NULL;
	CUlibrary library = NULL;
	char info[64], error[128];

	start();
	uint64_t before = room();

	for (size_t i = 0; i < COUNT(wanted); i++) {
		void *values[] = { info, (void *)sizeof(info), error, (void *)sizeof(error) };

		GIVES(cuModuleLoadDataEx(&module, wanted[i].text, 4, options, values), wanted[i].result);
		CHECK(strstr(error, wanted[i].says) && (size_t)values[3] == strlen(error));
		CHECK(!info[0] && !values[1]);
		values[3] = (void *)10;
		GIVES(cuLibraryLoadData(&library, wanted[i].text, options, values, 4, NULL, NULL, 0), wanted[i].result);
		CHECK(strlen(error) == 9 && (size_t)values[3] == 9);
	}
	void *values[] = { info, (void *)sizeof(info), error, (void *)sizeof(error) };

	OK(cuModuleLoadDataEx(&module, ptx, 4, options, values));
	CHECK(!error[0] && !values[3]);
	OK(cuModuleUnload(module));
	finish(before);
}

static void launches(void)
{
	CUmodule module = NULL;
	CUfunction add = NULL, empty = NULL;
	CUdeviceptr a = 0;
	uint32_t n = 5;
	int value = 0, grid = 0, block = 0;
	void *arguments[] = { &a, &n };

	start();
	OK(cuModuleLoadData(&module, ptx));
	OK(cuModuleGetFunction(&add, module, "add"));
	OK(cuModuleGetFunction(&empty, module, "empty"));
	OK(cuLaunchKernel(add, 10, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL));
	OK(cuLaunchKernel_ptsz(empty, 1, 1, 1, 1024, 1, 1, 0, NULL, NULL, NULL));
	GIVES(cuLaunchKernel(add, 10, 1, 1, 129, 1, 1, 0, NULL, arguments, NULL), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	GIVES(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuLaunchKernel(empty, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuLaunchKernel(empty, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuLaunchKernel(empty, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncSetAttribute(empty, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
	OK(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 100000, NULL, NULL, NULL));
	GIVES(cuFuncSetAttribute(empty, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, add));
	CHECK(value == 256);
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add));
	CHECK(value == 128);
	GIVES(cuLaunchCooperativeKernel(empty, 1000000, 1, 1, 32, 1, 1, 0, NULL, NULL),
	      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, empty, 1024, 0));
	CHECK(value == 2); /* 2048 threads */
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, empty, NULL, 0, 0));
	CHECK(block == 1024 && grid == 2 * 108);
	OK(cuFuncSetBlockShape(add, 16, 2, 1));
	OK(cuParamSetSize(add, 12));
	OK(cuParamSetv(add, 0, &a, 8));
	OK(cuParamSeti(add, 8, 5));
	OK(cuLaunchGrid(add, 2, 2));

	/* a graph's node keeps arguments of its own */
	CUgraph graph = NULL;
	CUgraphNode node = NULL;
	CUDA_KERNEL_NODE_PARAMS params = {
		.func = add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
		.kernelParams = arguments,
	};
	CUDA_KERNEL_NODE_PARAMS got;

	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	n = 6;
	OK(cuGraphKernelNodeGetParams_v2(node, &got));
	CHECK(got.func == add && *(uint32_t *)got.kernelParams[1] == 5);
	OK(cuGraphDestroy(graph));
}

typedef CUresult (*address_finder)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void names(void)
{
	void *found = NULL, *other = NULL;
	CUdriverProcAddressQueryResult status;
	const char *text = NULL;

	/* works before cuInit */
	OK(cuGetProcAddress_v2("cuMemAlloc", &found, 12020, 0, &status));
	CHECK(found == (void *)cuMemAlloc_v2 && status == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cuGetProcAddress_v2("cuMemAlloc", &found, 3000, 0, &status));
	CHECK(found == (void *)cuMemAlloc);
	OK(cuGetProcAddress_v2("cuLaunchKernel", &found, 12020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
	CHECK(found == (void *)cuLaunchKernel_ptsz);
	OK(cuGetProcAddress_v2("cuLaunchKernel", &found, 12020, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status));
	CHECK(found == (void *)cuLaunchKernel);
	OK(cuGetProcAddress_v2("cuLaunchKernelEx", &found, 11060, 0, &status)); /* as cuda.bindings asks */
	CHECK(found == (void *)cuLaunchKernelEx);
	GIVES(cuGetProcAddress_v2("cuGraphAddNode", &found, 11080, 0, &status), CUDA_ERROR_NOT_FOUND);
	CHECK(!found && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	GIVES(cuGetProcAddress_v2("cuNone", &found, 12020, 0, &status), CUDA_ERROR_NOT_FOUND);
	CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	GIVES(cuGetProcAddress_v2("cuGreenCtxCreate", &found, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND); /* newer than this driver */
	GIVES(cuGetProcAddress_v2("cuInit", &found, 12020, 3, &status), CUDA_ERROR_INVALID_VALUE);
	OK(cuGetProcAddress("cuGetProcAddress", &found, 12020, 0));
	OK(cuGetProcAddress("cuGetProcAddress", &other, 11030, 0));
	CHECK(found == (void *)cuGetProcAddress_v2 && other == (void *)cuGetProcAddress);
	OK(((address_finder)found)("cuInit", &found, 12020, 0, &status));
	CHECK(found == (void *)cuInit);
	OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
	CHECK(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
	OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	CHECK(strcmp(text, "out of memory") == 0);
	GIVES(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	CHECK(!text);
}

/* What NVIDIA's runtime library asks for before it works, and passes on (docs/programs.md): there
 * are none, 500 is the answer, and a process is told once. */
static void private_tables(void)
{
	const CUuuid names[] = { { "" }, { "some other name" } };
	const void *tables[4] = { names, names, names, names };
	CUresult results[4];
	char said[1024] = "";
	int pipes[2];
	int before = dup(STDERR_FILENO);

	CHECK(pipe(pipes) == 0 && dup2(pipes[1], STDERR_FILENO) == STDERR_FILENO);
	CUresult nowhere = cuGetExportTable(NULL, &names[0]);
	CUresult nameless = cuGetExportTable(&tables[0], NULL);

	for (int i = 0; i < 4; i++) {
		if (i == 2)
			start();
		results[i] = cuGetExportTable(&tables[i], &names[i % 2]);
	}
	CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO && close(pipes[1]) == 0);
	for (ssize_t at = 0, got = 1; got > 0; at += got)
		got = read(pipes[0], said + at, sizeof(said) - 1 - (size_t)at);
	GIVES(nowhere, CUDA_ERROR_INVALID_VALUE);
	GIVES(nameless, CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < 4; i++) {
		GIVES(results[i], (CUresult)500);
		CHECK(!tables[i]);
	}
	CHECK(strncmp(said, "divvy: simulated GPU: this program asks the driver for private tables", 69) == 0);
	CHECK(strstr(said, ": divvy doctor PROGRAM\n") && strchr(said, '\n')[1] == '\0');
}

static void devices(void)
{
	char name[128] = "", id[32] = "";
	int value = 0, count = 0;
	CUdevice device = -1;
	size_t bytes = 0;
	CUuuid one, two;

	GIVES(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	CHECK(count == 2);
	OK(cuDeviceGetName(name, sizeof(name), 0));
	CHECK(strstr(name, "A100") && strstr(name, "(simulated)"));
	OK(cuDeviceGetName(name, 5, 0));
	CHECK(strlen(name) == 4);
	OK(cuDeviceTotalMem_v2(&bytes, 0));
	CHECK(bytes > 38ull << 30 && bytes <= 40ull << 30);
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	CHECK(value == 8);
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1));
	CHECK(value == 108);
	GIVES(cuDeviceGetAttribute(&value, (CUdevice_attribute)140, 0), CUDA_ERROR_INVALID_VALUE); /* of 13.0 */
	GIVES(cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE);
	GIVES(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2), CUDA_ERROR_INVALID_DEVICE);
	OK(cuDeviceGetPCIBusId(id, sizeof(id), 1));
	OK(cuDeviceGetByPCIBusId(&device, id));
	CHECK(device == 1);
	OK(cuDeviceGetUuid_v2(&one, 0));
	OK(cuDeviceGetUuid_v2(&two, 1));
	CHECK(memcmp(&one, &two, sizeof(one)) != 0);
	OK(cuDriverGetVersion(&value));
	CHECK(value == 12020);
}

static int seen(const char *list)
{
	int count = -1, status = 0;
	int pipes[2];

	CHECK(pipe(pipes) == 0);
	pid_t child = fork();

	if (child == 0) {
		setenv("CUDA_VISIBLE_DEVICES", list, 1);
		count = cuInit(0) == CUDA_ERROR_NO_DEVICE ? 0 : -1;
		if (count < 0)
			OK(cuDeviceGetCount(&count));
		CHECK(write(pipes[1], &count, sizeof(count)) == sizeof(count));
		_exit(0);
	}
	CHECK(read(pipes[0], &count, sizeof(count)) == sizeof(count));
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return count;
}

static void visible(void)
{
	CUuuid uuid;
	char name[40] = "GPU-";

	CHECK(seen("0,1") == 2 && seen("1") == 1 && seen("1,0") == 2);
	CHECK(seen("") == 0 && seen("7") == 0 && seen("-1") == 0 && seen("nonsense") == 0);
	CHECK(seen("1,7,0") == 1); /* it ends at what is not there */
	CHECK(seen("0,0") == 0);
	CHECK(seen("GPU-") == 0); /* two cards begin like that */
	OK(cuInit(0));
	OK(cuDeviceGetUuid_v2(&uuid, 1));
	for (int i = 0; i < 4; i++)
		sprintf(name + 4 + 2 * i, "%02x", (unsigned char)uuid.bytes[i]);
	setenv("CUDA_VISIBLE_DEVICES", name, 1);
	/* the same program anew: this one is set in its ways */
	execl("/proc/self/exe", "standin_code", "visible_card", (char *)NULL);
	CHECK(!"exec");
}

static void visible_card(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	char name[16];
	CUuuid uuid;
	int count = 0;

	if (!list)
		return;
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	OK(cuDeviceGetUuid_v2(&uuid, 0));
	sprintf(name, "GPU-%02x%02x", (unsigned char)uuid.bytes[0], (unsigned char)uuid.bytes[1]);
	CHECK(count == 1 && strncmp(name, list, 8) == 0);
}

static void old_names(void)
{
	CUdeviceptr_v1 narrow = 7;
	unsigned int freebytes = 0, total = 0;
	CUarray array = NULL;
	const CUDA_ARRAY_DESCRIPTOR_v1 shape = { 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1 };
	char text[8] = "";

	start();
	uint64_t before = room();

	GIVES(cuMemAlloc(&narrow, 100), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(narrow == 7 && room() == before);
	OK(cuMemGetInfo(&freebytes, &total));
	CHECK(total == UINT32_MAX);
	OK(cuArrayCreate(&array, &shape));
	OK(cuMemcpyHtoA(array, 8, "texels", 6));
	OK(cuMemcpyAtoH(text, array, 8, 6));
	CHECK(strcmp(text, "texels") == 0);
	OK(cuArrayDestroy(array));
	finish(before);
}

static const struct scenario list[] = {
	{ "modules", modules }, { "libraries", libraries }, { "linking", linking }, { "linked_names", linked_names },
	{ "linked_code", linked_code }, { "textures", textures },
	{ "variables", variables }, { "refused", refused },
	{ "launches", launches }, { "names", names },	    { "devices", devices },
	{ "private_tables", private_tables },
	{ "visible", visible },	  { "visible_card", visible_card }, { "old_names", old_names },
};

RUN_SCENARIOS(list)
