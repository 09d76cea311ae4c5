/* SPDX-License-Identifier: Apache-2.0 */
/* wordapi.c: cuStreamWriteValue, cuStreamWaitValue and batches of them. */
#include "cuda/enter.h"
#include "submit.h"

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
			       unsigned int flags)
{
	struct sd_work work = { .kind = SD_WORK_WORDS, .words = { paramArray, count, flags } };

	if ((count && !paramArray) || count > 256 || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return sd_call_submit(stream, &work, false);
}

static CUresult one(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value,
		    unsigned int flags)
{
	/* The arguments of a wait and a write lie alike. */
	CUstreamBatchMemOpParams op = {
		.waitValue = { .operation = operation, .address = address, .value64 = value, .flags = flags },
	};

	return cuStreamBatchMemOp_v2(stream, 1, &op, 0);
}

#define WORDS(name, type, operation)                                                            \
	CUresult name(CUstream stream, CUdeviceptr addr, type value, unsigned int flags)        \
	{                                                                                       \
		return one(stream, operation, addr, value, flags);                              \
	}                                                                                       \
	CUresult name##_ptsz(CUstream stream, CUdeviceptr addr, type value, unsigned int flags) \
	{                                                                                       \
		return one(sd_per_thread(stream), operation, addr, value, flags);               \
	}

WORDS(cuStreamWriteValue32, cuuint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
WORDS(cuStreamWriteValue32_v2, cuuint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
WORDS(cuStreamWriteValue64, cuuint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)
WORDS(cuStreamWriteValue64_v2, cuuint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)
WORDS(cuStreamWaitValue32, cuuint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
WORDS(cuStreamWaitValue32_v2, cuuint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
WORDS(cuStreamWaitValue64, cuuint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)
WORDS(cuStreamWaitValue64_v2, cuuint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
			    unsigned int flags)
{
	return cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}

SD_PTSZ(cuStreamBatchMemOp,
	(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
	sd_per_thread(stream), count, paramArray, flags)
SD_PTSZ(cuStreamBatchMemOp_v2,
	(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
	sd_per_thread(stream), count, paramArray, flags)
