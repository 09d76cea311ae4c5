/* SPDX-License-Identifier: Apache-2.0 */
/* fillapi.c: cuMemset*. */
#include "cuda/enter.h"
#include "cuda/stream.h"
#include "submit.h"

static CUresult run(CUdeviceptr address, size_t pitch, unsigned int value, unsigned int element, size_t width,
		    size_t height, CUstream stream, bool wait)
{
	struct sd_work work = { .kind = SD_WORK_FILL, .fill = { address, pitch, value, element, width, height } };

	return sd_call_submit(stream, &work, wait);
}

/* One width's six functions and their twins. */
#define FILLS(bits, type, value)                                                                                  \
	CUresult cuMemsetD##bits##_v2(CUdeviceptr dstDevice, type value, size_t N)                                \
	{                                                                                                         \
		return run(dstDevice, 0, value, bits / 8, N, 1, NULL, true);                                      \
	}                                                                                                         \
	CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr dstDevice, type value, size_t N)                           \
	{                                                                                                         \
		return run(dstDevice, 0, value, bits / 8, N, 1, SD_STREAM_PER_THREAD, true);                      \
	}                                                                                                         \
	CUresult cuMemsetD##bits##Async(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream)            \
	{                                                                                                         \
		return run(dstDevice, 0, value, bits / 8, N, 1, hStream, false);                                  \
	}                                                                                                         \
	CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream)       \
	{                                                                                                         \
		return run(dstDevice, 0, value, bits / 8, N, 1, sd_per_thread(hStream), false);                   \
	}                                                                                                         \
	CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,         \
					size_t Height)                                                            \
	{                                                                                                         \
		return run(dstDevice, dstPitch, value, bits / 8, Width, Height, NULL, true);                      \
	}                                                                                                         \
	CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,    \
					     size_t Height)                                                       \
	{                                                                                                         \
		return run(dstDevice, dstPitch, value, bits / 8, Width, Height, SD_STREAM_PER_THREAD, true);      \
	}                                                                                                         \
	CUresult cuMemsetD2D##bits##Async(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,       \
					  size_t Height, CUstream hStream)                                        \
	{                                                                                                         \
		return run(dstDevice, dstPitch, value, bits / 8, Width, Height, hStream, false);                  \
	}                                                                                                         \
	CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width,  \
					       size_t Height, CUstream hStream)                                   \
	{                                                                                                         \
		return run(dstDevice, dstPitch, value, bits / 8, Width, Height, sd_per_thread(hStream), false);   \
	}

FILLS(8, unsigned char, uc)
FILLS(16, unsigned short, us)
FILLS(32, unsigned int, ui)
