/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and libraries whose kernels are read one at a time, over a simulator at $DIVVY_SIMULATOR. */
#include "driver.h"

#define HEADER ".version 7.8\n.target sm_70\n.address_size 64\n"

/* Functions by address through memory: what one kernel stores, another calls. */
static const char shared[] =
	HEADER
	".visible .global .align 8 .u64 chosen;\n"
	".visible .global .align 4 .u32 count = 5;\n"
	".func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %r; ld.param.u32 %r, [a]; add.u32 %r, %r, %r;"
	" st.param.u32 [r], %r; ret; }\n"
	".func (.param .b32 r) square(.param .b32 a) { .reg .b32 %r; ld.param.u32 %r, [a]; mul.lo.u32 %r, %r, %r;"
	" st.param.u32 [r], %r; ret; }\n"
	".visible .entry choose() { .reg .b64 %a; mov.u64 %a, square; st.global.u64 [chosen], %a; ret; }\n"
	".visible .entry apply() { .reg .b64 %a; .reg .b32 %r; .param .b32 x; .param .b32 y;\n"
	" ld.global.u64 %a, [chosen]; ld.global.u32 %r, [count]; st.param.b32 [x], %r;\n"
	" shape: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
	" call (y), %a, (x), shape; ld.param.b32 %r, [y]; st.global.u32 [count], %r; ret; }\n"
	".visible .entry mine(.param .u64 p) { .reg .b64 %a; .reg .b32 %r; .global .u32 kept = 40;\n"
	" ld.param.u64 %a, [p]; ld.global.u32 %r, [kept]; add.u32 %r, %r, 1; st.global.u32 [kept], %r;"
	" st.global.u32 [%a], %r; ret; }\n"
	".visible .entry tensor() { .reg .b64 %d;\n mbarrier.init.shared.b64 [0], 1; ret; }\n";

static void launch(CUfunction function, void **arguments)
{
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	OK(cuCtxSynchronize());
}

static uint32_t word(CUdeviceptr at)
{
	uint32_t value = 0;

	OK(cuMemcpyDtoH_v2(&value, at, 4));
	return value;
}

static void use(CUmodule module)
{
	CUfunction function = NULL;
	CUdeviceptr at = 0;

	OK(cuModuleGetFunction(&function, module, "choose"));
	launch(function, NULL);
	OK(cuModuleGetFunction(&function, module, "apply"));
	launch(function, NULL);
	launch(function, NULL);
	OK(cuModuleGetGlobal_v2(&at, NULL, module, "count"));
	CHECK(word(at) == 625);
	/* what a function keeps for itself is the module's, and there is one of it */
	OK(cuMemAlloc_v2(&at, 4));
	void *arguments[] = { &at };

	OK(cuModuleGetFunction(&function, module, "mine"));
	launch(function, arguments);
	launch(function, arguments);
	CHECK(word(at) == 42);
	OK(cuMemFree_v2(at));
	/* one kernel is refused, the others go on */
	GIVES(cuModuleGetFunction(&function, module, "tensor"), CUDA_ERROR_INVALID_PTX);
	GIVES(cuModuleGetFunction(&function, module, "none"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleGetFunction(&function, module, "choose"));
}

static void one_at_a_time(void)
{
	CUmodule module = NULL;
	CUfunction functions[8] = { NULL };
	CUfunctionLoadingState state;
	unsigned int count = 0;

	setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	start();
	uint64_t before = room();

	OK(cuModuleLoadData(&module, shared));
	OK(cuModuleGetFunctionCount(&count, module));
	CHECK(count == 4);
	OK(cuModuleEnumerateFunctions(functions, 8, module));
	OK(cuFuncIsLoaded(&state, functions[0]));
	CHECK(state == CU_FUNCTION_LOADING_STATE_UNLOADED);
	OK(cuFuncLoad(functions[0]));
	OK(cuFuncIsLoaded(&state, functions[0]));
	CHECK(state == CU_FUNCTION_LOADING_STATE_LOADED);
	GIVES(cuFuncLoad(functions[3]), CUDA_ERROR_INVALID_PTX);
	GIVES(cuLaunchKernel(functions[3], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_PTX);
	use(module);
	OK(cuModuleUnload(module));
	finish(before);
}

/* Without being told, a small text is read as a whole, and the log says what is refused; EAGER refuses all. */
static void whole(void)
{
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	char log[256] = "";
	void *values[] = { log, (void *)sizeof(log) };
	CUmodule module = NULL;

	unsetenv("CUDA_MODULE_LOADING");
	start();
	uint64_t before = room();

	OK(cuModuleLoadDataEx(&module, shared, 2, options, values));
	CHECK(strstr(log, "kernel 'tensor'") && strstr(log, "mbarrier.init") && strstr(log, "line "));
	use(module);
	OK(cuModuleUnload(module));
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	values[1] = (void *)sizeof(log);
	GIVES(cuModuleLoadDataEx(&module, shared, 2, options, values), CUDA_ERROR_INVALID_PTX);
	CHECK(strstr(log, "mbarrier.init"));
	finish(before);
}

/* More than a megabyte: nobody has to ask. Its kernels are launched as CUkernel, too. */
static void library(void)
{
	enum { FILLERS = 40000 };
	size_t size = sizeof(shared) + FILLERS * 48;
	char *text = malloc(size);
	CUlibrary library = NULL;
	CUkernel kernel = NULL;
	CUfunction function = NULL;
	CUmodule module = NULL;
	CUdeviceptr at = 0;
	unsigned int count = 0;
	int value = 0;

	CHECK(text);
	size_t length = sizeof(shared) - 1;

	memcpy(text, shared, length);
	for (int i = 0; i < FILLERS; i++)
		length += (size_t)sprintf(text + length, ".entry filler%d() { nonsense; }\n", i);
	CHECK(length > MIB && length < size);
	unsetenv("CUDA_MODULE_LOADING");
	start();
	uint64_t before = room();

	OK(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(room() == before);
	OK(cuLibraryGetKernelCount(&count, library));
	CHECK(count == FILLERS + 4);
	OK(cuLibraryGetKernel(&kernel, library, "filler17"));
	GIVES(cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_PTX);
	OK(cuLibraryGetKernel(&kernel, library, "choose"));
	OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0));
	CHECK(value > 0);
	OK(cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuLibraryGetKernel(&kernel, library, "apply"));
	OK(cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuCtxSynchronize());
	OK(cuLibraryGetGlobal(&at, NULL, library, "count"));
	CHECK(word(at) == 25);
	OK(cuLibraryGetModule(&module, library));
	OK(cuModuleGetFunction(&function, module, "apply"));
	launch(function, NULL);
	CHECK(word(at) == 625);
	OK(cuLibraryUnload(library));
	free(text);
	finish(before);
}

static const struct scenario scenarios[] = {
	{ "one_at_a_time", one_at_a_time },
	{ "whole", whole },
	{ "library", library },
};

RUN_SCENARIOS(scenarios)
