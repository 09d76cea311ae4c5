/* SPDX-License-Identifier: Apache-2.0 */
/* The launch surface: every way to start a kernel reaches the driver and is counted. */
#include "snippet.h"

static const char source[] = ".version 6.0\n"
			     ".target sm_50\n"
			     ".address_size 64\n"
			     ".visible .entry nothing()\n"
			     "{\n"
			     "	ret;\n"
			     "}\n";

static CUfunction function(void)
{
	static CUmodule module;
	static CUfunction found;

	if (!found && DRIVER(cuModuleLoadData)(&module, source) == 0)
		DRIVER(cuModuleGetFunction)(&found, module, "nothing");
	return found;
}

static void plain_with(__typeof__(&cuLaunchKernel) launch)
{
	CHECK(function() != NULL);
	for (int i = 0; i < 70; i++) /* more than the 64 after which a count is told */
		OK(launch(function(), 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	/* The driver's answer to a bad launch comes through. */
	CHECK(launch(function(), 0, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL) != 0);
}

static void plain(void)
{
	plain_with(DRIVER(cuLaunchKernel));
}

static void plain_ptsz(void)
{
	plain_with(DRIVER(cuLaunchKernel_ptsz));
}

static void extended_with(__typeof__(&cuLaunchKernelEx) launch)
{
	CUlaunchConfig config = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 32,
		.blockDimY = 1,
		.blockDimZ = 1,
	};

	CHECK(function() != NULL);
	OK(launch(&config, function(), NULL, NULL));
	OK(DRIVER(cuCtxSynchronize)());
}

static void extended(void)
{
	extended_with(DRIVER(cuLaunchKernelEx));
}

static void extended_ptsz(void)
{
	extended_with(DRIVER(cuLaunchKernelEx_ptsz));
}

static void cooperative_with(__typeof__(&cuLaunchCooperativeKernel) launch)
{
	CHECK(function() != NULL);
	OK(launch(function(), 1, 1, 1, 32, 1, 1, 0, NULL, NULL));
	OK(DRIVER(cuCtxSynchronize)());
}

static void cooperative(void)
{
	cooperative_with(DRIVER(cuLaunchCooperativeKernel));
}

static void cooperative_ptsz(void)
{
	cooperative_with(DRIVER(cuLaunchCooperativeKernel_ptsz));
}

static void cooperative_multi(void)
{
	CUDA_LAUNCH_PARAMS params = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 32,
		.blockDimY = 1,
		.blockDimZ = 1,
	};

	CHECK(function() != NULL);
	OK(DRIVER(cuStreamCreate)(&params.hStream, CU_STREAM_NON_BLOCKING));
	params.function = function();
	OK(DRIVER(cuLaunchCooperativeKernelMultiDevice)(&params, 1, 0));
	OK(DRIVER(cuStreamSynchronize)(params.hStream));
	OK(DRIVER(cuStreamDestroy_v2)(params.hStream));
}

/* The calls of the first CUDA releases. */
static void oldest(void)
{
	CHECK(function() != NULL);
	OK(DRIVER(cuFuncSetBlockShape)(function(), 32, 1, 1));
	OK(DRIVER(cuParamSetSize)(function(), 0));
	OK(DRIVER(cuLaunch)(function()));
	OK(DRIVER(cuLaunchGrid)(function(), 2, 1));
	OK(DRIVER(cuLaunchGridAsync)(function(), 2, 1, NULL));
	OK(DRIVER(cuCtxSynchronize)());
}

static const struct snippet snippets[] = {
	SNIPPET(cuLaunchKernel, plain),
	SNIPPET(cuLaunchKernel_ptsz, plain_ptsz),
	SNIPPET(cuLaunchKernelEx, extended),
	SNIPPET(cuLaunchKernelEx_ptsz, extended_ptsz),
	SNIPPET(cuLaunchCooperativeKernel, cooperative),
	SNIPPET(cuLaunchCooperativeKernel_ptsz, cooperative_ptsz),
	SNIPPET(cuLaunchCooperativeKernelMultiDevice, cooperative_multi),
	SNIPPET(cuLaunch, oldest),
	SNIPPET(cuLaunchGrid, oldest),
	SNIPPET(cuLaunchGridAsync, oldest),
};

const struct area area_launch = {
	.name = "launch",
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
